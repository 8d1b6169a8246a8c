"""Unit embeddings held in memory, searched by an exact scan.

Holds a whole bank (``backend="scan"``), or just what a stale index of another process does not know yet.
Knows neither weights nor stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from shared_core.dynamics.geometry import unit_rows
from shared_core.types import FloatArray

Rows = np.ndarray[tuple[int], np.dtype[np.intp]]


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

    def load_unit(self, ids: Sequence[str], matrix: FloatArray) -> None:
        """``load`` of rows that have unit norm, or are zero, already; they are not copied."""
        self._held = list(ids), matrix

    @property
    def matrix(self) -> FloatArray:
        """The unit vectors, in the order of ``ids``, shape (len(self), d); not to be changed."""
        return self._held[1]

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

    def scan(self, query: FloatArray, allowed: Collection[str] | None = None) -> Scan:
        """Compare a query of shape (d,), any norm, with every vector, or only with those of ``allowed``."""
        ids, matrix = self._held
        if not ids:
            return Scan([], np.empty(0, np.float32))
        similarity = matrix @ unit_rows(query[None].astype(np.float32))[0]
        return Scan(ids, similarity, None if allowed is None else _rows(ids, allowed))

    def nearest(
        self, query: FloatArray, n: int, allowed: Collection[str] | None = None
    ) -> tuple[list[str], FloatArray]:
        """``scan`` and its ``nearest`` in one."""
        return self.scan(query, allowed).nearest(n)


class Scan:
    """One query's cosine to every vector, computed once and asked at any depth.

    Args:
        ids: The ids.
        similarity: Cosine of each, shape (len(ids),), float32.
        rows: Those of them that count, ascending; None for all.
    """

    def __init__(self, ids: list[str], similarity: FloatArray, rows: Rows | None = None) -> None:
        self.ids = ids
        self.similarity = similarity
        self.rows = rows

    def __len__(self) -> int:
        return len(self.ids) if self.rows is None else len(self.rows)

    @cached_property
    def counted(self) -> FloatArray:
        """Cosine of each row that counts, shape (len(self),)."""
        return self.similarity if self.rows is None else self.similarity[self.rows]

    def best(self, n: int) -> Rows:
        """Return the ``n`` most similar rows, best first, ties by row."""
        similarity = self.counted
        if n < len(similarity):
            # all that tie with the last, so that which of them are chosen does not depend on the partition
            cut = np.partition(similarity, len(similarity) - n)[len(similarity) - n]
            near = np.flatnonzero(similarity >= cut)
        else:
            near = np.arange(len(similarity))
        near = near[np.lexsort((near, -similarity[near]))][:n]
        chosen: Rows = near if self.rows is None else self.rows[near]
        return chosen

    def nearest(self, n: int) -> tuple[list[str], FloatArray]:
        """Return the ``n`` most similar ids, best first, and their cosines, shape (m,), float64."""
        rows = self.best(n)
        return [self.ids[row] for row in rows.tolist()], self.similarity[rows].astype(float)


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


def _rows(ids: Iterable[str], allowed: Collection[str]) -> Rows:
    wanted = set(allowed)
    return np.array([row for row, memory_id in enumerate(ids) if memory_id in wanted], np.intp)
