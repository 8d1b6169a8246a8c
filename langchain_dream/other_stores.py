"""Weights by document id over a vector store that is not Chroma.

Such a store shows no embeddings, so candidates are embedded again (and kept) to have true cosines;
a sweep, which must read every embedding, is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from shared_core.config import RetrievalConfig
from shared_core.errors import ConfigError, StateError, UnsupportedStoreError
from shared_core.types import Hit

if TYPE_CHECKING:
    from shared_core import ConsolidationConfig, MemoryBank, Run
    from shared_core.types import FloatArray

CACHED_EMBEDDINGS = 10_000


class StoreSearch:
    """Search any vector store that returns documents with ids.

    Raises:
        StateError: No state_url, or no bank_name: there is no natural place for the weights.
        UnsupportedStoreError: The store has no embedder.
    """

    def __init__(
        self,
        vectorstore: VectorStore,
        *,
        state_url: str | None,
        bank_name: str | None,
        track_access: bool,
    ) -> None:
        from shared_core import BankState

        name = type(vectorstore).__name__
        if not state_url or not bank_name:
            raise StateError(
                f"{name} has no place for weights: pass state_url='sqlite:///weights.sqlite3' and a "
                "bank_name that identifies this store"
            )
        if vectorstore.embeddings is None:
            raise UnsupportedStoreError(f"{name} shows no embedder, and true cosines need one: use Chroma")
        self._vectorstore = vectorstore
        self._embeddings = vectorstore.embeddings
        self._track_access = track_access
        self._lock = threading.Lock()
        self._vectors: OrderedDict[str, FloatArray] = OrderedDict()
        self.state = BankState(state_url, collection=f"store:{name}:{bank_name}", name=bank_name)

    @property
    def bank(self) -> MemoryBank:
        """Refused: a memory bank reads every embedding.

        Raises:
            UnsupportedStoreError: Always.
        """
        raise UnsupportedStoreError(
            f"{type(self._vectorstore).__name__} cannot give every embedding, which sweeps and the memory "
            "bank need: keep these memories in Chroma; weights and feedback work with any store"
        )

    def check(self, options: dict[str, Any]) -> None:
        """Refuse values that no search would take; what the store itself takes, only it can tell.

        Raises:
            ConfigError: A value outside its range.
            UnsupportedStoreError: Hybrid or associative search.
        """
        config = RetrievalConfig(**_known(options))
        if config.search_type in {"hybrid", "associative"}:
            raise UnsupportedStoreError(f"{config.search_type} search reads every text: it needs Chroma")

    def search(self, query: str, **options: Any) -> list[Hit]:
        """Search and weigh."""
        if not _text(query).strip():
            return []
        return self._search(query, np.asarray(self._embeddings.embed_query(query), float), options)

    async def asearch(self, query: str, **options: Any) -> list[Hit]:
        """Embed with the store's own coroutine, then search in a thread."""
        if not _text(query).strip():
            return []
        vector = np.asarray(await self._embeddings.aembed_query(query), float)
        return await asyncio.to_thread(self._search, query, vector, options)

    def feedback(
        self, ids: Sequence[str], scores: Sequence[float], success: float, config: ConsolidationConfig | None
    ) -> Run:
        """Consolidate what was retrieved for a task."""
        from shared_core.bank import give_feedback

        return give_feedback(self.state, ids, scores, success, config)

    def _search(self, query: str, vector: FloatArray, options: dict[str, Any]) -> list[Hit]:
        from shared_core.retrieval import mmr, widening_top_k

        self.check(options)
        config = RetrievalConfig(**_known(options))
        passed_on = {name: value for name, value in options.items() if name not in _known(options)}
        found: dict[str, Document] = {}

        def fetch(n: int) -> tuple[list[str], FloatArray]:
            documents = self._vectorstore.similarity_search(query, k=n, **passed_on)
            found.update((_id(document), document) for document in documents)
            keys = list(dict.fromkeys(_id(document) for document in documents))
            similarity = self._cosines(vector, [found[key] for key in keys])
            order = np.argsort(-similarity, kind="stable")
            return [keys[row] for row in order], similarity[order]

        diverse = config.search_type == "mmr"
        best = widening_top_k(
            fetch,
            self.state.weights,
            max(config.k, config.fetch_k) if diverse else config.k,
            total=2**31 - 1,
            min_weight=config.min_weight,
            threshold=config.score_threshold,
        )
        rows: Sequence[int] = range(len(best.keys))
        if diverse and best.keys:
            vectors = self._embedded([found[key].page_content for key in best.keys])
            rows = mmr(best.score, vectors, config.k, config.lambda_mult).tolist()
        if self._track_access:
            self.state.record_access(best.keys[row] for row in rows)
        return [
            Hit(
                id=best.keys[row],
                text=found[best.keys[row]].page_content,
                metadata=found[best.keys[row]].metadata,
                score=float(best.score[row]),
                similarity=float(best.similarity[row]),
                weight=float(best.weight[row]),
            )
            for row in rows
        ]

    def _cosines(self, query: FloatArray, documents: Sequence[Document]) -> FloatArray:
        texts = [document.page_content for document in documents]
        if not texts:
            return np.empty(0)
        matrix = self._embedded(texts)
        scale = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
        cosines: FloatArray = matrix @ query / np.where(scale > 0, scale, 1.0)
        return cosines

    def _embedded(self, texts: Sequence[str]) -> FloatArray:
        with self._lock:
            known = {text: self._vectors[text] for text in texts if text in self._vectors}
        if missing := [text for text in dict.fromkeys(texts) if text not in known]:
            fresh = np.asarray(self._embeddings.embed_documents(missing), float)
            known.update(zip(missing, fresh, strict=True))
        with self._lock:
            self._vectors.update(known)
            while len(self._vectors) > CACHED_EMBEDDINGS:
                self._vectors.popitem(last=False)
        return np.stack([known[text] for text in texts])


def _text(query: object) -> str:
    if not isinstance(query, str):
        raise ConfigError(f"a query is text, not {query!r}")
    return query


def _known(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in RetrievalConfig.__dataclass_fields__}


def _id(document: Document) -> str:
    if document.id is None:
        raise UnsupportedStoreError("the store returned a document without an id, so it cannot be weighed")
    return document.id
