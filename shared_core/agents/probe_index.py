"""Weighted hybrid search over a snapshot of a bank, with changes that are only supposed.

Ranks as ``BankRetriever`` does with ``search_type="hybrid"``: Eq. 1 with k = 60 over every memory. A repair
is tried here before it is written.

Source: MemDream Eq. 1 [S]; trying a repair before it is made is ours [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.protocol import Probe, Retrieval
from shared_core.dynamics.geometry import unit_rows
from shared_core.retrieval.bm25 import Bm25Index
from shared_core.types import BatchEmbedder

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.repairing import Repair
    from shared_core.types import Embedder, FloatArray

RRF_K = 60.0
"""As in ``RetrievalConfig``."""
MIN_WEIGHT = 0.01
"""As in ``RetrievalConfig``."""


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


class ProbeIndex:
    """The memories of a graph, and those that repairs would add.

    Args:
        graph: The snapshot.
        embedder: Embeds queries, each once, and derived texts; stored memories keep their embeddings.
    """

    def __init__(self, graph: MemoryGraph, embedder: Embedder) -> None:
        self.graph = graph
        self.ids = list(graph.ids)
        self.weights = graph.weights.copy()
        self.covers = covers_of(graph)
        self._unit = graph.unit
        self._embedder = embedder
        self._queries: dict[str, FloatArray] = {}
        self._words = Bm25Index()
        self._words.add(graph.ids, graph.texts)
        self._row_of = dict(graph.row_of)

    def retrieve(self, query: str, k: int) -> list[int]:
        """Return at most k rows, best first."""
        return [row for row, _ in self._ranked(query, k)]

    def ask(self, probe: Probe, k: int) -> Retrieval:
        """Return what a probe retrieves, and how good that is."""
        ranked = self._ranked(probe.query, k)
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
            self._words.add([memory.id for memory in new], [memory.text for memory in new])
            for memory in new:
                self._row_of[memory.id] = len(self.ids)
                self.ids.append(memory.id)
                self.covers.append(frozenset({memory.id, *memory.sources}))
            self._unit = np.concatenate([self._unit, unit_rows(np.asarray(vectors, np.float32))])
            self.weights = np.concatenate([self.weights, np.ones(len(new))])
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
            self._words.remove(new)
            kept = len(self.ids) - len(new)
            self._unit = self._unit[:kept]
            del self.ids[kept:], self.covers[kept:]
            for memory_id in new:
                del self._row_of[memory_id]
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

    def _ranked(self, query: str, k: int) -> list[tuple[int, float]]:
        if not self.ids:
            return []
        self.learn([query])
        similarity = self._unit @ self._queries[query]
        fused = np.zeros(len(self.ids))
        order = np.argsort(-similarity, kind="stable")
        fused[order] = 1.0 / (RRF_K + np.arange(1.0, len(order) + 1))
        worded = [self._row_of[key] for key in self._words.search(query, len(self.ids))[0]]
        fused[worded] += 1.0 / (RRF_K + np.arange(1.0, len(worded) + 1))
        score = np.where(self.weights >= MIN_WEIGHT, fused * self.weights, 0.0)
        # ties by the fused score, then by the dense rank, as the retriever has it
        best = np.lexsort((-similarity, -fused, -score))[:k]
        return [(int(row), float(score[row])) for row in best if score[row] > 0]
