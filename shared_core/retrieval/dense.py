"""Dense candidates of a bank: the collection's own index, or a scan of every embedding.

The index is asked first. It cannot serve embeddings that are not of unit norm in an l2 or ip collection
(its order is not that of cosines), and in an embedded collection it does not see what another process
added: those are scanned in memory here, beside it. Knows nothing of weights.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from shared_core.errors import DimensionMismatchError
from shared_core.retrieval.vectors import ResidentVectors, merge

if TYPE_CHECKING:
    from shared_core.bank import CollectionChange, MemoryBank
    from shared_core.config import SearchBackend
    from shared_core.types import FloatArray, Where


class DenseSearch:
    """Nearest memories by cosine, under a Chroma filter.

    Args:
        bank: The bank.
        backend: ``index``, ``scan``, or ``auto``: the index wherever its order is that of cosines.
    """

    def __init__(self, bank: MemoryBank, backend: SearchBackend) -> None:
        self._content = bank.content
        self._scanning = backend == "scan"
        self._may_scan = backend == "auto"
        self._lock = threading.Lock()
        self._resident: ResidentVectors | None = None
        self._beside_index = ResidentVectors()

    def update(self, change: CollectionChange) -> None:
        """Take up what was added to and removed from the collection."""
        with self._lock:
            held = self._resident if self._resident is not None else self._beside_index
            held.remove(change.removed)
            held.add(self._content.get_embeddings(change.added))

    def reload(self) -> None:
        """Forget every embedding held in memory; the next search reads them anew."""
        with self._lock:
            self._resident = None
            self._beside_index = ResidentVectors()

    def search(
        self, query: FloatArray, n: int, where: Where | None, where_document: Where | None
    ) -> tuple[list[str], FloatArray]:
        """Return at most ``n`` ids and their cosines, best first; fewer when there are no more.

        Raises:
            DimensionMismatchError: The query's dimension is not the collection's.
        """
        if not self._scanning:
            found = self._content.neighbours(query, n, where, where_document)
            if found.unit or not self._may_scan:
                order = np.argsort(-found.similarity, kind="stable")
                indexed = [found.ids[row] for row in order], found.similarity[order]
                beside = self._beside_index
                if not len(beside):
                    return indexed
                allowed = self._allowed(where, where_document, beside.ids)
                return merge(indexed, beside.nearest(query, n, allowed), n)
            self._scanning = True
        return self.scan(query, n, where, where_document)

    def scan(
        self, query: FloatArray, n: int, where: Where | None, where_document: Where | None
    ) -> tuple[list[str], FloatArray]:
        """``search`` without the index: exact over every embedding of the bank."""
        with self._lock:
            if self._resident is None:
                self._resident = ResidentVectors()
                self._resident.load(*self._content.embeddings())
            resident = self._resident
        if len(resident) and resident.dimension != len(query):
            raise DimensionMismatchError(
                f"a query of dimension {len(query)} does not fit collection {self._content.name!r} of "
                f"dimension {resident.dimension}: use the embedder it was filled with"
            )
        return resident.nearest(query, n, self._allowed(where, where_document))

    def _allowed(
        self, where: Where | None, where_document: Where | None, among: list[str] | None = None
    ) -> Collection[str] | None:
        if not where and not where_document:
            return None
        return self._content.matching(where, where_document, among)
