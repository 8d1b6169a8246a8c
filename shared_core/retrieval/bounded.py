"""Weighted top-K from similarities that are known within bounds: only what may be among the best is compared.

A memory's score lies in [w max(0, s - e), w max(0, s + e)]. Let f be the K-th largest lower end: whatever
has an upper end below f cannot be among the K best, and all others are compared exactly. Where f is 0, too
few are sure to score, and everything that counts is compared.

Knows neither vectors nor ids. Source: none, ours [O]; the order is that of ``topk``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shared_core.retrieval.topk import top_k, weighted_scores
from shared_core.types import Array, FloatArray

_PER_GROUP = 64
_SLACK = 1e-6
"""Relative; more than rounding moves a product of two numbers in single precision."""


@dataclass(frozen=True, eq=False)
class BestRows:
    """The best rows in order; every array has shape (m,)."""

    rows: Array
    similarity: FloatArray
    weight: FloatArray
    score: FloatArray
    compared: int
    """How many were compared exactly."""


def bounded_top_k(
    near: FloatArray,
    error: FloatArray,
    weight: FloatArray,
    exact: Callable[[Array], FloatArray],
    k: int,
    *,
    min_weight: float = 0.0,
    threshold: float | None = None,
) -> BestRows:
    """Return what ``top_k`` returns of the exact similarities.

    Args:
        near: Similarities, shape (n,).
        error: How far each may be off at most, shape (n,).
        weight: Weight of each memory in [0, 1], shape (n,).
        exact: Gives the exact similarities, float64, of some rows, ascending.
        k: How many at most.
        min_weight: Smallest weight that is returned; weight 0 never is.
        threshold: Smallest score that is returned.

    Raises:
        ConfigError: As for ``top_k``.
    """
    # in single precision: this is time to move numbers, and the slack covers its rounding
    counted = weight.astype(np.float32)
    if min_weight > 0:
        counted[weight < min_weight] = 0.0
    least = near - error
    least *= counted
    most = near + error
    most *= counted
    floor = _kth(least, k)
    if threshold is not None:
        floor = max(floor, threshold)
    rows: Array = np.flatnonzero(most >= floor * (1.0 - _SLACK) if floor > 0 else counted > 0)
    similarity, weight = exact(rows), weight[rows]
    best = top_k(similarity, weight, k, min_weight=min_weight, threshold=threshold)
    similarity, weight = similarity[best], weight[best]
    return BestRows(rows[best], similarity, weight, weighted_scores(similarity, weight), len(rows))


def _kth(values: FloatArray, k: int) -> float:
    """Return a number that at least ``k`` values reach, near the k-th largest; -inf for fewer values."""
    groups = len(values) // _PER_GROUP
    if groups >= 2 * k:
        # the largest of each of k groups are k values; a maximum costs a twentieth of a partition
        rest = values[groups * _PER_GROUP :]
        values = values[: groups * _PER_GROUP].reshape(groups, _PER_GROUP).max(axis=1)
        if len(rest):
            values = np.append(values, rest.max())
    if len(values) < k:
        return float("-inf")
    return float(np.partition(values, len(values) - k)[len(values) - k])
