"""One family of texts by which memories are found through words, following a bank as it changes.

A family is a snapshot: it ranks by its own texts, whatever became of them since. The newest one shares a
BM25 index with its predecessor and has only the differences written into it; an older one that is still
asked gets an index of its own.

Source: none, ours [O].
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shared_core.retrieval.bm25 import Bm25Index

if TYPE_CHECKING:
    from shared_core.types import Array


@dataclass(eq=False)
class _Shared:
    """An index, and whose texts are in it at the moment; nobody's while it is being written."""

    index: Bm25Index
    holds: Mapping[str, str] | None
    lock: threading.Lock = field(default_factory=threading.Lock)


_Turned: TypeAlias = tuple[Mapping[int, str], Mapping[str, int], "Array"]
"""An index's names, a caller's rows, and the caller's row of each of the index's."""


class WordFamily:
    """At most one text per memory; safe for threads.

    Args:
        texts: Text of each memory.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self._shared = _built(texts)
        self._turned: _Turned | None = None

    def updated(self, texts: Mapping[str, str]) -> WordFamily:
        """Return the family with these texts instead."""
        old = self.texts
        gone = [memory_id for memory_id in old if memory_id not in texts]
        changed = {memory_id: text for memory_id, text in texts.items() if old.get(memory_id) != text}
        if not gone and not changed:
            return self
        if len(gone) + len(changed) > len(texts) // 2:
            return WordFamily(texts)
        # whoever ranks by this family meanwhile gives it an index of its own
        shared = self._shared
        with shared.lock:
            if shared.holds is not old:
                return WordFamily(texts)
            shared.holds = None
            shared.index.remove(gone)
            shared.index.replace(list(changed), list(changed.values()))
            # statistics are those of these texts alone, as in an index that is built now
            shared.index.compact()
            shared.holds = texts
        newer = WordFamily.__new__(WordFamily)
        newer.texts, newer._shared, newer._turned = texts, shared, None
        return newer

    def ranking(self, query: str, row_of: Mapping[str, int]) -> Array:
        """Return the rows of all memories that share a word with the query, best first, ties by row.

        Args:
            query: Any text.
            row_of: Row of each memory; others are left out.
        """
        shared = self._shared
        found = shared.index.search_rows(query, max(1, len(self.texts)))
        if shared.holds is not self.texts:
            # it was written to before or meanwhile
            self._shared = shared = _built(self.texts)
            found = shared.index.search_rows(query, max(1, len(self.texts)))
        rows = self._rows(found.names, row_of)[found.rows]
        known = rows >= 0
        rows, scores = rows[known], found.scores[known]
        ranked: Array = rows[np.lexsort((rows, -scores))]
        return ranked

    def _rows(self, names: Mapping[int, str], row_of: Mapping[str, int]) -> Array:
        """Return the caller's row of each row of the index, -1 where it has none; turned round once."""
        held = self._turned
        if held is None or held[0] is not names or held[1] is not row_of or len(held[2]) < len(names):
            # a writer may let the shared dict grow meanwhile
            own = dict(names)
            turned = np.full(max(own, default=-1) + 1, -1, np.int64)
            turned[list(own)] = [row_of.get(memory_id, -1) for memory_id in own.values()]
            self._turned = held = (names, row_of, turned)
        return held[2]


def _built(texts: Mapping[str, str]) -> _Shared:
    index = Bm25Index()
    index.add(list(texts), list(texts.values()))
    return _Shared(index, texts)
