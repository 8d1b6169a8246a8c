"""``DreamPostprocessor``: weighs what a LlamaIndex retriever found, by the weights of a memory bank.

Weights are read by node id: LlamaIndex rebuilds nodes from JSON of its own, so nothing written to the
collection's metadata would ever show on a node. Ranking is w * cos wherever the query's embedding is at
hand, else w times the retriever's own score.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_core import MemoryBank
    from shared_core.types import FloatArray


class DreamPostprocessor(BaseNodePostprocessor):
    """Re-score nodes by the weight of their memory, and drop forgotten ones.

    With a tenant's bank (one opened with ``where``) nodes outside the tenant are dropped too.

    Retrieve more than you need (``similarity_top_k`` of 20 for a ``top_n`` of 4), so that what is forgotten
    does not leave gaps.

    Args:
        bank: The bank over the same Chroma collection as the index.
        **options: The fields ``top_n`` and ``min_weight``.
    """

    top_n: int | None = Field(
        default=None, ge=1, description="How many nodes are kept; None: all not forgotten."
    )
    min_weight: float = Field(default=0.01, ge=0.0, le=1.0, description="Below it a memory is forgotten.")

    _bank: MemoryBank = PrivateAttr()

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def __init__(self, bank: MemoryBank, **options: Any) -> None:
        from shared_core import MemoryBank

        if not isinstance(bank, MemoryBank):
            raise ConfigError(
                f"DreamPostprocessor takes a MemoryBank, not {type(bank).__name__}: open one with "
                "MemoryBank.from_collection(collection)"
            )
        super().__init__(**options)
        self._bank = bank

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises the class."""
        return "DreamPostprocessor"

    @property
    def bank(self) -> MemoryBank:
        """The memory bank: weights, sweeps, undo."""
        return self._bank

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        given = self._bank.weights([found.node.node_id for found in nodes])
        # dropped before they are compared: a tenant's bank has no embedding of what lies outside it
        kept = np.flatnonzero((given > 0) & (given >= self.min_weight))
        nodes = [nodes[row] for row in kept]
        scores = given[kept] * np.maximum(self._similarities(nodes, query_bundle), 0.0)
        best = np.argsort(-scores, kind="stable")[: self.top_n]
        self._bank.state.record_access(nodes[row].node.node_id for row in best)
        return [NodeWithScore(node=nodes[row].node, score=float(scores[row])) for row in best]

    def _similarities(self, nodes: Sequence[NodeWithScore], query: QueryBundle | None) -> FloatArray:
        """Return one similarity per node, shape (n,): all cosines, or all the retriever's own scores."""
        if query is not None and query.embedding is not None:
            vectors = self._bank.content.get_embeddings([found.node.node_id for found in nodes])
            if all(found.node.node_id in vectors for found in nodes):
                target = np.asarray(query.embedding, float)
                return np.array([_cosine(vectors[found.node.node_id], target) for found in nodes])
        return np.array([_given(found.score) for found in nodes])


def _cosine(one: FloatArray, other: FloatArray) -> float:
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / scale if scale > 0 else 0.0


def _given(score: float | None) -> float:
    # a retriever that gives no score still gives an order; weights alone decide then
    return 1.0 if score is None or math.isnan(score) else float(score)
