"""Dense candidates of a bank: the collection's own index, or a scan of every embedding.

The index is asked first. It cannot serve embeddings that are not of unit norm in an l2 or ip collection
(its order is not that of cosines: these are scanned in memory), and in an embedded collection it knows
nothing of what another process wrote since this one opened it (that is scanned beside it). ``auto`` turns to
a scan, which is exact and no slower, once a bank is searched often enough between two changes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.matrix_cache import MatrixCache
from shared_core.bank.matrix_file import CachedVectors
from shared_core.dynamics.geometry import unit_rows
from shared_core.errors import DimensionMismatchError, StaleIndexError
from shared_core.retrieval.beside import VectorsBeside
from shared_core.retrieval.vectors import ResidentVectors, Scan, merge

if TYPE_CHECKING:
    from shared_core.bank import CollectionChange, MemoryBank
    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.hot_records import HotRecords
    from shared_core.config import SearchBackend
    from shared_core.types import FloatArray, Where

NORM_TOLERANCE = 1e-4
READ_ALONG = 32
"""Depth up to which an index search reads records along; of a deeper one few are needed."""
BESIDE_AFTER = 8
"""Searches after which ``auto`` begins to read the embeddings, beside searches."""
ROWS_PER_SEARCH = 20
"""After a change it begins at the search of number rows / this: these saved the time that reading takes."""
STALE_TOLERANCE = 1e-3
"""Distance between two unit vectors from which one is a rewriting of the other, and not its rounding."""


class DenseSearch:
    """Nearest memories by cosine, under a Chroma filter; call ``survey`` once before the first search.

    Args:
        bank: The bank.
        backend: ``index``, ``scan``, or ``auto``: the index wherever its order is that of cosines, and a scan
            of an embedded collection that is searched often enough and fits in memory.
        hot: Where records go that are read along with a search.
    """

    def __init__(self, bank: MemoryBank, backend: SearchBackend, hot: HotRecords) -> None:
        self._content = bank.content
        self._hot = hot
        self._cache = MatrixCache(bank.content)
        self._held_version: str | None = None
        self._may_be_at_hand = backend == "auto" and bank.content.database_file() is not None
        self._at_hand = False
        self._needed = False
        self._beside = VectorsBeside(bank.content, self._cache, hot.settled_mark)
        self._searches, self._changed = 0, False
        self._state = bank.state
        self._scanning = backend == "scan"
        self._norms_matter = backend == "auto" and bank.content.space != "cosine"
        self._may_be_stale = bank.content.database_file() is not None
        self._lock = threading.Lock()
        self._resident: ResidentVectors | None = None
        self._norms: FloatArray | None = None
        self._beside_index = ResidentVectors()
        self._version = -1

    @property
    def must_be_told(self) -> bool:
        """Whether every embedding is held for more than speed, so that a rewriting must be told of."""
        return self._scanning or (self._resident is not None and self._needed)

    @property
    def scans(self) -> bool:
        """Whether every search compares with every embedding."""
        return self._scanning

    def searched(self, ids: Collection[str]) -> None:
        """Count a search; ``auto`` holds every embedding once that pays. Not of a file that was just written.

        Args:
            ids: All ids of the bank, in order.
        """
        if self._at_hand or self._scanning or not (self._may_be_at_hand and ids):
            return
        self._searches += 1
        if self._searches < max(BESIDE_AFTER, len(ids) // ROWS_PER_SEARCH if self._changed else 0):
            return
        brought = self._beside.brought(ids)
        if brought is not None:
            with self._lock:
                self._resident, self._held_version = brought.vectors, brought.version
                self._resident.add(self._beside_index.take(self._beside_index.ids))
                self._at_hand = True
            self._beside.drop()

    def hold_cached(self, ids: Collection[str]) -> bool:
        """Hold every embedding of a large bank from its cache; tell whether there is nothing left to read.

        Args:
            ids: All ids of the bank, in order.
        """
        with self._lock:
            self._needed = True
            if self._resident is not None or not self._cache.covers(len(ids)):
                return True
            named = list(ids)
            found = self._cache.load(named)
            if found is None:
                return False
            matrix, self._held_version = found
            self._resident = ResidentVectors()
            self._resident.load_unit(named, matrix)
            self._at_hand = self._may_be_at_hand
            return True

    def cached_version(self, ids: Collection[str]) -> str | None:
        """Return the version under which what is read from now on may be cached; None where it may not."""
        return self._cache.version() if self._cache.covers(len(ids)) else None

    def cache(self, version: str | None) -> None:
        """Keep what is held for the next process, if it was all read under this version."""
        with self._lock:
            if version is not None and self._resident is not None and self._norms is not None:
                held = CachedVectors.divided(self._resident.ids, self._resident.matrix, self._norms)
                kept = self._cache.save(held, version)
                self._held_version = version if kept else None

    def unwritten(self) -> bool:
        """Tell whether the collection is known to hold what is held, though its file was written to.

        Every opening of an embedded database writes to its file.
        """
        with self._lock:
            return self._held_version is not None and self._held_version == self._cache.version()

    def survey(self, ids: Collection[str], fresh: ChromaContent | None = None, *, hold: bool = False) -> None:
        """Find out what the index cannot serve, and hold that in memory.

        Args:
            ids: All ids of the bank.
            fresh: The content, opened anew; every embedding is read from it, also what was rewritten.
            hold: Hold every embedding that is read from ``fresh``, for scans.
        """
        with self._lock:
            # before the reading: what is rewritten meanwhile is taken up twice rather than never
            version = self._state.version()
            holding = hold or self.must_be_told
            self._forget()
            self._changed = False
            self._resident, self._beside_index = None, ResidentVectors()
            reread = fresh is not None and (self._may_be_stale or holding)
            if ids and (reread or (self._norms_matter and not self._scanning)):
                matrix_ids, matrix = (fresh or self._content).embeddings()
                self._scanning = self._scanning or (self._norms_matter and not _unit(matrix))
                if matrix_ids and reread and self._may_be_stale and not self._scanning:
                    self._beside_index.add(self._otherwise_indexed(matrix_ids, matrix))
                if self._scanning or (reread and holding):
                    self._resident = ResidentVectors()
                    self._resident.load(matrix_ids, matrix)
                    self._norms = np.linalg.norm(matrix.astype(np.float64), axis=1)
                    self._needed, self._at_hand = True, self._may_be_at_hand
            if ids and fresh is None and self._may_be_stale and not self._scanning:
                self._beside_index.add(self._content.get_embeddings(self._not_indexed(ids)))
            self._version = version

    def update(self, change: CollectionChange) -> None:
        """Take up what was added and removed, and what our own runs rewrote."""
        with self._lock:
            version = self._state.version()
            rewritten = [] if version == self._version else self._state.rewritten_since(self._version)
            # a rewriting beside an addition goes unnoticed here, and the index may know of it
            if change or change.touched or rewritten:
                self._forget()
            if change or rewritten:
                self._take_up(change, rewritten)
            self._version = version

    def resident(
        self, query: FloatArray, where: Where | None, where_document: Where | None
    ) -> ResidentVectors | None:
        """Return every embedding where a search is to compare with all, None where it is to ask the index.

        Raises:
            DimensionMismatchError: The query's dimension is not the collection's.
        """
        filtered = bool(where or where_document)
        if self._scanning:
            return self.held(query)
        with self._lock:
            found = self._resident if self._at_hand and not filtered else None
        return None if found is None else self._fitting(query, found)

    def nearest(
        self, query: FloatArray, n: int, where: Where | None, where_document: Where | None
    ) -> tuple[Sequence[str], FloatArray]:
        """Return the index's ``n`` nearest ids and their cosines, best first; fewer when there are no more.

        Raises:
            DimensionMismatchError: The query's dimension is not the collection's.
        """
        mark = self._hot.settled_mark() if self._hot.mostly_cold and n <= READ_ALONG else None
        try:
            found = self._content.neighbours(query, n, where, where_document, records=mark is not None)
        except StaleIndexError:
            # the filter lets through what the index does not know
            return self.scan(query, where, where_document).nearest(n)
        if mark is not None:
            self._hot.put(found.records, mark, unasked=True)
        if self._norms_matter and not found.unit:
            self._scanning = True
            return self.scan(query, where, where_document).nearest(n)
        # an embedding that is not finite resembles nothing, as in a scan
        similarity = np.where(np.isfinite(found.similarity), found.similarity, 0.0)
        order = np.argsort(-similarity, kind="stable")
        indexed = [found.ids[row] for row in order], similarity[order]
        beside = self._beside_index
        if not len(beside):
            return indexed
        allowed = self.allowed(where, where_document, beside.ids)
        return merge(indexed, beside.nearest(query, n, allowed), n)

    def embeddings(self, ids: Sequence[str]) -> dict[str, FloatArray]:
        """Return the embeddings, each of shape (d,), of those ids that are in the bank."""
        known = (self._resident or self._beside_index).take(ids)
        return {**self._content.get_embeddings([i for i in ids if i not in known]), **known}

    def scan(self, query: FloatArray, where: Where | None, where_document: Where | None) -> Scan:
        """Compare with every embedding of the bank.

        Raises:
            DimensionMismatchError: The query's dimension is not the collection's.
        """
        return self.held(query).scan(query, self.allowed(where, where_document))

    def held(self, query: FloatArray) -> ResidentVectors:
        """Return every embedding of the bank, read if need be.

        Raises:
            DimensionMismatchError: The query's dimension is not the collection's.
        """
        with self._lock:
            self._needed = True
            if self._resident is None:
                self._resident = self._load()
                self._at_hand = self._may_be_at_hand
            return self._fitting(query, self._resident)

    def allowed(
        self, where: Where | None, where_document: Where | None, among: list[str] | None = None
    ) -> Collection[str] | None:
        """Return the ids that pass both filters; None where there are none."""
        if not where and not where_document:
            return None
        return self._content.matching(where, where_document, among)

    # ---- inner

    def _take_up(self, change: CollectionChange, rewritten: list[str]) -> None:
        added, unknown = self._added(change.added)
        again: dict[str, FloatArray] = {}
        if rewritten:
            # by whatever process: our index may hold the old version
            with self._content.anew() as content:
                again = content.get_embeddings(rewritten)
        vectors = {**added, **again}
        if self._norms_matter and vectors and not _unit(np.stack(list(vectors.values()))):
            self._scanning = True
        if self._resident is not None:
            self._resident.remove(change.removed)
            self._resident.add(vectors)
        if self._may_be_stale:
            beside = self._beside_index
            beside.remove(change.removed)
            # what the index knows stays with the index, which follows every later change of this process
            held = self._content.get_embeddings(list(again))
            known = set(beside.ids) | unknown
            beside.add(
                {i: v for i, v in vectors.items() if i in known or (i in again and _apart(held.get(i), v))}
            )

    def _added(self, ids: list[str]) -> tuple[dict[str, FloatArray], set[str]]:
        """Return the embeddings of new ids, and which of these the index does not know."""
        if not ids:
            return {}, set()
        try:
            # asking the index for these alone is cheap: what this process added is known to it
            return self._content._get_embeddings(ids), set()
        except StaleIndexError:
            return self._content.get_embeddings(ids), set(self._not_indexed(ids))

    def _load(self) -> ResidentVectors:
        resident = ResidentVectors()
        resident.load(*self._content.embeddings())
        # the index may hold older versions
        resident.add(self._beside_index.take(self._beside_index.ids))
        return resident

    def _not_indexed(self, ids: Collection[str]) -> list[str]:
        indexed = set(self._content.indexed()[0])
        return [memory_id for memory_id in ids if memory_id not in indexed]

    def _otherwise_indexed(self, ids: list[str], matrix: FloatArray) -> dict[str, FloatArray]:
        """Return the embeddings that the index lacks or holds in an older version."""
        indexed, held = self._content.indexed(embeddings=True)
        row_of = {memory_id: row for row, memory_id in enumerate(indexed)}
        known = np.array([row_of.get(memory_id, -1) for memory_id in ids])
        # a last row of zeros stands for what the index lacks
        shown = np.zeros((len(indexed) + 1, matrix.shape[1]), np.float32)
        shown[:-1] = held.reshape(-1, matrix.shape[1])
        apart = np.linalg.norm(unit_rows(shown[known]) - unit_rows(matrix), axis=1)
        return {ids[row]: matrix[row] for row in np.flatnonzero((apart > STALE_TOLERANCE) | (known < 0))}

    def _forget(self) -> None:
        self._at_hand, self._held_version, self._norms = False, None, None
        self._searches, self._changed = 0, True
        self._beside.drop()
        if not (self._needed or self._scanning):
            self._resident = None

    def _fitting(self, query: FloatArray, resident: ResidentVectors) -> ResidentVectors:
        if len(resident) and resident.dimension != len(query):
            raise DimensionMismatchError(
                f"a query of dimension {len(query)} does not fit collection {self._content.name!r} of "
                f"dimension {resident.dimension}: use the embedder it was filled with"
            )
        return resident


def _unit(matrix: FloatArray) -> bool:
    return bool(np.all(np.abs(np.linalg.norm(matrix, axis=1) - 1.0) < NORM_TOLERANCE))


def _apart(one: FloatArray | None, other: FloatArray) -> bool:
    if one is None:
        return True
    first, second = unit_rows(np.stack([one, other]))
    return bool(np.linalg.norm(first - second) > STALE_TOLERANCE)
