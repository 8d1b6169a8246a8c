"""Re-scores the nodes that a retriever found by the weights of a memory bank (design section 2).

Weights and embeddings are read by node id: LlamaIndex rebuilds nodes from JSON of its own, so nothing that
is written to the collection's metadata ever shows on a node. Changes no node and no score in place, and
counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from llama_index.core.schema import MetadataMode, NodeWithScore

from shared_core.errors import ConfigError, DimensionMismatchError

if TYPE_CHECKING:
    from llamaindex_dream.queries import QueryEmbedder
    from shared_core import MemoryBank, Reranker
    from shared_core.types import BoolArray, FloatArray

Scoring = Literal["auto", "cosine", "given", "logit"]
Forgotten = Literal["drop", "demote"]

_UNKNOWN = -2.0
"""Below every cosine: a node of which nothing comparable is known."""


@dataclass(frozen=True)
class RankingOptions:
    """The numbers of one ranking; meanings as for the fields of ``DreamPostprocessor``."""

    scoring: Scoring
    min_weight: float
    forgotten: Forgotten
    hybrid: bool
    rrf_k: float
    rrf_weights: tuple[float, float]
    rerank_top: int


@dataclass(frozen=True)
class Ranking:
    """Nodes by weighted score, best first."""

    kept: list[NodeWithScore]
    demoted: list[NodeWithScore]
    """Forgotten ones, where they are demoted and not dropped."""
    held: set[str]
    """Ids of those that the bank's collection holds."""
    bound: float
    """Largest score that a node could have which a retriever ranks behind all these."""

    def best(self, n: int | None) -> list[NodeWithScore]:
        """Return the first ``n`` nodes; all for None."""
        return [*self.kept, *self.demoted][:n]


class NodeRanker:
    """Ranks nodes of one bank.

    Args:
        bank: The bank.
        queries: Embeds nodes that the bank's collection does not hold.
        reranker: Scores the best candidates anew; its scores are weighted too.
    """

    def __init__(self, bank: MemoryBank, queries: QueryEmbedder, reranker: Reranker | None) -> None:
        self._bank = bank
        self._queries = queries
        self._reranker = reranker

    def rank(
        self, nodes: Sequence[NodeWithScore], text: str, vector: FloatArray | None, options: RankingOptions
    ) -> Ranking:
        """Rank nodes; of several with one id the first counts.

        Args:
            nodes: What a retriever found, in its order.
            text: The query's text, "" where there is none.
            vector: Its embedding, shape (d,); None: the retriever's own scores count.
            options: See ``RankingOptions``.

        Raises:
            DimensionMismatchError: The query's embedding does not fit the collection.
            ConfigError: A reranker's score is outside [0, 1].
        """
        first: dict[str, NodeWithScore] = {}
        for found in nodes:
            first.setdefault(found.node.node_id, found)
        ids, nodes = list(first), list(first.values())
        weight = self._bank.weights(ids)
        content = self._bank.content
        vectors = {} if vector is None else content.get_embeddings(ids)
        held = set(content.matching(None, None, ids) if vector is None else vectors)
        # in a tenant's bank what lies outside has weight 0 and is not held: it takes no place in a ranking
        inside = [row for row, memory_id in enumerate(ids) if weight[row] > 0 or memory_id in held]
        nodes, weight = [nodes[row] for row in inside], weight[inside]
        similarity = (
            _given(nodes, options.scoring)
            if vector is None
            else self._cosines(nodes, vectors, np.asarray(vector, float))
        )
        base = similarity
        if options.hybrid and nodes:
            # in this order equal fused scores go by similarity, as in the core
            order = np.argsort(-similarity, kind="stable")
            nodes, weight = [nodes[row] for row in order], weight[order]
            base = _fused(nodes, text, options)
            # what no arm with a weight has found is not an answer
            found_rows = np.flatnonzero(base > 0)
            nodes, weight, base = [nodes[row] for row in found_rows], weight[found_rows], base[found_rows]
        alive = weight >= options.min_weight
        kept = self._reranked(_weighed(nodes, base, weight, alive), text, options.rerank_top)
        demoted = options.forgotten == "demote"
        return Ranking(
            kept=[node for node, _ in kept],
            demoted=[node for node, _ in _weighed(nodes, base, weight, ~alive)] if demoted else [],
            held=held,
            bound=self._bound(similarity, options.hybrid),
        )

    # ---- inner

    def _cosines(
        self, nodes: Sequence[NodeWithScore], vectors: dict[str, FloatArray], query: FloatArray
    ) -> FloatArray:
        found = {
            row: vectors[node.node.node_id] for row, node in enumerate(nodes) if node.node.node_id in vectors
        }
        for vector in found.values():
            if vector.shape != query.shape:
                raise DimensionMismatchError(
                    f"the query's embedding has shape {query.shape} and the collection's have "
                    f"{vector.shape}: use the embedding model that the index was built with"
                )
        found |= self._foreign(nodes, [row for row in range(len(nodes)) if row not in found], query)
        similarity = np.full(len(nodes), _UNKNOWN)
        for row, vector in found.items():
            similarity[row] = _cosine(np.asarray(vector, float), query)
        return similarity

    def _foreign(
        self, nodes: Sequence[NodeWithScore], rows: Sequence[int], query: FloatArray
    ) -> dict[int, FloatArray]:
        """Return embeddings of nodes of other stores: their own, else by the embedding model."""
        own = ((row, nodes[row].node.embedding) for row in rows)
        vectors = {row: np.asarray(given, float) for row, given in own if given is not None}
        found = {row: vector for row, vector in vectors.items() if vector.shape == query.shape}
        missing = [row for row in rows if row not in found]
        texts = [nodes[row].node.get_content(metadata_mode=MetadataMode.EMBED) for row in missing]
        embedded = self._queries.embed_texts(texts) if texts else None
        if embedded is not None and embedded.shape == (len(missing), *query.shape):
            found.update(zip(missing, embedded, strict=True))
        return found

    def _reranked(
        self, ranked: list[tuple[NodeWithScore, float]], text: str, rerank_top: int
    ) -> list[tuple[NodeWithScore, float]]:
        from shared_core.retrieval import apply_reranker

        if self._reranker is None or not ranked or not text.strip():
            return ranked
        head, tail = ranked[:rerank_top], ranked[rerank_top:]
        texts = [found.node.get_content(metadata_mode=MetadataMode.NONE) for found, _ in head]
        scores = apply_reranker(self._reranker, text, texts, [weight for _, weight in head])
        order = np.argsort(-scores, kind="stable")
        anew = [
            (NodeWithScore(node=head[row][0].node, score=float(scores[row])), head[row][1]) for row in order
        ]
        return anew + tail

    def _bound(self, similarity: FloatArray, hybrid: bool) -> float:
        if hybrid or self._reranker is not None or not len(similarity):
            return 0.0
        return max(0.0, float(similarity.min()))


