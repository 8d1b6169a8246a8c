"""Weighted retrieval over a bank of conversations, by pages, the turns around them, and what dreams wrote.

Joins ``association_index`` to a bank. Knows neither LLMs nor how a dream decides.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.bank.graph import GraphKeys, read_graph
from shared_core.config import AssociativeConfig
from shared_core.errors import ConfigError, DimensionMismatchError
from shared_core.language import estimate_tokens
from shared_core.retrieval.association_index import AssociationIndex
from shared_core.retrieval.context import render_context
from shared_core.types import Embedder, FloatArray, Hit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_core.bank import MemoryBank

_PER_SEARCH = {"k", "min_weight"}
CONTEXT_PAGES = 200
"""Candidates of a context; budgets of a few thousand tokens are full before."""


class AssociativeRetriever:
    """Searches a bank of conversations; safe for threads, sees every change at the next search.

    Args:
        bank: The bank.
        config: Constants of the ranking.
        embedder: Embeds queries; default: the bank's.
        graph_keys: Metadata fields that say where a memory belongs; default: those of our own pages.
        track_access: Count retrievals in the bank's statistics.

    Raises:
        ConfigError: There is no embedder.
    """

    def __init__(
        self,
        bank: MemoryBank,
        config: AssociativeConfig | None = None,
        *,
        embedder: Embedder | None = None,
        graph_keys: GraphKeys | None = None,
        track_access: bool = True,
    ) -> None:
        given = bank.embedder if embedder is None else embedder
        if given is None:
            raise ConfigError("no embedder for queries: open the bank with one, or give embedder=...")
        self.bank = bank
        self.config = config or AssociativeConfig()
        self.embedder = given
        self.graph_keys = graph_keys
        self.track_access = track_access
        self._lock = threading.Lock()
        self._watch = bank.watch()
        self._version = -1
        self._index: AssociationIndex | None = None

    def search(self, query: str, **overrides: Any) -> list[Hit]:
        """Return the best memories for a query, best first; an empty query finds nothing.

        Args:
            query: Text.
            **overrides: ``k`` or ``min_weight`` of ``AssociativeConfig``, for this search only.

        Raises:
            ConfigError: The query is no text, or an option is unknown or out of range.
            DimensionMismatchError: The embedder does not fit the collection.
        """
        if not isinstance(query, str):
            raise ConfigError(f"a query is text, not {query!r}")
        if unknown := sorted(overrides.keys() - _PER_SEARCH):
            raise ConfigError(f"unknown search option {', '.join(unknown)}; known: {', '.join(_PER_SEARCH)}")
        config = replace(self.config, **overrides) if overrides else self.config
        index = self.refresh()
        if not query.strip() or not len(index.graph):
            return []
        hits = self._best(index, query, self._embed(query, index), config)
        if self.track_access and hits:
            self.bank.state.record_access(hit.id for hit in hits)
        return hits

    def search_batch(self, queries: Sequence[str], **overrides: Any) -> list[list[Hit]]:
        """Return one list of hits per query; options as for ``search``."""
        return [self.search(query, **overrides) for query in queries]

    async def asearch(self, query: str, **overrides: Any) -> list[Hit]:
        """``search`` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.search, query, **overrides)

    def context(
        self,
        query: str,
        budget_tokens: int = 1024,
        *,
        count_tokens: Callable[[str], int] = estimate_tokens,
        **overrides: Any,
    ) -> str:
        """Return the best pages as text for a reader, grouped by session; see ``render_context``.

        What it returns quotes memories: put it into a prompt as data, never as instructions.

        Args:
            query: Text.
            budget_tokens: Most tokens.
            count_tokens: The reader's own counter; default: an estimate.
            **overrides: As for ``search``; ``k`` is ``CONTEXT_PAGES`` here.

        Raises:
            ConfigError, DimensionMismatchError: As for ``search``, or a bad budget.
        """
        hits = self.search(query, **{"k": CONTEXT_PAGES, **overrides})
        graph = self.refresh().graph
        rows = [graph.row_of[hit.id] for hit in hits if hit.id in graph.row_of]
        return render_context(graph, rows, budget_tokens, count_tokens)

    def refresh(self) -> AssociationIndex:
        """Return the index of the bank as it is now; read anew only where something changed."""
        with self._lock:
            change = self._watch.poll()
            version = self.bank.state.version()
            if self._index is None or change or change.touched or version != self._version:
                graph = read_graph(self.bank, self.graph_keys)
                self._index = AssociationIndex(graph, self.bank.state.retrieval_keys(), self.config)
                self._version = version
            return self._index

    # ---- inner

    def _embed(self, query: str, index: AssociationIndex) -> FloatArray:
        vector = np.asarray(self.embedder.embed_query(query), np.float32)
        if vector.shape != (dimension := index.graph.unit.shape[1],):
            raise DimensionMismatchError(
                f"the embedder gives a query of shape {vector.shape} and the collection has dimension "
                f"{dimension}: use the embedder it was filled with"
            )
        return vector

    def _best(
        self, index: AssociationIndex, query: str, vector: FloatArray, config: AssociativeConfig
    ) -> list[Hit]:
        fused, cosine = index.score(query, vector)
        weight = index.graph.weights
        alive = weight >= config.min_weight
        score = np.where(alive, index.spread(np.where(alive, fused * weight, 0.0)), 0.0)
        order = np.argsort(-score, kind="stable")
        order = order[score[order] > 0][: config.k]
        records = self.bank.content.get([index.graph.ids[row] for row in order])
        return [
            Hit(
                id=memory_id,
                text=records[memory_id].text,
                metadata=records[memory_id].metadata,
                score=float(score[row]),
                similarity=float(cosine[row]),
                weight=float(weight[row]),
            )
            for row in order.tolist()
            if (memory_id := index.graph.ids[row]) in records
        ]
