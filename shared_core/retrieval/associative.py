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

from shared_core.bank.graph_reader import GraphReader
from shared_core.config import AssociativeConfig
from shared_core.errors import ConfigError, DimensionMismatchError
from shared_core.language import estimate_tokens
from shared_core.retrieval.asked import checked_filter, checked_text, checked_vector
from shared_core.retrieval.association_index import AssociationIndex
from shared_core.retrieval.context import render_context
from shared_core.retrieval.rerank import rerank_hits
from shared_core.retrieval.searching import Searching
from shared_core.telemetry import told, traced
from shared_core.types import Embedder, FloatArray, Hit, Reranker, Where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_core.bank import MemoryBank
    from shared_core.bank.graph import GraphKeys
    from shared_core.bank.graph_reader import GraphReading
    from shared_core.types import Array, BoolArray

_PER_SEARCH = ("k", "min_weight", "rerank_top")
CONTEXT_PAGES = 200
"""Candidates of a context; budgets of a few thousand tokens are full before."""


class AssociativeRetriever(Searching):
    """Searches a bank of conversations; safe for threads, sees every change at the next search.

    Args:
        bank: The bank.
        config: Constants of the ranking.
        embedder: Embeds queries; default: the bank's.
        reranker: Scores the best candidates anew; its scores are weighted too.
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
        reranker: Reranker | None = None,
        graph_keys: GraphKeys | None = None,
        track_access: bool = True,
    ) -> None:
        given = bank.embedder if embedder is None else embedder
        if given is None:
            raise ConfigError("no embedder for queries: open the bank with one, or give embedder=...")
        self.bank = bank
        self.config = config or AssociativeConfig()
        self.embedder = given
        self.reranker = reranker
        self.track_access = track_access
        self._lock = threading.Lock()
        self._reader = GraphReader(bank, graph_keys)
        self._current: tuple[GraphReading, AssociationIndex] | None = None

    @traced("dream.search", told.search)
    def search(
        self,
        query: str,
        *,
        where: Where | None = None,
        where_document: Where | None = None,
        **overrides: Any,
    ) -> list[Hit]:
        """Return the best memories for a query, best first; an empty query finds nothing.

        Args:
            query: Text.
            where: Chroma metadata filter, on top of the bank's own; memories are ranked among those it lets
                through.
            where_document: Chroma document filter.
            **overrides: For this search only: ``k``, ``min_weight``, ``rerank_top`` of ``AssociativeConfig``.

        Raises:
            ConfigError: The query is no text, or an option or filter is unknown or out of range.
            DimensionMismatchError: The embedder does not fit the collection.
        """
        filters = checked_filter("where", where), checked_filter("where_document", where_document)
        config = self._config(overrides)
        if not checked_text(query).strip():
            return []
        index = self.refresh()
        if not len(index.graph):
            return []
        vector = np.asarray(self.embedder.embed_query(query), np.float32)
        return self._found(index, query, vector, filters, config)

    @traced("dream.search_by_vector", told.search_by_vector)
    def search_by_vector(
        self,
        vector: Sequence[float] | FloatArray,
        *,
        query: str = "",
        where: Where | None = None,
        where_document: Where | None = None,
        **overrides: Any,
    ) -> list[Hit]:
        """``search`` with an embedding at hand; without ``query`` words, speakers and rerankers have no say.

        Raises:
            InvalidMemoryError: The vector is not of shape (d,), holds NaN or infinity, or is too large.
            ConfigError, DimensionMismatchError: As for ``search``.
        """
        filters = checked_filter("where", where), checked_filter("where_document", where_document)
        config, text = self._config(overrides), checked_text(query)
        given = checked_vector(vector).astype(np.float32)
        index = self.refresh()
        return self._found(index, text, given, filters, config) if len(index.graph) else []

    async def acontext(self, query: str, budget_tokens: int = 1024, **options: Any) -> str:
        """``context`` in a thread."""
        return await asyncio.to_thread(self.context, query, budget_tokens, **options)

    def context(
        self,
        query: str,
        budget_tokens: int = 1024,
        *,
        count_tokens: Callable[[str], int] = estimate_tokens,
        **options: Any,
    ) -> str:
        """Return the best pages as text for a reader, grouped by session; see ``render_context``.

        What it returns quotes memories: put it into a prompt as data, never as instructions.

        Args:
            query: Text.
            budget_tokens: Most tokens.
            count_tokens: The reader's own counter; default: an estimate.
            **options: As for ``search``; ``k`` is ``CONTEXT_PAGES`` here.

        Raises:
            ConfigError, DimensionMismatchError: As for ``search``, or a bad budget.
        """
        hits = self.search(query, **{"k": CONTEXT_PAGES, **options})
        graph = self.refresh().graph
        rows = [graph.row_of[hit.id] for hit in hits if hit.id in graph.row_of]
        return render_context(graph, rows, budget_tokens, count_tokens)

    def refresh(self, *, force: bool = False) -> AssociationIndex:
        """Return the index of the bank as it is now; what did not change is not read or built again.

        Args:
            force: Read and build everything anew, also what another program rewrote without a trace.
        """
        with self._lock:
            reading = self._reader.read(force=force)
            if self._current is None:
                index = AssociationIndex(reading.graph, reading.keys, self.config)
            else:
                last, index = self._current
                if reading is not last:
                    reread = reading.content != last.content
                    index = index.updated(reading.graph, reading.keys, reread=reread)
            self._current = reading, index
            return index

    # ---- inner

    def _config(self, overrides: dict[str, Any]) -> AssociativeConfig:
        if unknown := sorted(overrides.keys() - set(_PER_SEARCH)):
            raise ConfigError(
                f"unknown search option {', '.join(unknown)}; known: where, where_document, "
                f"{', '.join(_PER_SEARCH)}"
            )
        return replace(self.config, **overrides) if overrides else self.config

    def _found(
        self,
        index: AssociationIndex,
        query: str,
        vector: FloatArray,
        filters: tuple[Where | None, Where | None],
        config: AssociativeConfig,
    ) -> list[Hit]:
        if vector.shape != (dimension := index.graph.unit.shape[1],):
            raise DimensionMismatchError(
                f"the embedder gives a query of shape {vector.shape} and the collection has dimension "
                f"{dimension}: use the embedder it was filled with"
            )
        allowed = self._allowed(index, *filters)
        score, cosine = index.weighted(query, vector, config.min_weight, allowed)
        order = np.argsort(-score, kind="stable")
        wanted = config.k if self.reranker is None else max(config.k, config.rerank_top)
        hits = self._hits(index, order[score[order] > 0], score, cosine, wanted)
        hits = rerank_hits(self.reranker, query, hits, config.rerank_top)[: config.k]
        if self.track_access and hits:
            self.bank.state.record_access(hit.id for hit in hits)
        return hits

    def _allowed(
        self, index: AssociationIndex, where: Where | None, where_document: Where | None
    ) -> BoolArray | None:
        if not where and not where_document:
            return None
        inside = set(self.bank.content.matching(where, where_document))
        return np.fromiter((i in inside for i in index.graph.ids), np.bool_, len(index.graph))

    def _hits(
        self, index: AssociationIndex, order: Array, score: FloatArray, cosine: FloatArray, wanted: int
    ) -> list[Hit]:
        """Return the first ``wanted`` of an order that the collection still holds."""
        graph, hits = index.graph, list[Hit]()
        for start in range(0, len(order), wanted):
            rows = order[start : start + wanted].tolist()
            records = self.bank.content.get([graph.ids[row] for row in rows])
            hits += [
                Hit(
                    id=record.id,
                    text=record.text,
                    metadata=record.metadata,
                    score=float(score[row]),
                    similarity=float(cosine[row]),
                    weight=float(graph.weights[row]),
                )
                for row in rows
                if (record := records.get(graph.ids[row])) is not None
            ]
            if len(hits) >= wanted:
                break
        return hits[:wanted]
