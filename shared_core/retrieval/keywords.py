"""Keyword search over a bank: a BM25 index that is built on first use and kept in step with the bank."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from shared_core.retrieval.bm25 import Bm25Index

if TYPE_CHECKING:
    from shared_core.bank import CollectionChange, MemoryBank


class KeywordSearch:
    """BM25 ranking of a bank's texts."""

    def __init__(self, bank: MemoryBank) -> None:
        self._content = bank.content
        self._state = bank.state
        self._lock = threading.Lock()
        self._index: Bm25Index | None = None
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
