"""Weighted retrieval from a memory bank: dense, hybrid, MMR, reranked (design section 2).

Joins the pure ranking functions to a bank. Scores are our own cosines times weights; what ranks a memory
here is exact over the index's order, or over every embedding with ``backend="scan"``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.bank.hot_records import HotRecords
from shared_core.bank.watch import CollectionChange
from shared_core.config import RetrievalConfig
from shared_core.errors import ConfigError
from shared_core.retrieval.asked import checked_filter, checked_text, checked_vector
from shared_core.retrieval.associative import AssociativeRetriever
from shared_core.retrieval.dense import DenseSearch
from shared_core.retrieval.hybrid import RankFusion
from shared_core.retrieval.keywords import KeywordSearch
from shared_core.retrieval.mmr import mmr
from shared_core.retrieval.rerank import rerank_hits
from shared_core.retrieval.searching import Searching
from shared_core.retrieval.topk import Candidates, WeightsOf, widening_top_k
from shared_core.telemetry import told, traced
from shared_core.types import Embedder, FloatArray, Hit, Reranker, Where

if TYPE_CHECKING:
    from shared_core.bank import CollectionWatch, MemoryBank
    from shared_core.retrieval.vectors import ResidentVectors

SEARCH_OPTIONS = {field.name for field in fields(RetrievalConfig)} - {"backend"}
UNBOUNDED = 2**31 - 1
"""More memories than any collection holds; a depth of search, never a size of memory."""
MARGIN = 8
"""How many more than k are asked of the index at first: suppressed memories take up places."""
UNEVEN = 0.1
"""Share of reduced memories from which the index is asked for more at once."""
DEEPER = 96
"""How many these are: below the 100 that Chroma's index looks at anyway, where a few more cost nothing."""


@dataclass(frozen=True)
class _Query:
    text: str
    vector: FloatArray
    where: Where | None
    where_document: Where | None
    config: RetrievalConfig


