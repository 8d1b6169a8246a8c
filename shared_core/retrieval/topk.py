"""Weighted top-K: the K memories with the largest w * max(0, cos), exact over a scan or over any index.

Design section 2. Takes similarities and weights, gives rows or keys; knows nothing of embeddings, stores
or what a weight stands for. Departs from the source [S: w * cos] by the clamp [O]: a weight times a
negative similarity would lift a suppressed memory above its peers.

The one order everywhere: score descending, then similarity descending, then position ascending.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shared_core.errors import ConfigError
from shared_core.types import Array, FloatArray

Fetch = Callable[[int], tuple[Sequence[str], FloatArray]]
WeightsOf = Callable[[Sequence[str]], FloatArray]

# An index computes its own similarities; float32 rounding may swap neighbours by far less than this.
_ORDER_TOLERANCE = 1e-3
_WEIGHT_TOLERANCE = 1e-6
_FIRST_PER_K = 4
# An index takes hardly longer to show more ids, but as long again for every round.
_GROWTH = 4
_FIRST_LEAST = 32


@dataclass(frozen=True, eq=False)
class Candidates:
    """The answer of a widening search, best first; every array has shape (len(keys),), float64."""

    keys: list[str]
    similarity: FloatArray
    weight: FloatArray
    score: FloatArray
    fetched: int
    """Rows the index returned in all rounds together."""
    rounds: int
    """How often the index was asked."""


def weighted_scores(similarity: FloatArray, weight: FloatArray) -> FloatArray:
    """Return w * max(0, cos), the score of design section 2.

    Args:
        similarity: Cosine to the query, shape (n,).
        weight: Weight of each memory, shape (n,).

    Returns:
        Scores, shape (n,).
    """
    scores: FloatArray = weight * np.maximum(similarity, 0)
    return scores


def top_k(
    similarity: FloatArray,
    weight: FloatArray,
    k: int,
    *,
    min_weight: float = 0.0,
    threshold: float | None = None,
) -> Array:
    """Return the rows of the k best weighted scores, best first; deterministic under ties.

    Args:
        similarity: Cosine to the query, shape (n,).
        weight: Weight of each memory, shape (n,); weight 0 or below min_weight is never returned.
        k: How many rows at most.
        min_weight: Smallest weight that is returned.
        threshold: Smallest score that is returned; None for any.

    Returns:
        Row indices, shape (at most k,).

    Raises:
        ConfigError: k is below 1, shapes differ, or a value is NaN, infinite or a negative weight.
    """
    _check_k(k)
    # float64 throughout: min_weight, threshold and ties must mean the same here and in a widening search.
    similarity, weight = np.asarray(similarity, np.float64), np.asarray(weight, np.float64)
    _check_arrays(similarity, weight)
    rows = np.flatnonzero((weight > 0) & (weight >= min_weight))
    similarity = similarity[rows]
    score = weighted_scores(similarity, weight[rows])
    if threshold is not None:
        kept = np.flatnonzero(score >= threshold)
        rows, similarity, score = rows[kept], similarity[kept], score[kept]
    chosen = _select(score, similarity, k)
    order = np.lexsort((chosen, -similarity[chosen], -score[chosen]))
    best: Array = rows[chosen[order]]
    return best


def widening_top_k(
    fetch: Fetch,
    weights_of: WeightsOf,
    k: int,
    *,
    total: int,
    w_max: float = 1.0,
    first: int | None = None,
    min_weight: float = 0.0,
    threshold: float | None = None,
) -> Candidates:
    """Return the exact weighted top-K over an index that knows similarity only (design section 2).

    The depth grows fourfold until no memory beyond it can enter the answer. With a bound
    b = w_max * max(0, similarity of the last fetched), that is when the K-th best score is at least b (an
    unseen memory that ties it has no larger similarity and comes later), when b lies below the threshold,
    when every unseen weight is too small to be returned, or when the index has no more. Where b is 0
    every unseen memory scores 0, and K eligible ones already fetched are all at least as similar.

    Args:
        fetch: fetch(n) gives the keys and cosines, shape (m,), of the n most similar memories, best
            first; m < n means that the index has no more.
        weights_of: Weights of some keys, shape (m,).
        k: How many memories at most.
        total: How many memories the index holds (an upper bound will do).
        w_max: Largest weight of any memory; 1.0 if unknown.
        first: Depth of the first round; by default deep enough for a few suppressed memories.
        min_weight: Smallest weight that is returned.
        threshold: Smallest score that is returned; None for any.

    Returns:
        Candidates in order, fewer than k where fewer are eligible.

    Raises:
        ConfigError: k or first is below 1, a value is NaN or infinite, lengths differ, the fetched
            similarities are not best first, or a weight exceeds w_max (exactness would be lost).
    """
    _check_k(k)
    if not (math.isfinite(w_max) and w_max >= 0):
        raise ConfigError(f"w_max={w_max!r} must be a finite number, 0 or more")
    if first is not None and first < 1:
        raise ConfigError(f"first={first!r} must be 1 or more")
    depth = min(total, max(k, _FIRST_LEAST, _FIRST_PER_K * k) if first is None else first)
    unseen_eligible = w_max > 0 and w_max >= min_weight
    fetched = rounds = 0
    while depth > 0 and unseen_eligible:
        keys, similarity, weight = _fetch_checked(fetch, weights_of, depth, w_max)
        fetched, rounds = fetched + len(keys), rounds + 1
        rows = top_k(similarity, weight, k, min_weight=min_weight, threshold=threshold)
        score = weighted_scores(similarity[rows], weight[rows])
        exhausted = len(keys) < depth or len(keys) >= total
        if exhausted or _settled(score, w_max * max(0.0, float(similarity[-1])), k, threshold):
            picked = [keys[row] for row in rows]
            return Candidates(picked, similarity[rows], weight[rows], score, fetched, rounds)
        depth = min(total, _GROWTH * depth)
    nothing: FloatArray = np.empty(0)
    return Candidates([], nothing, nothing, nothing, fetched, rounds)


def _settled(score: FloatArray, bound: float, k: int, threshold: float | None) -> bool:
    if threshold is not None and bound < threshold:
        return True
    return len(score) == k and bool(score[-1] >= bound)


def _fetch_checked(
    fetch: Fetch, weights_of: WeightsOf, depth: int, w_max: float
) -> tuple[Sequence[str], FloatArray, FloatArray]:
    keys, found = fetch(depth)
    # float64 throughout: the stop rule compares products, which must round alike on both sides.
    similarity = np.asarray(found, dtype=np.float64)
    weight = np.asarray(weights_of(keys), dtype=np.float64)
    if similarity.shape != (len(keys),) or weight.shape != (len(keys),):
        raise ConfigError(
            f"{len(keys)} keys came with similarities of shape {similarity.shape} and weights of shape "
            f"{weight.shape}: each needs shape ({len(keys)},)"
        )
    _check_arrays(similarity, weight)
    rise = float(np.max(np.diff(similarity), initial=0.0))
    if rise > _ORDER_TOLERANCE:
        raise ConfigError(
            f"the index returned similarities that rise by {rise:g} from one row to the next, not best "
            "first: it does not rank by cosine, so search it by a scan of the embeddings"
        )
    top = float(np.max(weight, initial=0.0))
    if top > w_max + _WEIGHT_TOLERANCE:
        raise ConfigError(f"a fetched memory has weight {top:g} above w_max={w_max:g}: raise w_max")
    return keys, similarity, weight


def _select(score: FloatArray, similarity: FloatArray, k: int) -> Array:
    """Return the positions, unordered, of the k best under the module's order."""
    n = len(score)
    if n <= k:
        return np.arange(n)
    positive = np.flatnonzero(score > 0)
    if len(positive) < k:
        # argpartition is slow where most values are equal, so the zeros are ranked by similarity alone.
        zeros = np.flatnonzero(score <= 0)
        return np.concatenate([positive, zeros[_largest(similarity[zeros], k - len(positive))]])
    values = score[positive]
    cut = _kth_largest(values, k)
    above = np.flatnonzero(values > cut)
    tied = np.flatnonzero(values == cut)
    tied = tied[_largest(similarity[positive[tied]], k - len(above))]
    chosen: Array = positive[np.concatenate([above, tied])]
    return chosen


def _largest(values: FloatArray, k: int) -> Array:
    """Return the positions of the k largest values, the first ones among equals."""
    if len(values) <= k:
        return np.arange(len(values))
    cut = _kth_largest(values, k)
    above = np.flatnonzero(values > cut)
    return np.concatenate([above, np.flatnonzero(values == cut)[: k - len(above)]])


def _kth_largest(values: FloatArray, k: int) -> float:
    return float(np.partition(values, len(values) - k)[len(values) - k])


def _check_k(k: int) -> None:
    if k < 1:
        raise ConfigError(f"k={k!r} must be 1 or more")


def _check_arrays(similarity: FloatArray, weight: FloatArray) -> None:
    if similarity.ndim != 1 or similarity.shape != weight.shape:
        raise ConfigError(
            f"similarity of shape {similarity.shape} and weight of shape {weight.shape} must both be (n,)"
        )
    for name, values in (("similarity", similarity), ("weight", weight)):
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ConfigError(f"{name}[{row}]={values[row]} is not a finite number")
    if len(weight) and weight.min() < 0:
        raise ConfigError(f"weight {weight.min():g} is negative: weights lie in [0, 1]")
