"""Unit embeddings held in memory, searched by an exact scan.

Holds a whole bank (``backend="scan"``), or just what a stale index of another process does not know yet.
Knows neither weights nor stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from shared_core.types import FloatArray


class ResidentVectors:
    """Ids with unit vectors, float32; a memory whose embedding is zero has similarity 0 to everything."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._matrix: FloatArray = np.empty((0, 0), np.float32)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return int(self._matrix.shape[1])

    def add(self, vectors: Mapping[str, FloatArray]) -> None:
        """Add vectors of shape (d,), or replace those of ids that are there."""
        if not vectors:
            return
        self.remove(vectors.keys())
        block = _unit_rows(np.asarray(list(vectors.values()), np.float32))
        self._matrix = np.concatenate([self._matrix, block]) if len(self.ids) else block
        self.ids = [*self.ids, *vectors]

    def load(self, ids: list[str], matrix: FloatArray) -> None:
        """Replace everything; ``matrix`` has shape (len(ids), d)."""
        self.ids, self._matrix = list(ids), _unit_rows(np.asarray(matrix, np.float32))

    def remove(self, ids: Collection[str]) -> None:
        """Drop ids; those that are not there are passed over."""
        gone = set(ids)
        kept = [row for row, memory_id in enumerate(self.ids) if memory_id not in gone]
        if len(kept) < len(self.ids):
            self._matrix = self._matrix[kept]
            self.ids = [self.ids[row] for row in kept]

    def nearest(
        self, query: FloatArray, n: int, allowed: Collection[str] | None = None
    ) -> tuple[list[str], FloatArray]:
        """Return the ``n`` most similar ids, best first, and their cosines, shape (m,).

        Args:
            query: Shape (d,), any norm.
            n: How many at most.
            allowed: Only these ids.
        """
        ids, matrix = self.ids, self._matrix
        if not ids:
            return [], np.empty(0)
        norm = float(np.linalg.norm(query))
        unit = (query / norm if norm > 0 else query).astype(np.float32)
        similarity = matrix @ unit
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


def _unit_rows(matrix: FloatArray) -> FloatArray:
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit: FloatArray = np.divide(matrix, norms, out=np.zeros_like(matrix), where=norms > 0)
    return unit
