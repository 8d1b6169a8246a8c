"""The content of a bank: the user's own Chroma collection.

Only this module and ``chroma_client`` import chromadb. Reads in pages, never by a back end's notion of
relevance: similarities are cosines (design 2). Knows nothing of weights. What Chroma gets wrong silently
(NaN metadata, unknown ids, existing ids) is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from chromadb.api import ServerAPI
from chromadb.api.models.Collection import Collection
from chromadb.config import System
from sqlalchemy.engine import URL

from shared_core.bank.chroma_client import translated
from shared_core.bank.derived import is_derived
from shared_core.bank.records import Neighbours, Record, Space, batches, one_operator
from shared_core.errors import ConfigError, StaleIndexError, StateError
from shared_core.types import FloatArray, Metadata, Where

PAGE = 5_000
"""Rows per read; a metadata read above 32,766 rows fails."""
IDS_PAGE = 30_000
"""Rows per read of ids alone: each page is found by counting from the start."""
IDS_PER_GET = 1_000
STATE_FILE = "dream_state.sqlite3"
UNIT_TOLERANCE = 1e-4

T = TypeVar("T")


class ChromaContent:
    """A Chroma collection, seen through an optional metadata filter.

    Args:
        collection: An open collection of an embedded, HTTP or in-memory client.
        where: The tenant's filter; nothing outside it is read.
    """

    def __init__(self, collection: Collection, where: Where | None = None) -> None:
        if not isinstance(collection, Collection):
            raise ConfigError(
                f"{type(collection).__name__} is not a chromadb Collection: open it with a synchronous client"
            )
        if where is not None and not isinstance(where, Mapping):
            raise ConfigError(
                f"where={where!r} is a {type(where).__name__}: give a filter such as {{'user': 'ada'}}"
            )
        self.collection = collection
        self.where = dict(where) if where else None
        self._where = one_operator(self.where)

    @property
    def key(self) -> str:
        """The collection's UUID: a collection that was deleted and made anew is another bank."""
        return str(self.collection.id)

    @property
    def name(self) -> str:
        """The collection's name."""
        return str(self.collection.name)

    @property
    def space(self) -> Space:
        """The distance space that the collection was created with."""
        configuration = self.collection.configuration_json
        index = configuration.get("hnsw") or configuration.get("spann") or {}
        return str(index.get("space") or (self.collection.metadata or {}).get("hnsw:space") or "l2")

    def database_file(self) -> Path | None:
        """Return the file that changes with every write, where the collection is embedded on disk."""
        settings = self.collection._client._system.settings
        on_disk = self._in_process() and settings.is_persistent
        return Path(settings.persist_directory) / "chroma.sqlite3" if on_disk else None

    def is_in_memory(self) -> bool:
        """Tell whether the collection lives in this process only."""
        return self._in_process() and not self.collection._client._system.settings.is_persistent

    def is_on_server(self) -> bool:
        """Tell whether other processes may write to the collection at the same time."""
        return not self._in_process()

    def _in_process(self) -> bool:
        settings = self.collection._client._system.settings
        return bool(settings.chroma_api_impl == "chromadb.api.rust.RustBindingsAPI")

    def default_state_url(self) -> URL:
        """Return the URL of a SQLite file beside the embedded collection.

        Raises:
            StateError: The collection is on a server or in memory, where there is no such place.
        """
        file = self.database_file()
        if file is None:
            raise StateError(
                f"collection {self.name!r} is on a Chroma server, which has no place for weights: pass "
                "state_url='sqlite:////path/file.sqlite3' (one host) or 'postgresql://...' (several), "
                "or set DREAM_STATE_URL"
            )
        # never as text: a folder's name may hold what a URL reads as an option
        return URL.create("sqlite", database=str(file.with_name(STATE_FILE).resolve()))

    # ---- reading

    def count(self) -> int:
        """Return the number of records of the whole collection, whatever the filter."""
        with translated(self.name):
            return int(self.collection.count())

    def dimension(self) -> int | None:
        """Return the embeddings' dimension, None for an empty collection."""
        return self._or_anew(ChromaContent._dimension)

    def _dimension(self) -> int | None:
        with translated(self.name):
            found = self.collection.get(limit=1, include=["embeddings"])["embeddings"]
        return None if found is None or len(found) == 0 else len(found[0])

    def ids(self, offset: int = 0) -> list[str]:
        """Return the ids of the bank, in order of insertion, from ``offset`` on."""
        pages = self._pages([], offset, most=IDS_PAGE)
        return [memory_id for page in pages for memory_id in page["ids"]]

    def embeddings(self) -> tuple[list[str], FloatArray]:
        """Return all ids and their embeddings, float32, shape (N, d)."""
        return self._or_anew(ChromaContent._embeddings)

    def _embeddings(self) -> tuple[list[str], FloatArray]:
        ids: list[str] = []
        blocks: list[FloatArray] = []
        for page in self._pages(["embeddings"]):
            ids += page["ids"]
            blocks.append(np.asarray(page["embeddings"], np.float32))
        if not blocks:
            return [], np.empty((0, 0), np.float32)
        # a writer may have shifted the pages while we read them
        first = list({memory_id: row for row, memory_id in reversed(list(enumerate(ids)))}.values())
        matrix = np.concatenate(blocks)
        if len(first) != len(ids):
            first.sort()
            return [ids[row] for row in first], matrix[first]
        return ids, matrix

    def embeddings_page(self, offset: int, limit: int) -> tuple[list[str], FloatArray]:
        """Return ``limit`` ids and embeddings, float32, (m, d), from ``offset`` on, in order of insertion.

        Raises:
            StaleIndexError: Another process added some of them, and the index does not know them.
        """
        ids: list[str] = []
        blocks = [np.empty((0, 0), np.float32)]
        for page in self._pages(["embeddings"], offset, limit=limit):
            ids += page["ids"]
            blocks.append(np.asarray(page["embeddings"], np.float32))
        return ids, blocks[0] if len(blocks) == 1 else np.concatenate(blocks[1:])

    def records(self) -> Iterator[list[Record]]:
        """Yield every record of the bank, page by page."""
        for page in self._pages(["documents", "metadatas"]):
            yield _records(page)

    def page(self, offset: int, limit: int) -> list[Record]:
        """Return ``limit`` records from ``offset`` on, in order of insertion."""
        pages = self._pages(["documents", "metadatas"], offset, limit=limit)
        return [record for page in pages for record in _records(page)]

    def get(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the records of those ids that are in the bank."""
        parts = self._by_id(ids, ["documents", "metadatas"], where=self._where)
        return {record.id: record for part in parts for record in _records(part)}

    def get_embeddings(self, ids: Sequence[str]) -> dict[str, FloatArray]:
        """Return the embeddings, each of shape (d,), of those ids that are in the bank."""
        return self._or_anew(lambda content: content._get_embeddings(ids))

    def _get_embeddings(self, ids: Sequence[str]) -> dict[str, FloatArray]:
        found: dict[str, FloatArray] = {}
        for part in self._by_id(ids, ["embeddings"], where=self._where):
            found.update(zip(part["ids"], np.asarray(part["embeddings"], np.float32), strict=True))
        return found

    @contextmanager
    def anew(self) -> Iterator[ChromaContent]:
        """Open the collection again, with an index loaded now; as it is where it is not embedded on disk.

        An embedded index does not learn what another process writes (chroma#3792).
        """
        if self.database_file() is None:
            yield self
            return
        system = System(self.collection._client._system.settings)
        system.start()
        try:
            client = system.instance(ServerAPI)  # type: ignore[type-abstract]
            fresh = Collection(client, self.collection._model, embedding_function=None)
            yield ChromaContent(fresh, self.where)
        finally:
            system.stop()

    def indexed(self, *, embeddings: bool = False) -> tuple[list[str], FloatArray]:
        """Return the ids that the index knows, of the whole collection, and their embeddings if asked for.

        With a filter Chroma would fail on what its index does not know.
        """
        probe = np.ones((1, self.dimension() or 1), np.float32)
        include: Any = ["embeddings"] if embeddings else []
        with translated(self.name):
            found = self.collection.query(query_embeddings=probe, n_results=self.count(), include=include)
        return list(found["ids"][0]), np.asarray((found["embeddings"] or [[]])[0], np.float32)

    def _or_anew(self, ask: Callable[[ChromaContent], T]) -> T:
        try:
            return ask(self)
        except StaleIndexError:
            with self.anew() as content:
                return ask(content)

    def existing(self, ids: Sequence[str]) -> list[str]:
        """Return which of the ids the collection holds already, inside or outside the filter."""
        return [memory_id for part in self._by_id(ids, []) for memory_id in part["ids"]]

    def matching(
        self, where: Where | None, where_document: Where | None, among: Sequence[str] | None = None
    ) -> list[str]:
        """Return the bank's ids that pass both filters; only those of ``among`` where it is given."""
        filters: dict[str, Any] = {
            "where": self._filter(where),
            "where_document": dict(where_document or {}) or None,
        }
        parts = self._pages([], **filters) if among is None else self._by_id(among, [], **filters)
        return [memory_id for part in parts for memory_id in part["ids"]]

    def neighbours(
        self,
        query: FloatArray,
        n: int,
        where: Where | None = None,
        where_document: Where | None = None,
        *,
        records: bool = False,
    ) -> Neighbours:
        """Return the ``n`` nearest records by the collection's own index, with cosines of our own.

        Args:
            query: Shape (d,).
            n: How many, at least 1; fewer come back when there are no more.
            where: A metadata filter on top of the tenant's.
            where_document: A Chroma document filter.
            records: Read the records too; dearer, yet cheaper than reading them afterwards.

        Raises:
            DimensionMismatchError: The query's dimension is not the collection's.
        """
        cosine = self.space == "cosine"
        with translated(self.name):
            got = self.collection.query(
                query_embeddings=[query.tolist()],
                n_results=n,
                where=self._filter(where),
                where_document=dict(where_document) if where_document else None,  # type: ignore[arg-type]
                include=[
                    "distances" if cosine else "embeddings",
                    *(("documents", "metadatas") if records else ()),
                ],
            )
        ids = list(got["ids"][0])
        if not ids:
            return Neighbours([], np.empty(0), unit=True)
        read = _nearest_records(dict(got)) if records else []
        if cosine:
            return Neighbours(ids, 1.0 - np.asarray(got["distances"], float)[0], unit=True, records=read)
        vectors = np.asarray(got["embeddings"], float)[0]
        norms = np.linalg.norm(vectors, axis=1)
        similarity = vectors @ query / np.maximum(norms * np.linalg.norm(query), np.finfo(float).tiny)
        unit = bool(np.all(np.abs(norms - 1.0) < UNIT_TOLERANCE))
        return Neighbours(ids, similarity, unit=unit, records=read)

    # ---- writing

    def add(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadatas: Sequence[Metadata | None],
        embeddings: FloatArray,
        progress: Any = None,
    ) -> None:
        """Add new records in batches of the server's limit; the caller has checked that the ids are new.

        Raises:
            DimensionMismatchError: The embeddings' dimension is not the collection's.
        """
        with translated(self.name):
            largest = int(self.collection._client.get_max_batch_size())
        sizes = [
            len(text) * 2 + len(str(metadata)) * 2 + 6 * embeddings.shape[1]
            for text, metadata in zip(texts, metadatas, strict=True)
        ]
        for part in batches(sizes, largest):
            with translated(self.name):
                self.collection.add(
                    ids=list(ids[part]),
                    documents=list(texts[part]),
                    metadatas=[dict(metadata) if metadata else None for metadata in metadatas[part]],  # type: ignore[misc]
                    embeddings=np.asarray(embeddings[part], np.float32),
                )
            if progress is not None:
                progress("store", part.stop, len(ids))

    def replace(self, record: Record, embedding: FloatArray) -> None:
        """Make an existing record exactly this: text, embedding, and no other metadata."""
        stored = self.get([record.id]).get(record.id)
        if stored is None:
            return  # removed behind our back: nothing to rewrite
        # Chroma merges metadata: a key goes only where it is set to None
        gone = dict.fromkeys(stored.metadata)
        merged = {**gone, **record.metadata}
        with translated(self.name):
            self.collection.update(
                ids=[record.id],
                # a record without a document keeps none
                documents=[record.text] if record.text or stored.text else None,
                embeddings=[embedding.tolist()],
                metadatas=[merged] if merged else None,
            )

    def discard_derived(self, ids: Sequence[str]) -> None:
        """Remove derived records that never became visible; nothing else is ever removed.

        Raises:
            ConfigError: An id is not that of a derived memory; nothing was removed then.
        """
        if others := [memory_id for memory_id in ids if not is_derived(memory_id)]:
            raise ConfigError(f"{others[0]!r} is not a derived memory: a user's memory is never removed")
        if ids:
            with translated(self.name):
                self.collection.delete(ids=list(ids))

    # ---- inner

    def _filter(self, where: Where | None) -> dict[str, Any] | None:
        asked = one_operator(where)
        if asked is None or self._where is None:
            return asked or self._where
        return {"$and": [self._where, asked]}

    def _pages(
        self,
        include: list[Any],
        offset: int = 0,
        where_document: Any = None,
        where: Any = None,
        limit: int | None = None,
        most: int = PAGE,
    ) -> Iterator[Mapping[str, Any]]:
        end = None if limit is None else offset + limit
        while end is None or offset < end:
            rows = most if end is None else min(most, end - offset)
            with translated(self.name):
                page = self.collection.get(
                    where=where or self._where,
                    where_document=where_document,
                    limit=rows,
                    offset=offset,
                    include=include,
                )
            if page["ids"]:
                yield page
            if len(page["ids"]) < rows:
                return
            offset += rows

    def _by_id(self, ids: Sequence[str], include: list[Any], **filters: Any) -> Iterator[Mapping[str, Any]]:
        for start in range(0, len(ids), IDS_PER_GET):
            with translated(self.name):
                yield self.collection.get(
                    ids=list(ids[start : start + IDS_PER_GET]), include=include, **filters
                )


def _records(page: Mapping[str, Any]) -> list[Record]:
    return [
        Record(memory_id, text or "", metadata or {})
        for memory_id, text, metadata in zip(page["ids"], page["documents"], page["metadatas"], strict=True)
    ]


def _nearest_records(found: Mapping[str, Any]) -> list[Record]:
    return _records({name: found[name][0] for name in ("ids", "documents", "metadatas")})
