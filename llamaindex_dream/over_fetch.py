"""A retriever that fetches as deep as it must, so that K nodes are left after weighting."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]

from llamaindex_dream.queries import QueryEmbedder, with_embedding
from shared_core.config import checked_whole
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from llama_index.core.indices.base import BaseIndex
    from llama_index.core.schema import NodeWithScore, QueryBundle

    from llamaindex_dream.postprocessor import DreamPostprocessor
    from llamaindex_dream.ranking import Ranking

dispatcher = get_dispatcher(__name__)

MARGIN = 8
"""How many more than K are fetched at first: forgotten memories take up places."""


class OverFetchRetriever(BaseRetriever):
    """Another retriever's nodes, weighted, K of them; made by ``DreamPostprocessor.over_fetch``.

    The depth doubles until K nodes are left whose scores nothing further back could reach, or the source has
    no more. Over a source that ranks by cosine that is the weighted top-K; over any other, and with hybrid
    scoring or a reranker, it is the first K of what was fetched.
    """

    def __init__(
        self,
        postprocessor: DreamPostprocessor,
        source: BaseIndex[Any] | BaseRetriever,
        top_k: int,
        **retriever_options: Any,
    ) -> None:
        checked_whole("top_k", top_k)
        if not isinstance(source, BaseRetriever):
            if not hasattr(source, "as_retriever"):
                raise ConfigError(f"over_fetch takes an index or a retriever, not {type(source).__name__}")
            source = source.as_retriever(**retriever_options)
        elif retriever_options:
            raise ConfigError(
                f"{', '.join(sorted(retriever_options))}: a retriever has its options already; give the index"
            )
        if not hasattr(source, "similarity_top_k"):
            raise ConfigError(
                f"{type(source).__name__} has no similarity_top_k, so it cannot be asked for more nodes"
            )
        super().__init__(callback_manager=source.callback_manager)
        self._postprocessor = postprocessor
        # LlamaIndex offers no public way to a retriever's embedding model
        self._queries = QueryEmbedder(getattr(source, "_embed_model", None))
        self._source = source
        self.similarity_top_k = top_k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        step = self._postprocessor
        vector = step.embed(query_bundle, self._queries)
        asked = with_embedding(query_bundle, vector)
        depth, before = self._first_depth(), -1
        while True:
            nodes = self._to(depth).retrieve(asked)
            ranked = step.rank(nodes, asked, vector)
            if self._settled(ranked, len(nodes), depth, before):
                return step.returned(ranked, self.similarity_top_k)
            depth, before = 2 * depth, len(nodes)

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        step = self._postprocessor
        vector = await step.aembed(query_bundle, self._queries)
        asked = with_embedding(query_bundle, vector)
        depth, before = self._first_depth(), -1
        while True:
            nodes = await self._to(depth).aretrieve(asked)
            ranked = await asyncio.to_thread(step.rank, nodes, asked, vector)
            if self._settled(ranked, len(nodes), depth, before):
                return step.returned(ranked, self.similarity_top_k)
            depth, before = 2 * depth, len(nodes)

    def _first_depth(self) -> int:
        return max(2 * self.similarity_top_k, self.similarity_top_k + MARGIN)

    def _to(self, depth: int) -> Any:
        # a copy: the source may serve others at the same time
        source: Any = copy.copy(self._source)
        source.similarity_top_k = depth
        return source

    def _settled(self, ranked: Ranking, fetched: int, depth: int, before: int) -> bool:
        if fetched < depth or fetched <= before:
            return True
        if len(ranked.kept) < self.similarity_top_k:
            return False
        return (ranked.kept[self.similarity_top_k - 1].score or 0.0) >= ranked.bound
