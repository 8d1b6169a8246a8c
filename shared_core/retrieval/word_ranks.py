"""Places in a word ranking, of a few memories, without putting all of them in order.

Score descending, then a given order ascending; what shares no word with the query has no place.

Knows neither words nor ids. Source: none, ours [O].
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from shared_core.types import Array, FloatArray

_LOW = np.uint64(32)
_ALL = np.uint32(2**32 - 1)


class WordRanks:
    """The word ranking of one query.

    Args:
        scores: By row, shape (n,), float32; 0 where there is no word in common.
        order: Distinct numbers by row, shape (n,), in [0, 2**32): the smaller goes first among equals.
    """

    def __init__(self, scores: FloatArray, order: Array) -> None:
        self.rows: Array = np.flatnonzero(scores)
        """Rows that have a place."""
        self._scores = scores
        self._order = order

    def best(self, n: int) -> Array:
        """Return the first ``n`` rows, in ascending row."""
        if n >= len(self.rows):
            return self.rows
        first: Array = self.rows[self._key(self.rows) <= self._sorted[n - 1]]
        return first

    def rank(self, rows: Array) -> Array:
        """Return the place of some rows, from 1, and 0 for those that have none."""
        place = np.searchsorted(self._sorted, self._key(rows)) + 1
        ranks: Array = np.where(self._scores[rows] > 0, place, 0)
        return ranks

    @cached_property
    def _sorted(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return np.sort(self._key(self.rows))

    def _key(self, rows: Array) -> np.ndarray[Any, np.dtype[np.uint64]]:
        # the bits of positive numbers are in the order of the numbers: one sort of integers settles ties too
        falling = (_ALL - np.ascontiguousarray(self._scores[rows], np.float32).view(np.uint32)).astype(
            np.uint64
        )
        key: np.ndarray[Any, np.dtype[np.uint64]] = (falling << _LOW) | self._order[rows].astype(np.uint64)
        return key
