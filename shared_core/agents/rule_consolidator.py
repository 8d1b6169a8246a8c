"""A consolidator without a language model: derived memories quote, and nothing is lost.

Every text it writes is made of sentences of its sources, copied letter by letter, with the speaker and date
that the source has, in order of time.

Source: MemDream section 3.2, Eq. 5 [S]; quoting verbatim, and the floor of weights, are ours [O].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.protocol import Diagnosis, Probe
from shared_core.agents.weakness import LEAST_WEIGHT, is_usable, usable
from shared_core.bank.conversation import TIME
from shared_core.bank.derived import derived_id
from shared_core.bank.edges import Edge
from shared_core.bank.repairing import DerivedMemory, Repair
from shared_core.language import Source, content_words, split_sentences, unsupported
from shared_core.language.pages import line_of

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph

MOST_SOURCES = 6
"""That one derived memory quotes [O]."""
LONGEST = 20_000
"""Characters of a derived memory: no embedder reads more, and checking a megabyte takes seconds [O]."""


class RuleConsolidator:
    """Satisfies ``Consolidator``.

    Args:
        gamma: Factor of Eq. 5, and the weight that no repair goes below.
    """

    def __init__(self, gamma: float = 0.2) -> None:
        self.gamma = gamma

    def propose(self, graph: MemoryGraph, diagnosis: Diagnosis) -> Repair | None:
        """Return a repair, or None where the memories may not be quoted or it was made before."""
        allowed = is_usable(graph)
        named = [graph.row_of[name] for name in diagnosis.targets if name in graph.row_of]
        rows = [row for row in named if allowed[row]]
        rows = in_order(graph, rows)[:MOST_SOURCES]
        if diagnosis.category == "noisy":
            return self._lower(graph, rows, diagnosis)
        if len(rows) < (1 if diagnosis.category == "buried" else 2):
            return None
        text = quote(graph, rows, diagnosis.probe if diagnosis.category == "buried" else None)
        if len(text) > LONGEST or unsupported(text, [source_of(graph, row) for row in rows]):
            return None
        if _known(graph, rows, text):
            return self._lower(graph, rows, diagnosis) if diagnosis.category == "redundant" else None
        memory = DerivedMemory(
            text=text,
            sources=tuple(graph.ids[row] for row in rows),
            metadata=_when(graph, rows),
            id=derived_id(),
        )
        merged = diagnosis.category == "redundant"
        return Repair(
            operation=diagnosis.operation,
            reason=diagnosis.rationale,
            memories=(memory,),
            weights=self._lowered(graph, rows) if merged else {},
            edges=_inherited(graph, rows, memory.id) if merged else (),
            details=_details(diagnosis),
        )

    def _lower(self, graph: MemoryGraph, rows: Sequence[int], diagnosis: Diagnosis) -> Repair | None:
        rows = [row for row in rows if graph.successes[row] == 0]
        lowered = self._lowered(graph, rows)
        if not lowered:
            return None
        return Repair(
            operation=diagnosis.operation,
            reason=diagnosis.rationale,
            weights=lowered,
            details=_details(diagnosis),
        )

    def _lowered(self, graph: MemoryGraph, rows: Iterable[int]) -> dict[str, float]:
        # never below gamma: what is pruned twice would be forgotten
        return {
            graph.ids[row]: max(self.gamma, self.gamma * float(graph.weights[row]))
            for row in rows
            if graph.weights[row] > self.gamma
        }


def restoration(graph: MemoryGraph, eta: float) -> Repair | None:
    """Return Eq. 6 for memories that proved useful since they lost weight; suspects stay as they are."""
    rows = [row for row in usable(graph).tolist() if graph.weights[row] < 1.0 and graph.successes[row] > 0]
    if not rows or eta <= 0:
        return None
    weights = {
        graph.ids[row]: min(1.0, float(graph.weights[row] + eta * graph.successes[row])) for row in rows
    }
    return Repair(operation="restore", reason="useful again (Eq. 6)", weights=weights)


def in_order(graph: MemoryGraph, rows: Iterable[int]) -> list[int]:
    """Return rows in order of time; those of unknown time last, in order of insertion."""
    return sorted(dict.fromkeys(rows), key=lambda row: (np.nan_to_num(graph.time[row], nan=np.inf), row))


def source_of(graph: MemoryGraph, row: int) -> Source:
    """Return what a derived text is checked against."""
    return Source(graph.texts[row], graph.day(row), graph.speakers[row])


def quote(graph: MemoryGraph, rows: Sequence[int], probe: Probe | None = None) -> str:
    """Return one line per row with all its sentences, each sentence once; with a probe, only its answer's."""
    lines, seen = [], set()
    for row in rows:
        _, said = line_of(graph.texts[row], graph.speakers[row])
        head = graph.texts[row][: len(graph.texts[row]) - len(said)]
        kept = []
        for sentence in split_sentences(said):
            sign = " ".join(sentence.casefold().split())
            if sign in seen or (probe is not None and not _answers(sentence, probe)):
                continue
            seen.add(sign)
            kept.append(sentence)
        if kept:
            lines.append(head + " ".join(kept))
    return "\n".join(lines) or "\n".join(graph.texts[row] for row in rows)


def _answers(sentence: str, probe: Probe) -> bool:
    return probe.expected_answer in sentence or bool(
        set(content_words(sentence)) & set(content_words(probe.query))
    )


def _known(graph: MemoryGraph, rows: Sequence[int], text: str) -> bool:
    """Tell whether a derived memory says all of this already, whichever operation wrote it."""
    lines = set(text.splitlines())
    return any(
        set(rows) <= set(graph.sources[row]) and lines <= set(graph.texts[row].splitlines())
        for row in graph.quoted_by.get(rows[0], ())
        if graph.weights[row] >= LEAST_WEIGHT
    )


def _when(graph: MemoryGraph, rows: Sequence[int]) -> dict[str, str]:
    days = [day for row in rows if (day := graph.day(row)) is not None]
    return {TIME: max(days).isoformat()} if days else {}


def _inherited(graph: MemoryGraph, rows: Sequence[int], memory_id: str) -> tuple[Edge, ...]:
    others = {other for row in rows for other in graph.explicit.get(row, ())} - set(rows)
    return tuple(Edge(graph.ids[other], memory_id, "merged") for other in sorted(others))


def _details(diagnosis: Diagnosis) -> dict[str, object]:
    return {"probe": diagnosis.probe.to_dict(), "diagnosis": diagnosis.to_dict()}
