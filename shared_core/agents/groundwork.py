"""What a dream writes for all pages at once, each kind tried on probes before it is written.

Keys and bridges are found by ``AssociativeRetriever`` only, so that is what the probes search here; weights
count for every retriever.

Source: MemDream section 3.2 (verification by asking again) [S]; repairs of many pages at once are ours [O].
They are judged together: keys lift many pages, bridges cost a page a rank and answer questions about two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.probe_index import covers_of, embed_queries, ranking_f1
from shared_core.config import AssociativeConfig
from shared_core.retrieval.association_index import AssociationIndex

if TYPE_CHECKING:
    from shared_core.agents.protocol import Probe
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.keys import RetrievalKey
    from shared_core.bank.repairing import Repair
    from shared_core.types import Array, Embedder, FloatArray

LOSS = 0.02
"""Of mean F1, which all repairs of many pages together may cost the probes: chance moves it as much [O]."""


class GroundworkTrial:
    """A bank's associations so far, and the probes that search them.

    Args:
        graph: The snapshot.
        keys: What earlier dreams wrote.
        embedder: Embeds the probes' queries, each once.
        probes: What is asked, about single memories.
        k: How many memories a probe retrieves.
    """

    def __init__(
        self,
        graph: MemoryGraph,
        keys: Sequence[RetrievalKey],
        embedder: Embedder,
        probes: Sequence[Probe],
        k: int,
    ) -> None:
        self._config = AssociativeConfig()
        self._index = AssociationIndex(graph, list(keys), self._config)
        self._probes = list(probes)
        self._k = k
        self._vectors = embed_queries(embedder, [probe.query for probe in probes]) if probes else ()
        self._covers = covers_of(graph)
        self._supposed = self._index
        self._fused: list[FloatArray] = []
        self._fused_by: Sequence[RetrievalKey] | None = None
        self.f1 = self._ask(self._index)
        self._least = self.f1 - LOSS

    def attempt(self, repair: Repair) -> tuple[float, bool]:
        """Return the mean F1 of the probes with a repair, and whether it may be kept."""
        self._supposed = _with(self._index, repair)
        f1 = self._ask(self._supposed)
        return f1, f1 >= self._least

    def accept(self, f1: float) -> None:
        """Take up the repair that was attempted last, with its outcome."""
        self._index = self._supposed
        self.f1 = f1

    # ---- inner

    def _ask(self, index: AssociationIndex) -> float:
        found = []
        for probe, fused in zip(self._probes, self._unweighted(index), strict=True):
            score = index.weigh(fused, self._config.min_weight)
            best = _largest(score, self._k)
            covers = [self._covers[row] for row in best.tolist() if score[row] > 0]
            found.append(ranking_f1(covers, set(probe.targets))[0])
        return float(np.mean(found)) if found else 1.0

    def _unweighted(self, index: AssociationIndex) -> list[FloatArray]:
        """Return the fused scores of each probe; neither weights nor edges change them, only keys do."""
        if self._fused_by is not index.keys:
            asked = zip(self._probes, self._vectors, strict=True)
            self._fused = []
            self._fused = [index.score(probe.query, vector)[0] for probe, vector in asked]
            self._fused_by = index.keys
        return self._fused


def _largest(score: FloatArray, k: int) -> Array:
    """Return the rows of the k largest scores, largest first, ties by row."""
    if k >= len(score):
        return np.argsort(-score, kind="stable")
    least = np.partition(score, len(score) - k)[len(score) - k]
    rows = np.flatnonzero(score >= least)
    return rows[np.argsort(-score[rows], kind="stable")][:k]


def _with(index: AssociationIndex, repair: Repair) -> AssociationIndex:
    """Return an index with a repair's weights, edges and keys; what it does not touch is shared."""
    graph, keys = index.graph, index.keys
    if repair.weights:
        weights = graph.weights.copy()
        for memory_id, weight in repair.weights.items():
            weights[graph.row_of[memory_id]] = weight
        graph = replace(graph, weights=weights)
    if repair.edges:
        explicit = {row: set(others) for row, others in graph.explicit.items()}
        for edge in repair.edges:
            one, other = graph.row_of[edge.source], graph.row_of[edge.target]
            explicit.setdefault(one, set()).add(other)
            explicit.setdefault(other, set()).add(one)
        graph = replace(graph, explicit=explicit)
    return index.updated(graph, [*keys, *repair.keys] if repair.keys else keys)
