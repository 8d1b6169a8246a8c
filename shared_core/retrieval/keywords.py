"""Keyword search over a bank: a BM25 index that is built on first use and kept in step with the bank."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shared_core.retrieval.bm25 import Bm25Index, ScoredRows
from shared_core.retrieval.word_ranks import WordRanks
from shared_core.types import Array

if TYPE_CHECKING:
    from shared_core.bank import CollectionChange, MemoryBank


class _Places(NamedTuple):
    """Where the index's rows stand among some ids; only of rows that are among them."""

    names: dict[int, str]
    ids: list[str]
    known: int
    rows: Array
    places: Array
    order: Array
    """Alphabetical place by place, shape (len(ids),)."""


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

    def ranks(self, query: str, ids: list[str], counted: Array | None = None) -> WordRanks:
        """Return the word ranking by place in ``ids``.

        Args:
            query: Any text.
            ids: Ids, never changed in place: where each stands is remembered with the list.
            counted: Places that count; None for all.
        """
        found = self._current().scored(query)
        placed = self._placed(found, ids)
        scores = np.zeros(len(ids), np.float32)
        scores[placed.places] = found.scores[placed.rows]
        if counted is not None:
            only = np.zeros_like(scores)
            only[counted] = scores[counted]
            scores = only
        return WordRanks(scores, placed.order)

    def _placed(self, found: ScoredRows, ids: list[str]) -> _Places:
        known = self._places
        if (
            known is None
            or known.names is not found.names
            or known.ids is not ids
            or known.known != len(found.alphabetical)
        ):
            place_of = {memory_id: place for place, memory_id in enumerate(ids)}
            # a writer may let the shared dict grow meanwhile
            named = [(row, i) for row, i in dict(found.names).items() if row < len(found.alphabetical)]
            pairs = [(row, place_of[memory_id]) for row, memory_id in named if memory_id in place_of]
            rows, places = np.array(pairs, np.int64).reshape(-1, 2).T
            order = np.zeros(len(ids), np.int64)
            order[places] = found.alphabetical[rows]
            known = _Places(found.names, ids, len(found.alphabetical), rows, places, order)
            self._places = known
        return known

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
