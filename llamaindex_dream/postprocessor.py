"""``DreamPostprocessor``: weighs what a LlamaIndex retriever found, by the weights of a memory bank.

Translates LlamaIndex's queries, events and configuration; the ranking is in ``ranking``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
)
from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llamaindex_dream.feedback import record_feedback
from llamaindex_dream.location import BankLocation
from llamaindex_dream.models import as_embedder
from llamaindex_dream.over_fetch import OverFetchRetriever
from llamaindex_dream.queries import QueryEmbedder
from llamaindex_dream.ranking import (
    Forgotten,
    NodeRanker,
    Ranking,
    RankingOptions,
    Scoring,
    check_scoring,
)
from shared_core.errors import ConfigError, refusal_of

if TYPE_CHECKING:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.indices.base import BaseIndex

    from shared_core import ConsolidationConfig, Embedder, MemoryBank, Reranker, Run
    from shared_core.retrieval.given_scores import GivenScores
    from shared_core.types import FloatArray

dispatcher = get_dispatcher(__name__)
logger = logging.getLogger(__name__)


class DreamPostprocessor(BaseNodePostprocessor):
    """Re-score nodes by the weight of their memory, and drop or demote forgotten ones.

    A node's score becomes w * max(0, cos). The query's embedding is taken from the query, else made by
    ``embed_model``, else by the bank's embedder, so that synchronous and asynchronous engines rank alike.
    Where none of them is there, the retriever's own scores are weighted. In a tenant's bank (one opened with
    ``where``) nodes outside the tenant are dropped too.

    Retrieve more than you need, so that what is forgotten leaves no gap: ``over_fetch`` does that.

    Example:
        .. code-block:: python

            weigh = DreamPostprocessor(bank, top_n=4)
            engine = index.as_query_engine(similarity_top_k=20, node_postprocessors=[weigh])
            response = engine.query("Which patients had a void output?")
            weigh.feedback(response, success=True)

    Args:
        bank: The bank over the same Chroma collection as the index.
        embed_model: Embeds queries: a LlamaIndex model, or an embedder of the core. Default: the bank's.
        reranker: An object with ``score(query, texts)``, each in [0, 1]; the weights apply to it too.
        **options: The fields below.

    Raises:
        ConfigError: No bank and no location of one, an embedder that is none, an option that there is not,
            or a value that makes no sense.
        BankNotFoundError: The location that a configuration names is not there.
    """

    top_n: int | None = Field(default=None, ge=1, description="How many nodes are kept; None: all.")
    min_weight: float = Field(default=0.01, ge=0.0, le=1.0, description="Below it a memory is forgotten.")
    forgotten: Forgotten = Field(
        default="drop",
        description="drop: forgotten nodes go; demote: they come last. Weight 0 always goes.",
    )
    scoring: Scoring = Field(
        default="auto",
        description=(
            "What is weighted. cosine: of the query and the stored embedding. given: the retriever's own "
            "score, of which 0 or more can be weighted. logit: the sigmoid of it, for cross-encoders. auto: "
            "cosine where the query has an embedding or can get one, else given."
        ),
    )
    hybrid: bool = Field(
        default=False,
        description="Fuse similarity with BM25 over the given nodes by reciprocal rank, then weigh.",
    )
    rrf_k: float = Field(default=60.0, gt=0.0, description="Constant of reciprocal rank fusion.")
    rrf_weights: tuple[float, float] = Field(
        default=(1.0, 1.0), description="Weights of similarity and BM25 in the fusion."
    )
    rerank_top: int = Field(default=20, ge=1, description="How many candidates the reranker sees.")
    track_access: bool = Field(default=True, description="Count retrievals in the bank's statistics.")
    location: BankLocation | None = Field(
        default=None,
        description="Where the bank is, if over an embedded collection with its state beside it.",
    )

    _bank: MemoryBank = PrivateAttr()
    _queries: QueryEmbedder = PrivateAttr()
    _ranker: NodeRanker = PrivateAttr()
    _given: GivenScores = PrivateAttr()
    _warned: bool = PrivateAttr(default=False)

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", validate_assignment=True)

    def __init__(
        self,
        bank: MemoryBank | None = None,
        *,
        embed_model: BaseEmbedding | Embedder | None = None,
        reranker: Reranker | None = None,
        **options: Any,
    ) -> None:
        from shared_core import MemoryBank
        from shared_core.retrieval.given_scores import GivenScores

        try:
            super().__init__(**options)
        except ValidationError as error:
            raise refusal_of(error, type(self).model_fields) from None
        if bank is None:
            if self.location is None:
                raise ConfigError(
                    "DreamPostprocessor needs a MemoryBank: open one with "
                    "MemoryBank.from_collection(collection)"
                )
            bank = self.location.open(_core(embed_model))
        elif not isinstance(bank, MemoryBank):
            raise ConfigError(
                f"DreamPostprocessor takes a MemoryBank, not {type(bank).__name__}: open one with "
                "MemoryBank.from_collection(collection)"
            )
        self.location = BankLocation.of(bank)
        self._bank = bank
        self._queries = QueryEmbedder(bank.embedder if embed_model is None else embed_model)
        self._given = GivenScores()
        self._ranker = NodeRanker(bank, self._queries, reranker)

    @field_validator("rrf_weights")
    @classmethod
    def _check_weights(cls, given: tuple[float, float]) -> tuple[float, float]:
        if min(given) < 0 or max(given) <= 0:
            raise ValueError(f"rrf_weights={given!r} must be two numbers, 0 or more, not both 0")
        return given

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises the class."""
        return "DreamPostprocessor"

    @property
    def bank(self) -> MemoryBank:
        """The memory bank: weights, sweeps, undo."""
        return self._bank

    def over_fetch(
        self, source: BaseIndex[Any] | BaseRetriever, top_k: int = 4, **retriever_options: Any
    ) -> OverFetchRetriever:
        """Return a retriever of ``top_k`` nodes after weighting: it fetches more where that is needed.

        It weighs already, so put it into an engine *without* this postprocessor.

        Args:
            source: An index, or a retriever with a ``similarity_top_k``.
            top_k: How many nodes remain, where there are so many that are not forgotten.
            **retriever_options: Of ``index.as_retriever``, such as ``filters``.

        Raises:
            ConfigError: top_k below 1, or a source whose depth cannot be set.
        """
        return OverFetchRetriever(self, source, top_k, **retriever_options)

    # ---- learning

    def feedback(
        self, response: Any, success: bool | float, config: ConsolidationConfig | None = None
    ) -> Run:
        """Tell how a task went; see ``record_feedback``. Scores are those that this object gave."""
        return record_feedback(self._bank, response, success, config, given=self._given)

    async def afeedback(
        self, response: Any, success: bool | float, config: ConsolidationConfig | None = None
    ) -> Run:
        """``feedback`` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.feedback, response, success, config)

    # ---- what LlamaIndex calls

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        with self._told(nodes, query_bundle) as result:
            ranked = self.rank(nodes, query_bundle, self.embed(query_bundle))
            result.extend(self.returned(ranked, self.top_n))
        return result

    @dispatcher.span
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        with self._told(nodes, query_bundle) as result:
            vector = await self.aembed(query_bundle)
            ranked = await asyncio.to_thread(self.rank, nodes, query_bundle, vector)
            result.extend(self.returned(ranked, self.top_n))
        return result

    # ---- steps, which an over-fetching retriever takes one by one

    def embed(self, query: QueryBundle | None, other: QueryEmbedder | None = None) -> FloatArray | None:
        """Return the query's embedding as far as the scoring needs one.

        Args:
            query: The query.
            other: Embeds it where neither ``embed_model`` nor the bank's embedder is there.
        """
        chosen = self._embedder(other)
        return None if chosen is None else chosen.embed(query)

    async def aembed(
        self, query: QueryBundle | None, other: QueryEmbedder | None = None
    ) -> FloatArray | None:
        """``embed`` without blocking the event loop."""
        chosen = self._embedder(other)
        return None if chosen is None else await chosen.aembed(query)

    def _embedder(self, other: QueryEmbedder | None) -> QueryEmbedder | None:
        if self.scoring not in {"auto", "cosine"}:
            return None
        return self._queries if self._queries.model is not None or other is None else other

    def rank(
        self, nodes: list[NodeWithScore], query: QueryBundle | None, vector: FloatArray | None
    ) -> Ranking:
        """Rank nodes; counts nothing and remembers nothing."""
        text = "" if query is None else query.query_str
        used = check_scoring(self.scoring, vector)
        if used is None and self.scoring == "auto" and text and not self._warned:
            self._warned = True
            logger.warning(
                "DreamPostprocessor has no embedder, so the retriever's own scores count: open the bank "
                "with an embedder, give embed_model=..., or say so with scoring='given'"
            )
        options = RankingOptions(**{name: getattr(self, name) for name in RankingOptions.__annotations__})
        return self._ranker.rank(nodes, text, used, options)

    def returned(self, ranked: Ranking, n: int | None) -> list[NodeWithScore]:
        """Return the first ``n`` nodes, count them as retrieved and remember their scores."""
        nodes = ranked.best(n)
        if self.track_access:
            ids = (found.node.node_id for found in nodes)
            self._bank.state.record_access(memory_id for memory_id in ids if memory_id in ranked.held)
        self._given.remember({found.node.node_id: found.score or 0.0 for found in nodes})
        return nodes

    @contextmanager
    def _told(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> Iterator[list[NodeWithScore]]:
        """Tell callbacks and instrumentation what comes in, and what was put into the list on the way out."""
        top_n, name, result = self.top_n or len(nodes), self.class_name(), list[NodeWithScore]()
        dispatcher.event(ReRankStartEvent(query=query, nodes=nodes, top_n=top_n, model_name=name))
        payload: dict[Any, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: name,
            EventPayload.QUERY_STR: "" if query is None else query.query_str,
            EventPayload.TOP_K: top_n,
        }
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
            yield result
            event.on_end(payload={EventPayload.NODES: result})
        dispatcher.event(ReRankEndEvent(nodes=result))

    def __deepcopy__(self, memo: Any = None) -> NoReturn:
        """Refuse to be copied deeply, as to be pickled; ``copy.copy`` shares the open bank."""
        raise TypeError(
            "DreamPostprocessor holds an open bank and cannot be deep-copied: use copy.copy, or "
            "DreamPostprocessor.from_dict(it.to_dict(), bank=...) for one of its own"
        )

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: an open database cannot travel between processes."""
        raise TypeError(
            "DreamPostprocessor holds an open bank and cannot be pickled: send its configuration (to_dict) "
            "and build it with from_dict in the other process"
        )


def _core(embed_model: BaseEmbedding | Embedder | None) -> Embedder | None:
    return as_embedder(embed_model) if isinstance(embed_model, BaseEmbedding) else embed_model
