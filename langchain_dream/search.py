"""What stands behind the retriever: a Chroma bank, or weights by document id for any other store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from shared_core.config import RetrievalConfig
from shared_core.errors import ConfigError, UnsupportedStoreError

if TYPE_CHECKING:
    from shared_core import BankRetriever, ConsolidationConfig, Hit, MemoryBank, Run

FILTERS = frozenset({"where", "where_document"})


class DocumentSearch(Protocol):
    """Search and feedback over one vector store."""

    @property
    def bank(self) -> MemoryBank:
        """The memory bank, where the store has one."""
        ...

    def check(self, options: dict[str, Any]) -> None:
        """Refuse options that no search would take."""
        ...

    def search(self, query: str, **options: Any) -> list[Hit]:
        """Return hits, best first."""
        ...

    async def asearch(self, query: str, **options: Any) -> list[Hit]:
        """``search`` without blocking the event loop."""
        ...

    def feedback(
        self, ids: Sequence[str], scores: Sequence[float], success: float, config: ConsolidationConfig | None
    ) -> Run:
        """Consolidate what was retrieved for a task."""
        ...


def open_search(
    vectorstore: VectorStore,
    *,
    where: dict[str, Any] | None,
    state_url: str | None,
    bank_name: str | None,
    value_key: str | None,
    origin_key: str | None,
    quarantine: float | None,
    backend: str,
    reranker: Any,
    track_access: bool,
) -> DocumentSearch:
    """Open the search that fits the vector store.

    Raises:
        StateError, UnsupportedStoreError, ConfigError: As ``DreamRetriever`` says.
    """
    from shared_core import BankRetriever, MemoryBank

    # LangChain's Chroma class offers no public way to its collection
    collection: Any = getattr(vectorstore, "_collection", None)
    if type(collection).__module__.partition(".")[0] != "chromadb":
        from langchain_dream.other_stores import StoreSearch

        if where or reranker is not None or quarantine is not None:
            raise UnsupportedStoreError(
                f"where, reranker and quarantine need Chroma, not {type(vectorstore).__name__}: pass a "
                "filter in search_kwargs, and rerank after the retriever"
            )
        return StoreSearch(
            vectorstore,
            state_url=state_url,
            bank_name=bank_name,
            track_access=track_access,
        )
    bank = MemoryBank.from_collection(
        collection,
        state_url=state_url,
        where=where,
        embedder=vectorstore.embeddings,
        value_key=value_key,
        origin_key=origin_key,
        quarantine=quarantine,
    )
    config = RetrievalConfig(backend=backend)  # type: ignore[arg-type]
    return ChromaSearch(
        BankRetriever(bank, config, reranker=reranker, track_access=track_access), vectorstore
    )


class ChromaSearch:
    """A memory bank's retriever, speaking LangChain's search options."""

    def __init__(self, retriever: BankRetriever, vectorstore: VectorStore) -> None:
        self._retriever = retriever
        self._vectorstore = vectorstore

    @property
    def bank(self) -> MemoryBank:
        """The memory bank."""
        return self._retriever.bank

    def check(self, options: dict[str, Any]) -> None:
        """Refuse search options that no search would take.

        Raises:
            ConfigError: An unknown option, or a value outside its range.
        """
        searched = _translated(options)
        RetrievalConfig(**{name: value for name, value in searched.items() if name not in FILTERS})

    def search(self, query: str, **options: Any) -> list[Hit]:
        """Embed and search."""
        return self._retriever.search(query, **_translated(options))

    async def asearch(self, query: str, **options: Any) -> list[Hit]:
        """Embed with the embedder's own coroutine where it has one, and search in a thread."""
        embeddings = self._vectorstore.embeddings
        # the coroutine that every embedder inherits takes a thread of its own: one does for both
        own = getattr(type(embeddings), "aembed_query", None) not in (None, Embeddings.aembed_query)
        if embeddings is None or not own or not isinstance(query, str) or not query.strip():
            return await asyncio.to_thread(self.search, query, **options)
        vector = await embeddings.aembed_query(query)
        return await asyncio.to_thread(
            self._retriever.search_by_vector, vector, query=query, **_translated(options)
        )

    def feedback(
        self, ids: Sequence[str], scores: Sequence[float], success: float, config: ConsolidationConfig | None
    ) -> Run:
        """Consolidate what was retrieved for a task."""
        return self.bank.feedback(ids, scores, success, config)


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """Return LangChain's search options under the core's names."""
    from shared_core.retrieval import SEARCH_OPTIONS

    if unknown := sorted(options.keys() - SEARCH_OPTIONS - {"filter", *FILTERS}):
        raise ConfigError(
            f"unknown search option {', '.join(unknown)}; known: filter, where_document, "
            f"{', '.join(sorted(SEARCH_OPTIONS))}"
        )
    renamed = {"where" if key == "filter" else key: value for key, value in options.items()}
    if "filter" in options and "where" in options:
        raise ConfigError("filter and where are the same option: give one")
    if renamed.get("search_type") == "similarity_score_threshold" and "score_threshold" not in renamed:
        raise ConfigError("search_type='similarity_score_threshold' needs score_threshold in search_kwargs")
    return renamed