class BankRetriever(Searching):
    """Searches one bank; safe for threads, sees every change of weights at once, by whatever process.

    Args:
        bank: The bank.
        config: Defaults of every search.
        embedder: Embeds queries; default: the bank's.
        reranker: Scores the best candidates anew; its scores are weighted too.
        track_access: Count retrievals in the bank's statistics.
    """

    def __init__(
        self,
        bank: MemoryBank,
        config: RetrievalConfig | None = None,
        *,
        embedder: Embedder | None = None,
        reranker: Reranker | None = None,
        track_access: bool = True,
    ) -> None:
        self.bank = bank
        self.config = config or RetrievalConfig()
        self.embedder = bank.embedder if embedder is None else embedder
        self.reranker = reranker
        self.track_access = track_access
        self._hot = HotRecords(bank.content)
        self._dense = DenseSearch(bank, self.config.backend, self._hot)
        self._keywords = KeywordSearch(bank)
        self._refreshing = threading.Lock()
        self._behind = False

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
            where: Chroma metadata filter, on top of the bank's own.
            where_document: Chroma document filter.
            **overrides: Any field of ``RetrievalConfig``, for this search only.

        Raises:
            ConfigError: A bad option or filter, or no embedder.
            DimensionMismatchError: The embedder does not fit the collection.
        """
        if not checked_text(query).strip():
            return []
        return self.search_by_vector(
            self.embed(query), query=query, where=where, where_document=where_document, **overrides
        )

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
        """``search`` with an embedding at hand; keywords and rerankers still need ``query``.

        Raises:
            InvalidMemoryError: The vector is not of shape (d,), holds NaN or infinity, or is too large.
            ConfigError, DimensionMismatchError: As for ``search``.
        """
        request = _Query(
            checked_text(query),
            checked_vector(vector),
            checked_filter("where", where),
            checked_filter("where_document", where_document),
            self._config(overrides),
        )
        if request.config.search_type == "associative":
            return self._associated(request)
        hybrid = request.config.search_type == "hybrid"
        self._take_up(force=False, scanned=hybrid or self._dense.scans)
        hits = self._hybrid(request) if hybrid else self._similar(request)
        if self.track_access and hits:
            self.bank.state.record_access(hit.id for hit in hits)
        return hits

    @cached_property
    def _watch(self) -> CollectionWatch:
        # lists every id, so not before the first search
        watch = self.bank.watch()
        self._dense.survey(watch.ids)
        return watch

    def refresh(self, *, force: bool = True) -> None:
        """Take up documents that others added, removed or rewrote.

        Every search does so as far as it is told of changes; ``force`` reads all texts and embeddings anew.
        """
        self._take_up(force=force, scanned=False)

    def _take_up(self, *, force: bool, scanned: bool) -> None:
        with self._refreshing:
            force = force or self._behind
            watch = self._watch
            # a change is told once: until it is taken up whole, the next search must read all anew
            self._behind = True
            change = watch.poll()
            if change.touched and self._dense.unwritten():
                change = CollectionChange()
            force = force or (change.touched and self._dense.must_be_told)
            if not force:
                self._dense.update(change)
                self._keywords.update(change)
            if force or (scanned and not self._dense.hold_cached(watch.ids)):
                self._read_anew(watch, hold=scanned)
            elif not scanned:
                self._dense.searched(watch.ids)
            self._behind = False

    def _read_anew(self, watch: CollectionWatch, *, hold: bool) -> None:
        version = self._dense.cached_version(watch.ids)
        with self.bank.content.anew() as fresh:
            # opening it writes to the file, so that the watch must look after that
            watch.poll(force=True)
            self._dense.survey(watch.ids, fresh, hold=hold)
        self._dense.cache(version)
        self._keywords.reload()

    def embed(self, query: str) -> FloatArray:
        """Return the query's embedding, shape (d,).

        Raises:
            ConfigError: There is no embedder.
        """
        if self.embedder is None:
            raise ConfigError("no embedder for queries: open the bank, or its vector store, with one")
        return np.asarray(self.embedder.embed_query(query), float)

    # ---- inner

    def _config(self, overrides: dict[str, Any]) -> RetrievalConfig:
        if "backend" in overrides:
            raise ConfigError("backend belongs to the retriever's config, not to one search")
        if unknown := sorted(overrides.keys() - SEARCH_OPTIONS):
            raise ConfigError(
                f"unknown search option {', '.join(unknown)}; known: where, where_document, "
                f"{', '.join(sorted(SEARCH_OPTIONS))}"
            )
        return replace(self.config, **overrides) if overrides else self.config

    @cached_property
    def _associative(self) -> AssociativeRetriever:
        return AssociativeRetriever(
            self.bank, embedder=self.embedder, reranker=self.reranker, track_access=self.track_access
        )

    def _associated(self, request: _Query) -> list[Hit]:
        config = request.config
        return self._associative.search_by_vector(
            request.vector,
            query=request.text,
            where=request.where,
            where_document=request.where_document,
            k=config.k,
            min_weight=config.min_weight,
            rerank_top=config.rerank_top,
        )

    def _similar(self, request: _Query) -> list[Hit]:
        config = request.config
        diverse = config.search_type == "mmr"
        k = max(config.k, config.fetch_k) if diverse else config.k
        if self.reranker is not None:
            k = max(k, config.rerank_top)
        hits = self._held(lambda gone: self._candidates(request, k, gone))
        if diverse:
            hits = self._diverse(hits, request)
        return self._reranked(hits, request)[: config.k]

    def _held(self, ranked: Callable[[set[str]], Candidates]) -> list[Hit]:
        """Return the best memories that the collection still holds; ``ranked(gone)`` leaves some out."""
        gone: set[str] = set()
        while True:
            found = ranked(gone)
            records = self._hot.get(found.keys)
            missing = [key for key in found.keys if key not in records]
            if not missing:
                break
            gone.update(missing)
        return [
            Hit(
                id=key,
                text=records[key].text,
                metadata=records[key].metadata,
                score=float(found.score[row]),
                similarity=float(found.similarity[row]),
                weight=float(found.weight[row]),
            )
            for row, key in enumerate(found.keys)
        ]

    def _candidates(self, request: _Query, k: int, gone: set[str]) -> Candidates:
        filters = request.where, request.where_document
        resident = self._dense.resident(request.vector, *filters)
        if resident is not None:
            return self._scanned(resident, request, k, gone)
        shown = asked = 0

        def fetch(n: int) -> tuple[Sequence[str], FloatArray]:
            nonlocal shown, asked
            keys, similarity = self._dense.nearest(request.vector, n, *filters)
            shown, asked = len(keys), n
            return keys, similarity

        found = widening_top_k(
            fetch,
            self._weights_but(gone),
            k,
            total=UNBOUNDED,
            first=self._first_depth(k),
            min_weight=request.config.min_weight,
            threshold=request.config.score_threshold,
        )
        if shown < asked and shown < self._expected(request):
            # a graph index may stop before it has shown every memory there is
            return self._scanned(self._dense.held(request.vector), request, k, gone)
        return found

    def _scanned(self, resident: ResidentVectors, request: _Query, k: int, gone: set[str]) -> Candidates:
        return resident.best(
            request.vector,
            self.bank.state.columns(),
            k,
            allowed=self._dense.allowed(request.where, request.where_document),
            gone=gone,
            min_weight=request.config.min_weight,
            threshold=request.config.score_threshold,
        )

    def _first_depth(self, k: int) -> int:
        columns = self.bank.state.columns()
        uneven = columns.unseen_weight < 1.0 or columns.reduced > UNEVEN * len(self._watch.ids)
        return max(2 * k, k + MARGIN, DEEPER if uneven else 0)

    def _expected(self, request: _Query) -> int:
        if request.where or request.where_document:
            return len(self.bank.content.matching(request.where, request.where_document))
        return len(self._watch.ids)

    def _diverse(self, hits: list[Hit], request: _Query) -> list[Hit]:
        vectors = self._dense.embeddings([hit.id for hit in hits])
        # what has no direction resembles nothing, and would always count as diverse
        known = {key for key, vector in vectors.items() if np.isfinite(vector).all() and vector.any()}
        hits = [hit for hit in hits if hit.id in known]
        if not hits:
            return []
        rows = mmr(
            np.array([hit.score for hit in hits]),
            np.stack([vectors[hit.id] for hit in hits]),
            request.config.k if self.reranker is None else max(request.config.k, request.config.rerank_top),
            request.config.lambda_mult,
        )
        return [hits[row] for row in rows]

    def _hybrid(self, request: _Query) -> list[Hit]:
        """Rank by reciprocal rank fusion * w, over the whole ranking of each arm.

        A memory that one arm ranks first may stand anywhere in the other, and its place there counts. So
        every embedding is scanned; every text is in memory already, for the keywords.
        """
        config = request.config
        scan = self._dense.scan(request.vector, request.where, request.where_document)
        fusion = RankFusion(scan, self._keywords.ranks(request.text, scan.ids, scan.rows), config)
        k = config.k if self.reranker is None else max(config.k, config.rerank_top)
        hits = self._held(lambda gone: fusion.best(self._weights_but(gone), k))
        return self._reranked(hits, request)[: config.k]

    def _weights_but(self, gone: set[str]) -> WeightsOf:
        """Return a function that gives effective weights, 0 for what is gone."""
        columns = self.bank.state.columns()

        def weights_of(keys: Sequence[str]) -> FloatArray:
            weights = columns.effective_weights(keys)
            return weights * np.array([key not in gone for key in keys]) if gone else weights

        return weights_of

    def _reranked(self, hits: list[Hit], request: _Query) -> list[Hit]:
        return rerank_hits(self.reranker, request.text, hits, request.config.rerank_top)
