"""Weighted hybrid search over a snapshot of a bank, with changes that are only supposed.

Ranks as ``BankRetriever`` does with ``search_type="hybrid"``: Eq. 1 with k = 60 over every memory. A repair
is tried here before it is written.

Source: MemDream Eq. 1 [S]; trying a repair before it is made is ours [O].
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shared_core.agents.keyword_scores import KeywordScores
from shared_core.agents.protocol import Probe, Retrieval
from shared_core.dynamics.geometry import unit_rows
from shared_core.types import BatchEmbedder

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.repairing import Repair
    from shared_core.types import Array, Embedder, FloatArray

RRF_K = 60.0
"""As in ``RetrievalConfig``."""
MIN_WEIGHT = 0.01
"""As in ``RetrievalConfig``."""
HELD_BYTES = 200_000_000
"""Of rankings that are kept for queries which come again; those beyond are computed anew [O]."""
FIRST_LOOK, WIDER = 32, 8
"""Memories near by meaning, and eight times as many by words, that a search compares first [O]."""


def ranking_f1(covers: Sequence[frozenset[str]], wanted: set[str]) -> tuple[float, float]:
    """Return F1 and recall of a ranking, cut at the last wanted memory that it holds.

    Args:
        covers: What each retrieved memory stands for, best first: itself, and what it quotes.
        wanted: Ids of the targets, at least one.
    """
    found: set[str] = set()
    useful, precision = 0, 0.0
    for position, covered in enumerate(covers, start=1):
        hit = covered & wanted
        useful += bool(hit)
        if hit - found:
            precision = useful / position
            found |= hit
    recall = len(found) / len(wanted)
    total = precision + recall
    return (2 * precision * recall / total if total else 0.0), recall


def covers_of(graph: MemoryGraph) -> list[frozenset[str]]:
    """Return what each memory stands for in a ranking: itself, and what it quotes."""
    return [
        frozenset({memory_id, *(graph.ids[source] for source in graph.sources.get(row, ()))})
        for row, memory_id in enumerate(graph.ids)
    ]


def embed_queries(embedder: Embedder, queries: Sequence[str]) -> FloatArray:
    """Return unit vectors of queries, shape (len(queries), d), in one batch where the embedder has one."""
    if isinstance(embedder, BatchEmbedder):
        return unit_rows(np.asarray(embedder.embed_queries(list(queries)), np.float32))
    return unit_rows(np.asarray([embedder.embed_query(query) for query in queries], np.float32))


class _Near(NamedTuple):
    """How near the N memories of the snapshot are to one query."""

    rank: Array
    """(N,) from 1, ties by row."""
    ascending: FloatArray
    """(N,) all cosines."""


class ProbeIndex:
    """The memories of a graph, and those that repairs would add.

    A search looks at the memories nearest by meaning and by words first, and at more until no other could
    be among its k best: what it returns is what ranking all of them would.

    Args:
        graph: The snapshot.
        embedder: Embeds queries, each once, and derived texts; stored memories keep their embeddings.
    """

    def __init__(self, graph: MemoryGraph, embedder: Embedder) -> None:
        self.graph = graph
        self.ids = list(graph.ids)
        self.weights = graph.weights.copy()
        self.covers = covers_of(graph)
        self._embedder = embedder
        self._queries: dict[str, FloatArray] = {}
        self._near: dict[str, _Near] = {}
        self._words = KeywordScores(graph.texts)
        self._more = np.zeros((0, graph.unit.shape[1] if graph.unit.ndim == 2 else 0), np.float32)
        self._row_of = dict(graph.row_of)
        self._sorted_ids = sorted(graph.ids)
        place = {memory_id: at for at, memory_id in enumerate(self._sorted_ids)}
        self._place = np.fromiter((place[memory_id] for memory_id in graph.ids), float, len(graph))

    def retrieve(self, query: str, k: int) -> list[int]:
        """Return at most k rows, best first."""
        self.learn([query])
        return [row for row, _ in self._ranked(query, k, self._nearest(query))]

    def ask(self, probe: Probe, k: int) -> Retrieval:
        """Return what a probe retrieves, and how good that is."""
        query = probe.query
        self.learn([query])
        near = self._near.get(query) or self._nearest(query)
        if 8 * len(self.graph) * (len(self._near) + 1) <= HELD_BYTES:
            self._near[query] = near
        ranked = self._ranked(query, k, near)
        f1, recall = ranking_f1([self.covers[row] for row, _ in ranked], set(probe.targets))
        return Retrieval(
            ids=tuple(self.ids[row] for row, _ in ranked),
            f1=f1,
            recall=recall,
            confidence=min(1.0, ranked[0][1] * (RRF_K + 1) / 2) if ranked else 0.0,
        )

    def suppose(self, repair: Repair, vectors: FloatArray) -> None:
        """Take up a repair; ``forget`` takes it back.

        Args:
            repair: With derived memories, new weights, or both.
            vectors: Embeddings of its derived memories, shape (M, d).
        """
        new = repair.memories
        if new:
            self._words.add([memory.text for memory in new])
            for memory in new:
                self._row_of[memory.id] = len(self.ids)
                self.ids.append(memory.id)
                self.covers.append(frozenset({memory.id, *memory.sources}))
            self._more = np.concatenate([self._more, unit_rows(np.asarray(vectors, np.float32))])
            self.weights = np.concatenate([self.weights, np.ones(len(new))])
            self._settle()
        for memory_id, weight in repair.weights.items():
            self.weights[self._row_of[memory_id]] = weight

    def forget(self, repair: Repair, weights: FloatArray) -> None:
        """Take back the last supposed repair.

        Args:
            repair: The last one.
            weights: A copy of ``weights`` from before it.
        """
        new = [memory.id for memory in repair.memories]
        if new:
            self._words.drop(len(new))
            kept = len(self.ids) - len(new)
            self._more = self._more[: kept - len(self.graph)]
            del self.ids[kept:], self.covers[kept:]
            for memory_id in new:
                del self._row_of[memory_id]
            self._settle()
        self.weights = weights

    def learn(self, queries: Sequence[str]) -> None:
        """Embed queries that will be asked, together where the embedder can."""
        new = [query for query in dict.fromkeys(queries) if query not in self._queries]
        if new:
            self._queries.update(zip(new, embed_queries(self._embedder, new), strict=True))

    def nearness(self, queries: Sequence[str], vectors: FloatArray) -> FloatArray:
        """Return the cosine of each query to the nearest of some vectors, shape (len(queries),)."""
        self.learn(queries)
        if not len(vectors) or not queries:
            return np.zeros(len(queries))
        asked = np.stack([self._queries[query] for query in queries])
        nearest: FloatArray = (asked @ unit_rows(np.asarray(vectors, np.float32)).T).max(axis=1)
        return nearest

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Return embeddings of derived texts, shape (len(texts), d)."""
        return np.asarray(self._embedder.embed_documents(list(texts)), np.float32)

    # ---- ranking

    def _settle(self) -> None:
        """Find where the ids of memories behind the snapshot stand among all: ties of words go by id."""
        more = self.ids[len(self.graph) :]
        turn = {memory_id: at for at, memory_id in enumerate(sorted(more), start=1)}
        between = [bisect_left(self._sorted_ids, i) - 1 + turn[i] / (len(more) + 1) for i in more]
        self._place = np.concatenate([self._place[: len(self.graph)], between])

    def _nearest(self, query: str) -> _Near:
        cosine = self.graph.unit @ self._queries[query] if len(self.graph) else np.zeros(0, np.float32)
        order = np.argsort(-cosine, kind="stable")
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(1, len(order) + 1, dtype=np.int32)
        return _Near(rank, cosine[order[::-1]])

    def _with_more(self, query: str, near: _Near) -> Array:
        """Return the dense rank of every memory, those behind the snapshot included, shape (N + M,)."""
        if not len(self._more):
            return near.rank
        cosine = self._more @ self._queries[query]
        # of equals the snapshot's come first
        before = len(near.rank) - np.searchsorted(near.ascending, cosine, side="left")
        order = np.lexsort((np.arange(len(cosine)), -cosine))
        own = np.empty(len(order), np.int64)
        own[order] = before[order] + np.arange(1, len(order) + 1)
        # how many of them stand before the snapshot's memory of each rank
        ahead = np.cumsum(np.bincount(before, minlength=len(near.rank) + 1))
        return np.concatenate([near.rank + ahead[near.rank - 1], own])

    def _ranked(self, query: str, k: int, near: _Near) -> list[tuple[int, float]]:
        if not self.ids:
            return []
        by_words = self._words.scores(query)
        by_meaning = self._with_more(query, near)
        found, look = None, FIRST_LOOK
        while found is None:
            found = self._compared(by_meaning, by_words, k, look)
            look *= WIDER
        return found

    def _compared(
        self, by_meaning: Array, by_words: FloatArray, k: int, look: int
    ) -> list[tuple[int, float]] | None:
        """Return the k best, None where a memory that was not looked at might be among them.

        Args:
            by_meaning: (N,) dense ranks.
            by_words: (N,) scores by words.
            k: How many.
            look: Memories to look at by meaning, and ``WIDER`` times as many by words.
        """
        rows, word_rank, rest = self._candidates(by_meaning, by_words, look)
        fused = 1.0 / (RRF_K + by_meaning[rows])
        worded = word_rank > 0
        fused[worded] += 1.0 / (RRF_K + word_rank[worded])
        weights = self.weights[rows]
        score = np.where(weights >= MIN_WEIGHT, fused * weights, 0.0)
        best = np.lexsort((by_meaning[rows], -fused, -score))[:k]
        if len(rows) < len(self.ids):
            least = float(score[best[-1]]) if len(best) == k else 0.0
            if float(self.weights.max()) * rest >= least:
                return None
        return [(int(rows[at]), float(score[at])) for at in best if score[at] > 0]

    def _candidates(self, by_meaning: Array, by_words: FloatArray, look: int) -> tuple[Array, Array, float]:
        """Return rows to look at, their ranks by words (0: none), and the most that any other row scores."""
        size, many = len(by_words), WIDER * look
        matched = np.count_nonzero(by_words)
        # whoever is as good as the last is looked at, too, so that ranks are known
        bar = np.partition(by_words, size - many)[size - many] if matched > many else 0.0
        heads = np.flatnonzero((by_words >= bar) & (by_words > 0))
        heads = heads[np.lexsort((self._place[heads], -by_words[heads]))]
        near = np.flatnonzero(by_meaning <= look)
        others = near[(by_words[near] < bar) | (by_words[near] == 0)]
        ranks = [self._word_rank(by_words, row) if by_words[row] > 0 else 0 for row in others.tolist()]
        rows = np.concatenate([heads, others])
        word_rank = np.concatenate([np.arange(1, len(heads) + 1), np.array(ranks, np.int64)])
        rest = 1.0 / (RRF_K + look + 1)
        if matched > len(heads):
            rest += 1.0 / (RRF_K + len(heads) + 1)
        return rows, word_rank, rest

    def _word_rank(self, by_words: FloatArray, row: int) -> int:
        score = by_words[row]
        equal = self._place[by_words == score]
        return 1 + int(np.count_nonzero(by_words > score)) + int(np.count_nonzero(equal < self._place[row]))
