"""``DreamChromaRetriever``: exact weighted top-K over an index that LlamaIndex keeps in Chroma.

Translates LlamaIndex's queries, filters and nodes; all ranking and state live in ``shared_core``, which the
LangChain side uses too, so that both return the same memories in the same order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.vector_stores.types import MetadataFilters

from llamaindex_dream.feedback import record_feedback
from llamaindex_dream.filters import to_where
from llamaindex_dream.models import as_embedder
from llamaindex_dream.nodes import to_nodes
from llamaindex_dream.queries import QueryEmbedder
from shared_core.config import RetrievalConfig
from shared_core.errors import ConfigError, UnsupportedStoreError

if TYPE_CHECKING:
    from llama_index.core.callbacks.base import CallbackManager
    from llama_index.core.indices.vector_store.base import VectorStoreIndex
    from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle

    from shared_core import (
        ConsolidationConfig,
        Embedder,
        ForgettingConfig,
        MemoryBank,
        Reranker,
        Run,
        SweepReport,
    )
    from shared_core.types import FloatArray, Progress

dispatcher = get_dispatcher(__name__)

Filters = MetadataFilters | Mapping[str, Any]


class DreamChromaRetriever(BaseRetriever):
    """A retriever that ranks by w * cos, and whose memories can be forgotten and restored.

    Nodes are those that LlamaIndex's own Chroma store would give, with our scores; records of other
    frameworks, and those that a dream wrote, become text nodes. Callbacks, events and spans are those of any
    retriever.

    Example:
        .. code-block:: python

            retriever = DreamChromaRetriever.from_index(index, similarity_top_k=4)
            engine = RetrieverQueryEngine.from_args(retriever)
            response = engine.query("Which patients had a void output?")
            retriever.feedback(response, success=True)
            report = retriever.sweep()  # offline: poison decays
            retriever.bank.undo(report.run_id)  # and comes back, if you want it

    Args:
        bank: The bank over the index's collection.
        similarity_top_k: How many nodes are returned.
        filters: LlamaIndex's metadata filters, or a Chroma filter, on top of the tenant's.
        where_document: Chroma document filter.
        embed_model: Embeds queries: a LlamaIndex model, or an embedder of the core. Default: the bank's.
        reranker: An object with ``score(query, texts)``, each in [0, 1]; the weights apply to it too.
        track_access: Count retrievals in the bank's statistics.
        callback_manager: LlamaIndex's.
        objects: LlamaIndex's: what index nodes stand for.
        object_map: LlamaIndex's: the same by id.
        verbose: LlamaIndex's.
        **options: Fields of ``RetrievalConfig`` but ``k``, such as ``search_type`` and ``score_threshold``.

    Raises:
        ConfigError: An option that no search would take, or nothing embeds queries.
    """

    def __init__(
        self,
        bank: MemoryBank,
        *,
        similarity_top_k: int = 4,
        filters: Filters | None = None,
        where_document: Mapping[str, Any] | None = None,
        embed_model: BaseEmbedding | Embedder | None = None,
        reranker: Reranker | None = None,
        track_access: bool = True,
        callback_manager: CallbackManager | None = None,
        objects: list[IndexNode] | None = None,
        object_map: dict[str, Any] | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        from shared_core import BankRetriever, MemoryBank
        from shared_core.retrieval.given_scores import GivenScores

        if not isinstance(bank, MemoryBank):
            raise ConfigError(
                f"DreamChromaRetriever takes a MemoryBank, not {type(bank).__name__}: for an index use "
                "from_index"
            )
        super().__init__(
            callback_manager=callback_manager, objects=objects, object_map=object_map, verbose=verbose
        )
        self._where = to_where(filters)
        self._where_document = where_document
        self._queries = QueryEmbedder(bank.embedder if embed_model is None else embed_model)
        if self._queries.model is None:
            raise ConfigError(
                "nothing embeds queries: give embed_model=..., or open the bank with an embedder"
            )
        self._search = BankRetriever(
            bank, _config(similarity_top_k, options), reranker=reranker, track_access=track_access
        )
        self._given = GivenScores()
        self.similarity_top_k = similarity_top_k

    @classmethod
    def from_index(
        cls,
        index: VectorStoreIndex,
        *,
        where: Mapping[str, Any] | None = None,
        state_url: str | None = None,
        value_key: str | None = None,
        origin_key: str | None = None,
        quarantine: float | None = None,
        embed_model: BaseEmbedding | None = None,
        **options: Any,
    ) -> DreamChromaRetriever:
        """Wrap an index over a Chroma collection, with its own embedding model.

        Args:
            index: A ``VectorStoreIndex`` whose vector store is Chroma's.
            where: Chroma filter of one tenant: nothing outside it is retrieved, swept or changed.
            state_url: SQLAlchemy URL of weights and journal; default: beside an embedded collection.
            value_key: Metadata field that holds a memory's value (its answer), where there is one.
            origin_key: Metadata field that says who wrote a memory, where there is one.
            quarantine: Weight of memories that no sweep has seen yet, from now on.
            embed_model: Default: the index's.
            **options: As for the class.

        Raises:
            UnsupportedStoreError: The vector store is not Chroma.
            StateError: The state database cannot be opened, or is not named where there is no default.
        """
        from shared_core import MemoryBank

        # LlamaIndex offers no public way to an index's embedding model
        model = index._embed_model if embed_model is None else embed_model
        bank = MemoryBank.from_collection(
            collection_of(index.vector_store),
            where=where,
            state_url=state_url,
            value_key=value_key,
            origin_key=origin_key,
            quarantine=quarantine,
            embedder=as_embedder(model),
        )
        return cls(bank, embed_model=model, **options)

    @property
    def bank(self) -> MemoryBank:
        """The memory bank: weights, journal, undo."""
        return self._search.bank

    # ---- retrieval

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._found(query_bundle, self._queries.embed(query_bundle))

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        vector = await self._queries.aembed(query_bundle)
        return await asyncio.to_thread(self._found, query_bundle, vector)

    def _found(self, query: QueryBundle, vector: FloatArray | None) -> list[NodeWithScore]:
        if vector is None:
            return []
        hits = self._search.search_by_vector(
            vector,
            query=query.query_str,
            where=self._where,
            where_document=self._where_document,
            k=self.similarity_top_k,
        )
        self._given.remember({hit.id: hit.score for hit in hits})
        return to_nodes(hits)

    # ---- learning and forgetting

    def feedback(
        self, response: Any, success: bool | float, config: ConsolidationConfig | None = None
    ) -> Run:
        """Tell how a task went; see ``record_feedback``. Scores are those that this retriever gave."""
        return record_feedback(self.bank, response, success, config, given=self._given)

    async def afeedback(
        self, response: Any, success: bool | float, config: ConsolidationConfig | None = None
    ) -> Run:
        """``feedback`` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.feedback, response, success, config)

    def sweep(
        self,
        config: ForgettingConfig | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> SweepReport:
        """Run one forgetting sweep over the bank: one transaction, one ``bank.undo``.

        Raises:
            BankLockedError: Another dreamer is at work.
            ConfigError: Preset ``hardened``, and the embedding model is not the index's.
        """
        return self.bank.sweep(config, dry_run=dry_run, progress=progress)

    async def asweep(self, config: ForgettingConfig | None = None, **options: Any) -> SweepReport:
        """``sweep`` in a thread, without blocking the event loop."""
        return await self.bank.asweep(config, **options)


def collection_of(vector_store: Any) -> Any:
    """Return the Chroma collection of LlamaIndex's Chroma vector store.

    Raises:
        UnsupportedStoreError: It is another vector store.
    """
    collection = getattr(vector_store, "client", None)
    if type(collection).__module__.partition(".")[0] != "chromadb":
        raise UnsupportedStoreError(
            f"{type(vector_store).__name__} is not Chroma, over which a memory bank is opened: keep these "
            "memories in a ChromaVectorStore"
        )
    return collection


def _config(k: int, options: dict[str, Any]) -> RetrievalConfig:
    known = RetrievalConfig.__dataclass_fields__.keys() - {"k"}
    if unknown := sorted(options.keys() - known):
        raise ConfigError(f"unknown option {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    if options.get("search_type") == "similarity_score_threshold" and "score_threshold" not in options:
        raise ConfigError("search_type='similarity_score_threshold' needs score_threshold")
    return RetrievalConfig(k=k, **options)
