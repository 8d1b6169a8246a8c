"""LoCoMo arms over a real memory bank: our retrieval without a dream, and after one.

Each conversation is written page by page into an embedded collection of its own. What a reader would see is a
page's line, and the session's date once, before its first line. A derived memory is one entry, of the lines
that are not shown yet; it counts for what it quotes (``scoring.quoted_turns``).
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.associations import scene_keys
from shared_core.bank import MemoryBank
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.derived import is_derived, sources_of
from shared_core.bank.graph import read_graph
from shared_core.config import AssociativeConfig, RetrievalConfig
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo.arms import ContextEntry
from shared_core.evaluation.locomo.dreams import DREAMS
from shared_core.evaluation.locomo.loader import Conversation, Turn
from shared_core.retrieval.association_index import AssociationIndex
from shared_core.retrieval.associative import CONTEXT_PAGES, AssociativeRetriever
from shared_core.retrieval.context import render_context
from shared_core.retrieval.quoted import lines_by_source, says
from shared_core.retrieval.retriever import BankRetriever

if TYPE_CHECKING:
    from shared_core.types import Embedder, Hit

UNDREAMED = ("context", "context-stemmed")
BANK_ARMS = (*UNDREAMED, *DREAMS)
WITHOUT_WORDS = "(a picture)"
"""Stored for a turn without text: a memory cannot be empty."""
_CLOCK = re.compile(r"^.*?\bon\s+")
_DATE = "%d %B, %Y"


@dataclass(frozen=True)
class Found:
    """A memory that a search returned."""

    id: str
    text: str
    sources: tuple[str, ...]
    """What a derived memory quotes; empty for a page."""


Search = Callable[[str, int], Sequence[Found]]


class BankArm:
    """A bank that holds one conversation."""

    def __init__(
        self,
        name: str,
        conversation: Conversation,
        bank: MemoryBank,
        embedder: Embedder,
        cycle_seconds: float,
    ) -> None:
        self.name = name
        self.cycle_seconds = cycle_seconds
        self._turns = {turn.id: turn for turn in conversation.turns}
        self.found = _searching(name, bank, embedder)
        self.graph = read_graph(bank)

    def search(self, question: str, limit: int) -> list[ContextEntry]:
        """Return the best memories, each session with its date where its first line stands."""
        return self.entries(self.found(question, limit))

    def entries(self, memories: Sequence[Found]) -> list[ContextEntry]:
        """Return ranked memories as a reader sees them; what adds nothing is left out."""
        shown = _Shown(self._turns)
        entries = (shown.entry(one) for one in memories)
        return [entry for entry in entries if entry is not None]

    def context(self, question: str, budget_tokens: int, count_tokens: Callable[[str], int]) -> str:
        """Return what a reader is given: the best memories, grouped by session."""
        rows = [self.graph.row_of[one.id] for one in self.found(question, CONTEXT_PAGES)]
        return render_context(self.graph, rows, budget_tokens, count_tokens)


class _Shown:
    """What the entries so far show."""

    def __init__(self, turns: dict[str, Turn]) -> None:
        self._turns = turns
        self._said: dict[str, str] = {}
        self._dated: set[int] = set()

    def entry(self, found: Found) -> ContextEntry | None:
        """Return what a memory adds; None where all of it is shown already."""
        quoted = self._quoted(found)
        new = [
            (turn_id, said)
            for turn_id, said in quoted
            if turn_id is None or turn_id not in self._said or not says(self._said[turn_id], said)
        ]
        if not new:
            return None
        lines = [self._line(turn_id, said) for turn_id, said in new]
        return ContextEntry("\n".join(lines), found.sources or (found.id,))

    def _quoted(self, found: Found) -> Sequence[tuple[str | None, str]]:
        if not found.sources:
            return [(found.id, self._turns[found.id].text)]
        said = {
            source: (self._turns[source].speaker, _stored(self._turns[source])) for source in found.sources
        }
        return lines_by_source(found.text, said)

    def _line(self, turn_id: str | None, said: str) -> str:
        if turn_id is None:
            return said
        turn = self._turns[turn_id]
        self._said[turn_id] = f"{self._said.get(turn_id, '')}\n{said}"
        line = f"{turn.speaker}: {said}"
        if turn.session not in self._dated:
            line = f"({_day(turn)})\n{line}"
        self._dated.add(turn.session)
        return line


@contextmanager
def bank_arm(name: str, conversation: Conversation, embedder: Embedder) -> Iterator[BankArm]:
    """Fill a bank with a conversation, let it dream where the arm says so, and remove it afterwards.

    Raises:
        ConfigError: There is no such arm.
    """
    if name not in BANK_ARMS:
        raise ConfigError(f"arm {name!r} must be one of {', '.join(BANK_ARMS)}")
    with (
        tempfile.TemporaryDirectory(prefix="dream-locomo-") as folder,
        MemoryBank.open(folder, "conversation", create=True, embedder=embedder) as bank,
    ):
        ConversationMemory(bank).add_pages(map(page_of, conversation.turns))
        seconds = 0.0
        if name in DREAMS:
            started = time.perf_counter()
            DREAMS[name](bank)
            seconds = time.perf_counter() - started
        yield BankArm(name, conversation, bank, embedder, seconds)


def _searching(name: str, bank: MemoryBank, embedder: Embedder) -> Search:
    if name == "dream-hybrid":
        hybrid = BankRetriever(bank, RetrievalConfig(search_type="hybrid"), track_access=False)
        return lambda question, limit: _found(hybrid.search(question, k=limit))
    if name == "context-stemmed":
        return _stemmed(bank, embedder)
    # an undreamed memory knows nothing of who is asked about: that is an association too
    config = AssociativeConfig(speaker_bonus=0.0) if name == "context" else AssociativeConfig()
    retriever = AssociativeRetriever(bank, config, track_access=False)
    return lambda question, limit: _found(retriever.search(question, k=limit))


def _stemmed(bank: MemoryBank, embedder: Embedder) -> Search:
    """Search with what needs no dream: stems of the turns around a page, and who is asked about."""
    graph = read_graph(bank)
    index = AssociationIndex(graph, scene_keys(graph, range(len(graph)), 1), AssociativeConfig())

    def search(question: str, limit: int) -> list[Found]:
        score, _ = index.score(question, np.asarray(embedder.embed_query(question), np.float32))
        best = np.argsort(-score, kind="stable")[:limit].tolist()
        return [Found(graph.ids[row], graph.texts[row], ()) for row in best]

    return search


def _found(hits: Sequence[Hit]) -> list[Found]:
    return [Found(hit.id, hit.text, sources_of(hit.metadata) if is_derived(hit.id) else ()) for hit in hits]


def page_of(turn: Turn) -> Page:
    """Return a turn as a page."""
    return Page(
        text=_stored(turn),
        session=str(turn.session),
        speaker=turn.speaker,
        time=_moment(turn),
        id=turn.id,
    )


def _stored(turn: Turn) -> str:
    return turn.text if turn.text.strip() else WITHOUT_WORDS


def _moment(turn: Turn) -> datetime | None:
    try:
        return datetime.strptime(_CLOCK.sub("", turn.date), _DATE).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _day(turn: Turn) -> str:
    return _CLOCK.sub("", turn.date).replace(",", "") or "no date"
