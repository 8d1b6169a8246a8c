"""Dense candidates of a bank: the collection's own index, or a scan of every embedding.

The index is asked first. It cannot serve embeddings that are not of unit norm in an l2 or ip collection
(its order is not that of cosines: these are scanned in memory), and in an embedded collection it knows
nothing of what another process wrote since this one opened it (that is scanned beside it). Knows nothing
of weights.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core.errors import DimensionMismatchError, StaleIndexError
from shared_core.retrieval.vectors import ResidentVectors, merge, unit_rows

if TYPE_CHECKING:
    from shared_core.bank import CollectionChange, MemoryBank
    from shared_core.config import SearchBackend
    from shared_core.types import FloatArray, Where

NORM_TOLERANCE = 1e-4
STALE_TOLERANCE = 1e-3
"""Distance between two unit vectors from which one is a rewriting of the other, and not its rounding."""


class DenseSearch:
    """Nearest memories by cosine, under a Chroma filter; call ``survey`` once before the first search.

    Args:
        bank: The bank.
        backend: ``index``, ``scan``, or ``auto``: the index wherever its order is that of cosines.
    """

    def __init__(self, bank: MemoryBank, backend: SearchBackend) -> None:
        self._content = bank.content
        self._scanning = backend == "scan"
        self._norms_matter = backend == "auto" and bank.content.space != "cosine"
        self._may_be_stale = bank.content.database_file() is not None
        self._lock = threading.Lock()
        self._resident: ResidentVectors | None = None
        self._beside_index = ResidentVectors()

    def survey(self, ids: Collection[str], *, rewritten: bool = False) -> None:
        """Find out what the index cannot serve, and hold that in memory.

        Args:
            ids: All ids of the bank.
            rewritten: Look for embeddings that another process rewrote, too; reads every embedding.
        """
        with self._lock:
            self._resident = None
            self._beside_index = ResidentVectors()
            if self._scanning or not ids:
                return
            if self._norms_matter:
                resident, unit = self._load()
                if not unit:
                    self._scanning, self._resident = True, resident
                    return
            if self._may_be_stale:
                if rewritten:
                    self._beside_index.add(self._rewritten())
                elif missing := self._not_indexed(ids):
                    self._beside_index.add(self._content.get_embeddings(missing))

    def update(self, change: CollectionChange) -> None:
        """Take up what was added to and removed from the collection."""
        with self._lock:
            added = self._content.get_embeddings(change.added)
            if self._norms_matter and added and not _unit(np.stack(list(added.values()))):
                self._scanning = True
            if self._resident is not None:
                self._resident.remove(change.removed)
                self._resident.add(added)
            if self._may_be_stale:
                self._beside_index.remove(change.removed)
                self._beside_index.add(added)

    def search(
        self, query: FloatArray, n: int, where: Where | None, where_document: Where | None
    ) -> tuple[list[str], FloatArray]:
        """Return at most ``n`` ids and their cosines, best first; fewer when there are no more.

        Raises:
            DimensionMismatchError: The query's dimension is not the collection's.
        """
        if self._scanning:
            return self.scan(query, n, where, where_document)
        try:
            found = self._content.neighbours(query, n, where, where_document)
        except StaleIndexError:
            # the filter lets through what the index does not know
            return self.scan(query, n, where, where_document)
        if self._norms_matter and not found.unit:
            self._scanning = True
            return self.scan(query, n, where, where_document)
        order = np.argsort(-found.similarity, kind="stable")
        indexed = [found.ids[row] for row in order], found.similarity[order]
        beside = self._beside_index
        if not len(beside):
            return indexed
        allowed = self._allowed(where, where_document, beside.ids)
        return merge(indexed, beside.nearest(query, n, allowed), n)

    def embeddings(self, ids: Sequence[str]) -> dict[str, FloatArray]:
        """Return the embeddings, each of shape (d,), of those ids that are in the bank."""
        beside = self._beside_index.take(ids)
        found = self._content.get_embeddings([i for i in ids if i not in beside])
        return {**found, **beside}

    def scan(
        self, query: FloatArray, n: int, where: Where | None, where_document: Where | None
    ) -> tuple[list[str], FloatArray]:
        """``search`` without the index: exact over every embedding of the bank."""
        with self._lock:
            if self._resident is None:
                self._resident, _ = self._load()
            resident = self._resident
        if len(resident) and resident.dimension != len(query):
            raise DimensionMismatchError(
                f"a query of dimension {len(query)} does not fit collection {self._content.name!r} of "
                f"dimension {resident.dimension}: use the embedder it was filled with"
            )
        return resident.nearest(query, n, self._allowed(where, where_document))

    # ---- inner

    def _load(self) -> tuple[ResidentVectors, bool]:
        ids, matrix = self._content.embeddings()
        resident = ResidentVectors()
        resident.load(ids, matrix)
        return resident, _unit(matrix)

    def _not_indexed(self, ids: Collection[str]) -> list[str]:
        indexed = set(self._content.indexed()[0])
        return [memory_id for memory_id in ids if memory_id not in indexed]

    def _rewritten(self) -> dict[str, FloatArray]:
        """Return the embeddings that the index lacks or holds in an older version."""
        with self._content.anew() as content:
            ids, matrix = content.embeddings()
        indexed, held = self._content.indexed(embeddings=True)
        row_of = {memory_id: row for row, memory_id in enumerate(indexed)}
        known = np.array([row_of.get(memory_id, -1) for memory_id in ids])
        # a last row of zeros stands for what the index lacks
        shown = np.zeros((len(indexed) + 1, matrix.shape[1]), np.float32)
        shown[:-1] = held.reshape(-1, matrix.shape[1])
        apart = np.linalg.norm(unit_rows(shown[known]) - unit_rows(matrix), axis=1)
        return {ids[row]: matrix[row] for row in np.flatnonzero((apart > STALE_TOLERANCE) | (known < 0))}

    def _allowed(
        self, where: Where | None, where_document: Where | None, among: list[str] | None = None
    ) -> Collection[str] | None:
        if not where and not where_document:
            return None
        return self._content.matching(where, where_document, among)


def _unit(matrix: FloatArray) -> bool:
    return bool(np.all(np.abs(np.linalg.norm(matrix, axis=1) - 1.0) < NORM_TOLERANCE))
