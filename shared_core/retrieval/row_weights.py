"""The effective weight of every memory of a scan as one array, kept in step with the bank's state.

Finds the place of each memory once, so that a new version of the weights costs a few operations on arrays.

Source: none, ours [O].
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.derived import is_derived

if TYPE_CHECKING:
    from shared_core.bank.columns import Columns
    from shared_core.types import Array, FloatArray


class RowWeights:
    """Weights by row; safe for threads.

    Args:
        row_of: Row of each id, from 0 to n - 1.
    """

    def __init__(self, row_of: Mapping[str, int]) -> None:
        self._row_of = row_of
        self._lock = threading.Lock()
        self._derived = np.array([row for i, row in row_of.items() if is_derived(i)], np.intp)
        self._rows: dict[str, int] = {}
        self._known = 0
        self._place: Array = np.full(len(row_of), -1, np.int64)
        self._held: tuple[Columns, FloatArray] | None = None

    def of(self, columns: Columns) -> FloatArray:
        """Return the effective weights, shape (n,), not to be changed; as ``Columns.effective_weights``."""
        with self._lock:
            if self._held is None or self._held[0] is not columns:
                self._held = columns, self._gathered(columns)
            return self._held[1]

    def _gathered(self, columns: Columns) -> FloatArray:
        size = len(columns)
        if columns.rows is not self._rows:
            self._rows, self._known = columns.rows, 0
            self._place.fill(-1)
        if size > self._known:
            # a copy at once: other threads may let the shared dict grow meanwhile
            for place, memory_id in enumerate(list(columns.rows)[self._known : size], self._known):
                if (row := self._row_of.get(memory_id)) is not None:
                    self._place[row] = place
            self._known = size
        # an earlier snapshot knows less than what was placed since
        here = np.flatnonzero((self._place >= 0) & (self._place < size))
        placed = self._place[here]
        weights = np.full(len(self._place), columns.unseen_weight)
        weights[self._derived] = 0.0
        weights[here] = columns.values["weight"][placed] * (columns.values["deleted"][placed] == 0.0)
        return weights
