"""Unit embeddings held in memory, searched by an exact scan.

Holds a whole bank (``backend="scan"``), or just what a stale index of another process does not know yet.
Knows neither weights nor stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from shared_core.dynamics.geometry import unit_rows
from shared_core.types import FloatArray


class ResidentVectors:
    """Ids with unit vectors, float32; a memory whose embedding is zero has similarity 0 to everything.

    One thread may write while others search: a search sees the ids and rows of one instant.
    """

    def __init__(self) -> None:
        self._held: tuple[list[str], FloatArray] = ([], np.empty((0, 0), np.float32))

    def __len__(self) -> int:
        return len(self._held[0])

    @property
    def ids(self) -> list[str]:
        """The ids, in the order of insertion."""
        return self._held[0]

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return int(self._held[1].shape[1])

    def add(self, vectors: Mapping[str, FloatArray]) -> None:
        """Add vectors of shape (d,), or replace those of ids that are there."""
        if not vectors:
            return
        self.remove(vectors.keys())
        ids, matrix = self._held
        block = unit_rows(np.asarray(list(vectors.values()), np.float32))
        self._held = [*ids, *vectors], np.concatenate([matrix, block]) if ids else block

    def load(self, ids: Sequence[str], matrix: FloatArray) -> None:
        """Replace everything; ``matrix`` has shape (len(ids), d)."""
        self._held = list(ids), unit_rows(np.asarray(matrix, np.float32))

    def remove(self, ids: Collection[str]) -> None:
        """Drop ids; those that are not there are passed over."""
        gone = set(ids)
        held, matrix = self._held
        kept = [row for row, memory_id in enumerate(held) if memory_id not in gone]
        if len(kept) < len(held):
            self._held = [held[row] for row in kept], matrix[kept]

    def take(self, ids: Iterable[str]) -> dict[str, FloatArray]:
        """Return the unit vectors of those ids that are there."""
        held, matrix = self._held
        row_of = {memory_id: row for row, memory_id in enumerate(held)}
        return {memory_id: matrix[row_of[memory_id]] for memory_id in ids if memory_id in row_of}

    def nearest(
        self, query: FloatArray, n: int, allowed: Collection[str] | None = None
    ) -> tuple[list[str], FloatArray]:
        """Return the ``n`` most similar ids, best first, and their cosines, shape (m,).

        Args:
            query: Shape (d,), any norm.
            n: How many at most.
            allowed: Only these ids.
        """
        ids, matrix = self._held
        if not ids:
            return [], np.empty(0)
        similarity = matrix @ unit_rows(query[None].astype(np.float32))[0]
        rows = np.arange(len(ids)) if allowed is None else _rows(ids, allowed)
        if n < len(rows):
            rows = rows[np.argpartition(-similarity[rows], n - 1)[:n]]
        rows = rows[np.lexsort((rows, -similarity[rows]))]
        return [ids[row] for row in rows], similarity[rows].astype(float)


def merge(
    one: tuple[list[str], FloatArray], other: tuple[list[str], FloatArray], n: int
) -> tuple[list[str], FloatArray]:
    """Return the ``n`` best of two lists of (ids, similarities); ``other`` wins where both have an id."""
    if not other[0]:
        return one[0][:n], one[1][:n]
    found = dict(zip(one[0], one[1].tolist(), strict=True))
    found.update(zip(other[0], other[1].tolist(), strict=True))
    best = sorted(found.items(), key=lambda item: -item[1])[:n]
    return [memory_id for memory_id, _ in best], np.array([similarity for _, similarity in best])


def _rows(ids: Iterable[str], allowed: Collection[str]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    wanted = set(allowed)
    return np.array([row for row, memory_id in enumerate(ids) if memory_id in wanted], np.intp)
