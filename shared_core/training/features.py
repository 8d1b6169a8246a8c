"""What the small policy sees of a failed probe, and which operations it may choose for it.

Reads a snapshot; decides nothing. The features name no word of any memory, so that a policy tells nobody what
a bank holds.

Source: none, ours [O]; the weakness terms are those of MemDream Eq. 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.associations import centred_rows, graded_weights
from shared_core.agents.protocol import Category, Diagnosis, Probe, Retrieval
from shared_core.agents.weakness import RELATED, usable, weakness_terms, worth_asking
from shared_core.language import content_words, split_sentences
from shared_core.language.pages import line_of

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.types import FloatArray

VERSION = 1
"""Raised whenever a feature, a choice or their order changes: a policy of another version is refused."""
SKIP = 0
CATEGORIES: tuple[Category, ...] = ("buried", "scattered", "redundant", "noisy")
CHOICES = ("skip", *CATEGORIES)
"""What a policy chooses from; each category has one operation."""
NAMES = (
    *(f"diagnosed {choice}" for choice in CHOICES),
    "f1",
    "recall",
    "confidence",
    "several wanted",
    "rank of the first wanted",
    "words of the wanted",
    "sentences of the wanted",
    "isolation of the wanted",
    "redundancy of the wanted",
    "staleness of the wanted",
    "value of the wanted",
    "weight of the wanted",
    "memories above",
    "words above",
    "value above",
    "least weight above",
    "suspicion above",
    "nearest above",
    "mean nearness above",
    "words of the query",
)
LIKE_TWINS = 0.75
"""Cosine from which a merge may be tried where the analyst saw no twins."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One failed probe, as the policy sees it."""

    probe: Probe
    features: FloatArray
    """Shape (len(NAMES),), each about in [0, 1]."""
    options: dict[int, Diagnosis]
    """What each choice but ``SKIP`` would be, by its place in ``CHOICES``; the rest cannot be chosen."""
    rule: int
    """What the inner analyst chose: ``SKIP`` where it found nothing."""

    @property
    def allowed(self) -> FloatArray:
        """(len(CHOICES),) 1 where a choice can be made."""
        found = np.zeros(len(CHOICES))
        found[[SKIP, *self.options]] = 1.0
        return found


class Scene:
    """What the features need of a graph, computed once.

    Args:
        graph: The snapshot.
    """

    def __init__(self, graph: MemoryGraph) -> None:
        self.graph = graph

    def cases(
        self, failures: Sequence[tuple[Probe, Retrieval]], diagnoses: Sequence[Diagnosis]
    ) -> list[Case]:
        """Return one case per failure, in the order of the diagnoses' analyst: those that cost most first."""
        diagnosed = {diagnosis.probe: diagnosis for diagnosis in diagnoses}
        order = sorted(range(len(failures)), key=lambda at: (failures[at][1].f1, at))
        return [self._case(*failures[at], diagnosed.get(failures[at][0])) for at in order]

    # ---- inner

    @cached_property
    def _usable(self) -> set[int]:
        return set(usable(self.graph).tolist())

    @cached_property
    def _empty(self) -> set[int]:
        """Rows that say so little that nobody asks about them."""
        return self._usable - set(worth_asking(self.graph).tolist())

    @cached_property
    def _centred(self) -> FloatArray:
        return centred_rows(self.graph.unit)

    @cached_property
    def _terms(self) -> FloatArray:
        return weakness_terms(self.graph)

    @cached_property
    def _value(self) -> FloatArray:
        return graded_weights(self.graph, 1.0)

    def _case(self, probe: Probe, outcome: Retrieval, diagnosis: Diagnosis | None) -> Case:
        rows = self.graph.row_of
        wanted = [rows[one] for one in probe.targets if one in rows]
        found = [rows[one] for one in outcome.ids if one in rows]
        above = self._above(found, wanted)
        rule = SKIP if diagnosis is None else CHOICES.index(diagnosis.category)
        options = self._options(probe, wanted, [row for row in above if row in self._usable])
        if diagnosis is not None:
            options[rule] = diagnosis
        features = np.zeros(len(NAMES))
        features[rule] = 1.0
        features[len(CHOICES) :] = [
            outcome.f1,
            outcome.recall,
            outcome.confidence,
            len(wanted) > 1,
            *self._of_wanted(wanted, found),
            *self._of_above(above, wanted),
            len(content_words(probe.query)) / 10,
        ]
        return Case(probe=probe, features=features, options=options, rule=rule)

    @staticmethod
    def _above(found: list[int], wanted: list[int]) -> list[int]:
        """Return what stands before the last wanted memory, all that was found where one is missing."""
        places = [found.index(row) for row in wanted if row in found]
        end = max(places) if len(places) == len(wanted) and places else len(found)
        return [row for row in found[:end] if row not in wanted]

    def _said(self, row: int) -> str:
        return line_of(self.graph.texts[row], self.graph.speakers[row])[1]

    def _of_wanted(self, wanted: list[int], found: list[int]) -> list[float]:
        if not wanted:
            return [0.0] * 8
        ranks = [found.index(row) for row in wanted if row in found]
        said = [self._said(row) for row in wanted]
        return [
            1.0 / (1 + min(ranks)) if ranks else 0.0,
            _log_words(said),
            float(np.mean([min(8, len(split_sentences(text))) for text in said])) / 8,
            *self._terms[wanted].mean(axis=0).tolist(),
            float(self._value[wanted].mean()),
            float(self.graph.weights[wanted].min()),
        ]

    def _of_above(self, above: list[int], wanted: list[int]) -> list[float]:
        if not above:
            return [0.0] * 7
        near = self.graph.unit[above] @ self.graph.unit[wanted].T if wanted else np.zeros((len(above), 1))
        return [
            min(1.0, len(above) / 5),
            _log_words([self._said(row) for row in above]),
            float(self._value[above].mean()),
            float(self.graph.weights[above].min()),
            float(self.graph.suspicion[above].max()),
            float(near.max()),
            float(near.mean()),
        ]

    def _options(self, probe: Probe, wanted: list[int], above: list[int]) -> dict[int, Diagnosis]:
        """Return what could be tried besides the analyst's own diagnosis; verification refuses what harms."""
        own = [row for row in wanted if row in self._usable]
        rows: dict[Category, list[int]] = {
            "noisy": [row for row in above if row in self._empty and row not in wanted]
        }
        if own:
            first = own[0]
            if len(split_sentences(self._said(first))) > 1:
                rows["buried"] = [first]
            related = [row for row in above if float(self._centred[row] @ self._centred[first]) >= RELATED]
            rows["scattered"] = own if len(own) > 1 else [first, *related[:1]]
            rows["redundant"] = [
                first,
                *(row for row in above if float(self.graph.unit[row] @ self.graph.unit[first]) >= LIKE_TWINS),
            ]
        least: dict[Category, int] = {"noisy": 1, "buried": 1, "scattered": 2, "redundant": 2}
        return {
            CHOICES.index(category): Diagnosis(
                probe=probe,
                category=category,
                targets=tuple(self.graph.ids[row] for row in found),
                confidence=0.5,
                rationale=f"the policy chose {category}",
            )
            for category, found in rows.items()
            if len(found) >= least[category]
        }


def _log_words(texts: Sequence[str]) -> float:
    """Return the mean length of texts on a scale on which about 150 words are 1."""
    return float(np.mean([np.log1p(len(text.split())) for text in texts])) / 5