def _weighed(
    nodes: Sequence[NodeWithScore], base: FloatArray, weight: FloatArray, among: BoolArray
) -> list[tuple[NodeWithScore, float]]:
    """Return new nodes with their weighted scores, best first, and their weights."""
    from shared_core.retrieval import top_k, weighted_scores

    rows = np.flatnonzero(among)
    if not len(rows):
        return []
    score = weighted_scores(base, weight)
    best = rows[top_k(base[rows], weight[rows], len(rows))]
    return [
        (NodeWithScore(node=nodes[row].node, score=float(score[row])), float(weight[row])) for row in best
    ]


def _fused(nodes: Sequence[NodeWithScore], text: str, options: RankingOptions) -> FloatArray:
    """Return the reciprocal rank fusion of the nodes' own order and BM25 among them, shape (n,)."""
    from shared_core.retrieval import Bm25Index

    dense, words = options.rrf_weights
    fused: FloatArray = dense / (options.rrf_k + np.arange(1.0, len(nodes) + 1))
    row_of = {found.node.node_id: row for row, found in enumerate(nodes)}
    index = Bm25Index()
    index.add(list(row_of), [found.node.get_content(metadata_mode=MetadataMode.NONE) for found in nodes])
    worded = np.array([row_of[key] for key in index.search(text, len(nodes))[0]], int)
    fused[worded] += words / (options.rrf_k + np.arange(1.0, len(worded) + 1))
    return fused


def _given(nodes: Sequence[NodeWithScore], scoring: Scoring) -> FloatArray:
    """Return the retriever's own scores, shape (n,).

    A node without one (None, NaN, infinite) among others that have one comes last. Where none has one, the
    order is all there is, and counts by reciprocal rank: 1 / (60 + rank).
    """
    scores = np.array([np.nan if found.score is None else float(found.score) for found in nodes])
    known = np.isfinite(scores)
    if not known.any():
        return 1.0 / (60.0 + np.arange(1.0, len(nodes) + 1))
    if scoring == "logit":
        scores = 1.0 / (1.0 + np.exp(-np.clip(scores, -500.0, 500.0)))
    least = min(0.0, float(scores[known].min())) - 1.0
    return np.where(known, scores, least)


def _cosine(one: FloatArray, other: FloatArray) -> float:
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / scale if scale > 0 and np.isfinite(scale) else 0.0


def check_scoring(scoring: Scoring, vector: FloatArray | None) -> FloatArray | None:
    """Return the embedding that a ranking uses: none where the retriever's own scores are asked for.

    Raises:
        ConfigError: Cosines are asked for, and the query has no embedding and cannot get one.
    """
    if scoring in {"given", "logit"}:
        return None
    if scoring == "cosine" and vector is None:
        raise ConfigError(
            "scoring='cosine' needs the query's embedding: pass a query, and open the bank with an embedder "
            "or give embed_model=..."
        )
    return vector
