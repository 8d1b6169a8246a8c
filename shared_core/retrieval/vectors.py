"""Unit embeddings held in memory, searched by an exact scan, weighted or not.

Holds a whole bank (``backend="scan"``), or just what a stale index of another process does not know yet.
Knows no stores.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.geometry import unit_rows
from shared_core.retrieval.bounded import bounded_top_k
from shared_core.retrieval.integer_scan import ROUNDING, IntegerRows
from shared_core.retrieval.row_weights import RowWeights
from shared_core.retrieval.topk import Candidates
from shared_core.types import Array, FloatArray

if TYPE_CHECKING:
    from shared_core.bank.columns import Columns

Rows = np.ndarray[tuple[int], np.dtype[np.intp]]

LEAST_COPIED = 2_000
"""Fewer rows are compared as fast as they are."""
SCANS_BEFORE_COPY = 16
"""A copy takes about as long as so many scans without one."""
_EXACT_ROWS = 4_096


class _Held:
    """Ids and rows of one instant, and what was derived from them."""

    def __init__(self, ids: list[str], matrix: FloatArray, integers: IntegerRows | None = None) -> None:
        self.ids = ids
        self.matrix = matrix
        self.integers = integers or IntegerRows()
        """Of the first rows; the others are scanned as they are."""
        self.scans = 0

    @cached_property
    def row_of(self) -> dict[str, int]:
        return dict(zip(self.ids, range(len(self.ids)), strict=True))

    @cached_property
    def weights(self) -> RowWeights:
        return RowWeights(self.row_of)

    def cosines(self, query: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return cosines to a unit vector and how far each may be off, (n,) each."""
        integers = self.integers
        rest = self.matrix[len(integers) :] @ query.astype(np.float32)
        off = np.full(len(rest), np.float32(ROUNDING))
        if not len(integers):
            return rest, off
        near, error = integers.cosines(query)
        if not len(rest):
            return near, error
        return np.concatenate([near, rest]), np.concatenate([error, off])

    def exact(self, query: FloatArray, rows: Array) -> FloatArray:
        """Return the cosines of some rows to a unit vector, float64; the same for equal rows."""
        blocks = [rows[at : at + _EXACT_ROWS] for at in range(0, len(rows), _EXACT_ROWS)]
        # not by BLAS, which may round a row otherwise where it stands elsewhere
        return np.concatenate([(self.matrix[block] * query).sum(axis=1) for block in blocks] or [np.empty(0)])


