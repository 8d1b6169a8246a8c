"""Which memories of a large bank a page shows, and how much of their texts.

Knows ids, columns and texts; knows no bank, no journal, no page. Source: none, ours [O].
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.derived import SUSPECT, is_derived
from shared_core.bank.status import FORGOTTEN, WEAKENED
from shared_core.reporting.data import ShownText, Standing

if TYPE_CHECKING:
    from shared_core.types import BoolArray, FloatArray

SHORTER = (1000, 500, 250, 120, 60)
"""Characters of a text, where all texts together are too many."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Population:
    """The state of N memories, softly deleted ones included, in order of insertion."""

    ids: list[str]
    weight: FloatArray
    suspicion: FloatArray
    deleted: BoolArray
    waiting: BoolArray
    """In quarantine."""

    @property
    def suspect(self) -> BoolArray:
        """(N,) w < 0.5 or s >= 0.5: a sweep, a repair or somebody has lowered it so far.

        What is softly deleted, or waits for its first sweep, is none.
        """
        doubted = (self.weight < WEAKENED) | (self.suspicion >= SUSPECT)
        found: BoolArray = doubted & ~self.deleted & ~self.waiting
        return found

    def standing(self, row: int) -> Standing:
        """Return in which band a memory is."""
        weight = float(self.weight[row])
        if self.deleted[row]:
            return "deleted"
        if weight < FORGOTTEN:
            return "forgotten"
        if weight < WEAKENED:
            return "weakened"
        return "reduced" if weight < 1.0 else "full"

    def by_weight(self, rows: Collection[int]) -> list[int]:
        """Return rows, lowest weight first, then highest suspicion."""
        return sorted(rows, key=lambda row: (self.weight[row], -self.suspicion[row], row))


def choose(population: Population, linked: Collection[str], limit: int) -> list[int]:
    """Return the rows that are shown, the most telling first.

    Args:
        population: All memories.
        linked: Ids that the shown repairs quote, write or reweight.
        limit: Most rows.
    """
    rows = range(len(population.ids))
    suspects = np.flatnonzero(population.suspect).tolist()
    lowered = np.flatnonzero((population.weight < 1.0) & ~population.deleted).tolist()
    chosen = dict.fromkeys(population.by_weight(suspects))
    for more in (
        (row for row in rows if population.ids[row] in linked),
        (row for row in rows if is_derived(population.ids[row])),
        (row for row in rows if population.deleted[row]),
        population.by_weight(lowered),
        reversed(rows),
    ):
        for row in more:
            if len(chosen) >= limit:
                return list(chosen)[:limit]
            chosen.setdefault(row)
    return list(chosen)[:limit]


def shortened(text: str, limit: int) -> str:
    """Return a text, or its beginning with an ellipsis, in at most so many characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def shown(text: str, limit: int) -> ShownText:
    """Return a text, or its beginning."""
    return ShownText(text=text[:limit], length=len(text))


def length_that_fits(texts: Sequence[str], each: int, total: int) -> int:
    """Return how much of every text is shown, so that all of them fit.

    Args:
        texts: All texts.
        each: Most characters of one.
        total: Most characters of all together; the shortest of ``SHORTER`` is given where even it is more.
    """
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    for limit in (each, *(one for one in SHORTER if one < each)):
        if int(np.minimum(lengths, limit).sum()) <= total:
            break
    return limit
