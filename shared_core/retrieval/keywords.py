"""Keyword search over a bank: a BM25 index that is built on first use and kept in step with the bank."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shared_core.retrieval.bm25 import Bm25Index
from shared_core.types import Array

if TYPE_CHECKING:
    from shared_core.bank import CollectionChange, MemoryBank


class _Places(NamedTuple):
    names: dict[int, str]
    ids: list[str]
    rows: int
    place: Array


class KeywordSearch:
    """BM25 ranking of a bank's texts."""

    def __init__(self, bank: MemoryBank) -> None:
        self._content = bank.content
        self._state = bank.state
        self._lock = threading.Lock()
        self._index: Bm25Index | None = None
        self._places: _Places | None = None
        self._version = -1

    def update(self, change: CollectionChange) -> None:
        """Take up what was added, removed or touched; nothing while there is no index."""
        with self._lock:
            if change.touched:
                self._index = None
            elif self._index is not None:
                self._index.remove(change.removed)
                self._put(self._index, change.added)

    def reload(self) -> None:
        """Drop the index; the next search builds it anew."""
        with self._lock:
            self._index = None

    def ranking(self, query: str) -> list[str]:
        """Return every id that shares a word with the query, best first."""
        index = self._current()
        return index.search(query, max(1, len(index)))[0]

    def places(self, query: str, ids: list[str]) -> Array:
        """Return the places in ``ids`` of all that share a word with the query, best first.

        Args:
            query: Any text.
            ids: Ids, never changed in place: where each stands is remembered with the list.
        """
        index = self._current()
        rows, _, names = index.search_rows(query, max(1, len(index)))
        place_of = self._placed(names, ids)[rows]
        found: Array = place_of[place_of >= 0]
        return found

    def _placed(self, names: dict[int, str], ids: list[str]) -> Array:
        """Return the place in ``ids`` of each of the index's rows, -1 for none."""
        known = self._places
        if known is None or known.names is not names or known.ids is not ids or known.rows < len(names):
            place_of = {memory_id: place for place, memory_id in enumerate(ids)}
            # rows are numbered from 0; a writer may let the shared dict grow meanwhile
            named = dict(names)
            place = np.full(max(named, default=-1) + 1, -1, np.int64)
            place[list(named)] = [place_of.get(memory_id, -1) for memory_id in named.values()]
            known = self._places = _Places(names, ids, len(named), place)
        return known.place

    def _current(self) -> Bm25Index:
        version = self._state.version()
        with self._lock:
            if self._index is None:
                index = Bm25Index()
                for records in self._content.records():
                    index.replace([r.id for r in records], [r.text for r in records])
                # only now: a read that fails must not leave half an index
                self._index = index
            elif version != self._version:
                self._put(self._index, self._state.rewritten_since(self._version))
            self._version = version
            return self._index

    def _put(self, index: Bm25Index, ids: list[str]) -> None:
        records = self._content.get(ids).values()
        index.replace([record.id for record in records], [record.text for record in records])
