"""Many dreams in a row over one conversation: does the memory grow, invent, or forget what is rare?

Source: MemDream appendix G (cycles, node count, unsupported atoms, rare facts) [S]; rare facts as things that
one page alone names, and found by their name, are ours [O]: no reader answers here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.agents import DreamConfig, DreamCycle
from shared_core.agents.rule_consolidator import source_of
from shared_core.bank import MemoryBank
from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.derived import sources_of
from shared_core.bank.graph import MemoryGraph, read_graph
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo.bank_arms import page_of
from shared_core.language import unsupported
from shared_core.retrieval.associative import AssociativeRetriever

if TYPE_CHECKING:
    from shared_core.evaluation.locomo.loader import Conversation
    from shared_core.types import Embedder, Progress

CYCLES = (1, 2, 3, 5, 8, 12, 16, 20)
"""After which it is measured [S]."""
K = 10
UNHURRIED = 24 * 3600.0
"""Seconds: what a dream does must not depend on how busy the machine is."""


@dataclass(frozen=True, kw_only=True)
class Stability:
    """One conversation after so many cycles."""

    conversation: str
    cycles: int
    """0 is before any dream."""
    nodes: int
    """Memories, derived ones included."""
    growth: float
    """Of nodes since the first cycle, as a share; 0 before it."""
    unsupported: int
    """Names, numbers and dates in derived memories that no source of theirs holds."""
    rare_facts: int
    """Names, numbers, dates and quotes that one page alone holds, and that were found before any dream."""
    rare_retention: float
    """Share of them found now, in [0, 1]: the page is among the ten best for the fact's own words."""
    recall_10: float
    """Evidence recall of the conversation's questions, in [0, 1]."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = asdict(self)
        values["recall@10"] = values.pop("recall_10")
        return values


def measure_stability(
    conversation: Conversation,
    embedder: Embedder,
    cycles: Sequence[int] = CYCLES,
    *,
    config: DreamConfig | None = None,
    progress: Progress | None = None,
) -> list[Stability]:
    """Dream again and again over a conversation, in a bank of its own that is removed afterwards.

    Args:
        conversation: Of ``load_locomo``.
        embedder: Fills and searches the bank.
        cycles: After how many cycles to measure.
        config: Of each cycle; default: the default one, without a limit of time.
        progress: Called as ``progress("cycles", done, last)``.

    Raises:
        ConfigError: ``cycles`` names none, or a number below 1.
    """
    if not cycles or min(cycles) < 1:
        raise ConfigError(f"cycles={list(cycles)!r} must be whole numbers, 1 or more")
    config = config or DreamConfig(seconds=UNHURRIED)
    with (
        tempfile.TemporaryDirectory(prefix="dream-stability-") as folder,
        MemoryBank.open(folder, "conversation", create=True, embedder=embedder) as bank,
    ):
        ConversationMemory(bank).add_pages(map(page_of, conversation.turns))
        watch = _Watch(bank, conversation)
        found = [watch.measure(0)]
        for done in range(1, max(cycles) + 1):
            DreamCycle(bank, config=config).run()
            if done == 1 or done in cycles:
                found.append(watch.measure(done))
            if progress is not None:
                progress("cycles", done, max(cycles))
    return [one for one in found if one.cycles == 0 or one.cycles in cycles]


class _Watch:
    def __init__(self, bank: MemoryBank, conversation: Conversation) -> None:
        self._bank = bank
        self._conversation = conversation
        self._retriever = AssociativeRetriever(bank, track_access=False)
        facts = list(rare_facts(read_graph(bank)))
        self._facts = [(page, fact) for page, fact in facts if page in self._found(fact)]
        self._first = 0

    def measure(self, cycles: int) -> Stability:
        graph = read_graph(self._bank)
        if cycles == 1:
            self._first = len(graph)
        kept = [page in self._found(fact) for page, fact in self._facts]
        recalls = [
            len(self._found(question.text) & set(question.evidence)) / len(question.evidence)
            for question in self._conversation.questions
            if question.evidence
        ]
        return Stability(
            conversation=self._conversation.name,
            cycles=cycles,
            nodes=len(graph),
            growth=len(graph) / self._first - 1.0 if self._first else 0.0,
            unsupported=count_unsupported(graph),
            rare_facts=len(self._facts),
            rare_retention=float(np.mean(kept)) if kept else 1.0,
            recall_10=float(np.mean(recalls)) if recalls else 1.0,
        )

    def _found(self, query: str) -> set[str]:
        hits = self._retriever.search(query, k=K)
        return {hit.id for hit in hits} | {one for hit in hits for one in sources_of(hit.metadata)}


def rare_facts(graph: MemoryGraph) -> Iterator[tuple[str, str]]:
    """Yield the page and the words of each thing that one page alone names."""
    entities = graph.entities
    for row, memory_id in enumerate(graph.ids):
        for name in entities.of(row):
            if len(entities.holders(name)) == 1:
                yield memory_id, name


def count_unsupported(graph: MemoryGraph) -> int:
    """Return how many names, numbers and dates of derived memories stand in none of their sources."""
    return sum(
        len(unsupported(graph.texts[row], [source_of(graph, source) for source in sources]))
        for row, sources in graph.sources.items()
    )
