"""Every embedding of an embedded collection, read in the background, a page beside each search.

A search must not wait for a whole bank to be read, and a process that asks once should not read it at all.
From the cached matrix all comes at once. What was read is dropped as soon as anybody may have written.

Source: none, ours [O].
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.retrieval.vectors import ResidentVectors

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.file_mark import FileMark
    from shared_core.bank.matrix_cache import MatrixCache
    from shared_core.types import FloatArray

PAGE = 1_000
"""Embeddings that are read at once: some hundredths of a second."""
HELD_AT_MOST = 32_000_000
"""Bytes of embeddings up to which a scan is faster than Chroma's index by far: 20,000 of dimension 384."""
_FLOAT_BYTES = 4

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Brought:
    """Every embedding, and the version of the collection where it came from the cache."""

    vectors: ResidentVectors
    version: str | None


class VectorsBeside:
    """Brings the embeddings of one collection; call all methods from one thread at a time.

    Args:
        content: The collection.
        cache: Its cached matrix.
        settled_mark: Tells the state of its file; None where that cannot be told from a later one.
    """

    def __init__(
        self, content: ChromaContent, cache: MatrixCache, settled_mark: Callable[[], FileMark | None]
    ) -> None:
        self._content = content
        self._cache = cache
        self._settled_mark = settled_mark
        self._reading: _Reading | None = None

    def drop(self) -> None:
        """Forget what was read so far."""
        self._reading = None

    def brought(self, ids: Collection[str]) -> Brought | None:
        """Return every embedding if all are there, else read on in the background.

        Args:
            ids: All ids of the bank, in order.
        """
        mark = self._settled_mark()
        if mark is None:
            return None
        if self._reading is None or self._reading.mark != mark:
            self._reading = _Reading(self._content, self._cache, list(ids), mark)
        return self._reading.step()


class _Reading:
    """One attempt, while the file is the same."""

    def __init__(self, content: ChromaContent, cache: MatrixCache, ids: list[str], mark: FileMark) -> None:
        self.mark = mark
        self._content = content
        self._cache = cache
        self._ids = ids
        self._pages: list[FloatArray] = []
        self._rows = 0
        self._ended = False
        self._found: Brought | None = None
        self._thread: threading.Thread | None = None

    def step(self) -> Brought | None:
        if self._thread is not None and self._thread.is_alive():
            return None
        if not self._ended:
            # not a daemon: an interpreter that ends waits for this one page
            self._thread = threading.Thread(target=self._work, name="dream-embeddings")
            self._thread.start()
        return self._found

    def _work(self) -> None:
        try:
            self._found = self._read()
        except Exception:
            logger.debug("embeddings could not be read beside searches", exc_info=True)
            self._ended = True
        self._ended = self._ended or self._found is not None

    def _read(self) -> Brought | None:
        if not self._pages:
            if (self._content.dimension() or 0) * len(self._ids) * _FLOAT_BYTES > HELD_AT_MOST:
                self._ended = True
                return None
            if (found := self._cache.load(self._ids)) is not None:
                vectors = ResidentVectors()
                vectors.load_unit(self._ids, found[0])
                return self._prepared(vectors, found[1])
        ids, matrix = self._content.embeddings_page(self._rows, PAGE)
        if ids != self._ids[self._rows : self._rows + len(ids)] or not ids:
            # not what was listed: somebody is writing
            self._ended = True
            return None
        self._pages.append(matrix)
        self._rows += len(ids)
        if self._rows < len(self._ids):
            return None
        vectors = ResidentVectors()
        vectors.load(self._ids, np.concatenate(self._pages))
        self._pages.clear()
        return self._prepared(vectors, None)

    def _prepared(self, vectors: ResidentVectors, version: str | None) -> Brought:
        vectors.prepare()
        return Brought(vectors, version)
