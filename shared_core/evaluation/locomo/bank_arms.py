"""LoCoMo arms over a real memory bank: our retrieval without a dream, and after one.

Each conversation is written page by page into an embedded collection of its own. What a reader would see is a
page's line, and the session's date once, before its first line.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from shared_core.agents import associate
from shared_core.bank import MemoryBank
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.config import AssociativeConfig
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo.arms import ContextEntry
from shared_core.evaluation.locomo.loader import Conversation, Turn
from shared_core.retrieval.associative import AssociativeRetriever
from shared_core.types import Embedder

BANK_ARMS = ("context", "dream", "dream-no-decay")
WITHOUT_WORDS = "(a picture)"
"""Stored for a turn without text: a memory cannot be empty."""
_CLOCK = re.compile(r"^.*?\bon\s+")
_DATE = "%d %B, %Y"


class BankArm:
    """A bank that holds one conversation, searched by associations."""

    def __init__(self, name: str, conversation: Conversation, bank: MemoryBank, cycle_seconds: float) -> None:
        self.name = name
        self.cycle_seconds = cycle_seconds
        self._turns = {turn.id: turn for turn in conversation.turns}
        # an undreamed memory knows nothing of who is asked about: that is an association too
        config = AssociativeConfig(speaker_bonus=0.0) if name == "context" else AssociativeConfig()
        self._retriever = AssociativeRetriever(bank, config, track_access=False)

    def search(self, question: str, limit: int) -> list[ContextEntry]:
        """Return the best turns, each with its session's date where it is the first of its session."""
        dated: set[int] = set()
        entries = []
        for hit in self._retriever.search(question, k=limit):
            turn = self._turns[hit.id]
            line = f"{turn.speaker}: {turn.text}"
            if turn.session not in dated:
                line = f"({_day(turn)})\n{line}"
            dated.add(turn.session)
            entries.append(ContextEntry(line, (turn.id,)))
        return entries


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
        ConversationMemory(bank).add_pages(map(_page, conversation.turns))
        seconds = 0.0
        if name == "dream":
            seconds = associate(bank).seconds
        elif name == "dream-no-decay":
            seconds = associate(bank, decay=0.0).seconds
        yield BankArm(name, conversation, bank, seconds)


def _page(turn: Turn) -> Page:
    return Page(
        text=turn.text if turn.text.strip() else WITHOUT_WORDS,
        session=str(turn.session),
        speaker=turn.speaker,
        time=_moment(turn),
        id=turn.id,
    )


def _moment(turn: Turn) -> datetime | None:
    try:
        return datetime.strptime(_CLOCK.sub("", turn.date), _DATE).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _day(turn: Turn) -> str:
    return _CLOCK.sub("", turn.date).replace(",", "") or "no date"