class ResidentVectors:
    """Ids with unit vectors, float32; a memory whose embedding is zero has similarity 0 to everything.

    One thread may write while others search: a search sees the ids and rows of one instant. What is scanned
    often is scanned in a copy of 8-bit integers, with the same result.
    """

    def __init__(self) -> None:
        self._held = _Held([], np.empty((0, 0), np.float32))
        self._copying = threading.Lock()
        self._scanning = threading.Lock()

    def __len__(self) -> int:
        return len(self._held.ids)

    @property
    def ids(self) -> list[str]:
        """The ids, in the order of insertion."""
        return self._held.ids

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return int(self._held.matrix.shape[1])

    def add(self, vectors: Mapping[str, FloatArray]) -> None:
        """Add vectors of shape (d,), or replace those of ids that are there."""
        if not vectors:
            return
        self.remove(vectors.keys())
        held = self._held
        block = unit_rows(np.asarray(list(vectors.values()), np.float32))
        matrix = np.concatenate([held.matrix, block]) if held.ids else block
        self._held = _Held([*held.ids, *vectors], matrix, held.integers)

    def load(self, ids: Sequence[str], matrix: FloatArray) -> None:
        """Replace everything; ``matrix`` has shape (len(ids), d)."""
        self.load_unit(ids, unit_rows(np.asarray(matrix, np.float32)))

    def load_unit(self, ids: Sequence[str], matrix: FloatArray) -> None:
        """``load`` of rows that have unit norm, or are zero, already; they are not copied."""
        self._held = _Held(list(ids), matrix)

    @property
    def matrix(self) -> FloatArray:
        """The unit vectors, in the order of ``ids``, shape (len(self), d); not to be changed."""
        return self._held.matrix

    def remove(self, ids: Collection[str]) -> None:
        """Drop ids; those that are not there are passed over."""
        held = self._held
        gone = {row for memory_id in ids if (row := held.row_of.get(memory_id)) is not None}
        if gone:
            kept = [row for row in range(len(held.ids)) if row not in gone]
            self._held = _Held([held.ids[row] for row in kept], held.matrix[kept])

    def take(self, ids: Iterable[str]) -> dict[str, FloatArray]:
        """Return the unit vectors of those ids that are there."""
        held = self._held
        return {i: held.matrix[row] for i in ids if (row := held.row_of.get(i)) is not None}

    def scan(self, query: FloatArray, allowed: Collection[str] | None = None) -> Scan:
        """Compare a query of shape (d,), any norm, with every vector, or only with those of ``allowed``."""
        held = self._held
        if not held.ids:
            return Scan([], np.empty(0, np.float32))
        similarity = held.matrix @ unit_rows(query[None].astype(np.float32))[0]
        return Scan(held.ids, similarity, None if allowed is None else _rows(held, allowed))

    def best(
        self,
        query: FloatArray,
        columns: Columns,
        k: int,
        *,
        allowed: Collection[str] | None = None,
        gone: Collection[str] = (),
        min_weight: float = 0.0,
        threshold: float | None = None,
    ) -> Candidates:
        """Return the exact weighted top-K of all vectors, in the order of ``topk``.

        Args:
            query: Shape (d,), any norm.
            columns: The weights.
            k: How many memories at most.
            allowed: Only these count; None for all.
            gone: These do not.
            min_weight: Smallest weight that is returned.
            threshold: Smallest score that is returned.
        """
        held = self._prepared()
        weight = held.weights.of(columns)
        if allowed is not None:
            only, rows = np.zeros_like(weight), _rows(held, allowed)
            only[rows] = weight[rows]
            weight = only
        if gone:
            weight = weight.copy()
            weight[_rows(held, gone)] = 0.0
        if not held.ids:
            return Candidates([], np.empty(0), np.empty(0), np.empty(0), 0, 0)
        unit = unit_rows(query[None].astype(np.float64))[0]
        # threads that all move whole arrays hand the interpreter to and fro, and are slower than one by one
        with self._scanning:
            near, error = held.cosines(unit)
            found = bounded_top_k(
                near,
                error,
                weight,
                lambda rows: held.exact(unit, rows),
                k,
                min_weight=min_weight,
                threshold=threshold,
            )
        keys = [held.ids[row] for row in found.rows.tolist()]
        return Candidates(keys, found.similarity, found.weight, found.score, found.compared, 1)

    def nearest(
        self, query: FloatArray, n: int, allowed: Collection[str] | None = None
    ) -> tuple[list[str], FloatArray]:
        """``scan`` and its ``nearest`` in one."""
        return self.scan(query, allowed).nearest(n)

    def prepare(self) -> None:
        """Copy to integers now what would be copied after some scans."""
        self._copy(self._held)

    def _prepared(self) -> _Held:
        """Return what is held, with a copy of integers where it is scanned often enough to pay for one."""
        held = self._held
        if len(held.ids) - len(held.integers) >= LEAST_COPIED:
            held.scans += 1
            if held.scans >= SCANS_BEFORE_COPY:
                self._copy(held)
        return held

    def _copy(self, held: _Held) -> None:
        # whoever comes while another copies scans what there is
        if self._copying.acquire(blocking=False):
            try:
                if len(held.ids) - len(held.integers) >= LEAST_COPIED:
                    held.integers = held.integers.extended(held.matrix[len(held.integers) :])
            finally:
                self._copying.release()


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


def _rows(held: _Held, wanted: Iterable[str]) -> Rows:
    """Return the rows of those ids that are there, ascending."""
    rows = {row for memory_id in wanted if (row := held.row_of.get(memory_id)) is not None}
    return np.array(sorted(rows), np.intp)
