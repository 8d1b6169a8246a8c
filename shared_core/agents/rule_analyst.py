"""An analyst without a language model: what stands where the wanted memories should.

Source: MemDream section 3.2: node or nodes, recall or precision [S]; the tests of each cell are ours [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared_core.agents.protocol import Category, Diagnosis, Probe, Retrieval
from shared_core.agents.weakness import is_usable
from shared_core.language import content_words, extract_entities, split_sentences
from shared_core.language.pages import line_of

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.types import BoolArray

SAME_MEANING, SAME_WORDS = 0.9, 0.6
"""Cosine and Jaccard overlap of content words from which two memories say the same [O]."""
_FILLER = (
    "hi hello hey bye goodbye thanks thank welcome okay ok yes yeah sure great nice cool wow awesome good "
    "glad morning evening night day soon later talk chat see take care absolutely "
    "sounds really well fine"
)
FILLER_WORDS = frozenset(_FILLER.split())


class RuleAnalyst:
    """Satisfies ``Analyst``."""

    def diagnose(self, graph: MemoryGraph, failures: Sequence[tuple[Probe, Retrieval]]) -> list[Diagnosis]:
        """Return one diagnosis at most per failure; those that cost most F1 first."""
        order = sorted(range(len(failures)), key=lambda at: (failures[at][1].f1, at))
        allowed = is_usable(graph)
        found = (_diagnose(graph, *failures[at], allowed) for at in order)
        return [diagnosis for diagnosis in found if diagnosis is not None]


def is_filler(text: str, speaker: str | None) -> bool:
    """Tell whether a memory says nothing: only greetings and thanks, no name, number or date."""
    _, said = line_of(text, speaker)
    if set(content_words(said)) - FILLER_WORDS:
        return False
    return not any(entity.kind != "concept" for entity in extract_entities(said))


def same_content(graph: MemoryGraph, one: int, other: int) -> bool:
    """Tell whether two memories overlap so far that one text can stand for both."""
    if float(graph.unit[one] @ graph.unit[other]) < SAME_MEANING:
        return False
    a, b = (set(content_words(line_of(graph.texts[r], graph.speakers[r])[1])) for r in (one, other))
    return bool(a | b) and len(a & b) >= SAME_WORDS * len(a | b)


def _diagnose(graph: MemoryGraph, probe: Probe, outcome: Retrieval, allowed: BoolArray) -> Diagnosis | None:
    wanted = [graph.row_of[memory_id] for memory_id in probe.targets if memory_id in graph.row_of]
    found = [graph.row_of[memory_id] for memory_id in outcome.ids if memory_id in graph.row_of]
    above = [row for row in found if row not in wanted and allowed[row]]
    filler = [row for row in above if is_filler(graph.texts[row], graph.speakers[row])]

    def made(category: Category, rows: Sequence[int], confidence: float, why: str) -> Diagnosis:
        targets = tuple(graph.ids[row] for row in rows)
        return Diagnosis(
            probe=probe, category=category, targets=targets, confidence=confidence, rationale=why
        )

    if filler:
        return made("noisy", filler, 0.9, f"{_counted(len(filler), 'says', 'say')} nothing")
    for row in wanted:
        twins = [other for other in above if same_content(graph, row, other)]
        if twins:
            return made(
                "redundant", [row, *twins], 0.8, f"{_counted(len(twins), 'repeats', 'repeat')} the wanted"
            )
    if len(wanted) > 1:
        return made("scattered", wanted, 1.0 - outcome.recall, "parts of the answer are not found together")
    long = len(split_sentences(graph.texts[wanted[0]])) > 2 if wanted else False
    if long:
        return made("buried", wanted, 0.6, "the answer is one sentence of a longer memory")
    return None


def _counted(count: int, one: str, more: str) -> str:
    return f"1 retrieved memory {one}" if count == 1 else f"{count} retrieved memories {more}"
