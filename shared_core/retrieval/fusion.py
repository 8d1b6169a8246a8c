"""Reciprocal rank fusion of several rankings, weighted per memory.

Design section 2: s(v, q) = (sum over arms of 1 / (k + rank_i(v, q))) * w_v. Takes lists of keys, knows
nothing of what ranked them. The formula is Cormack, Clarke and Buettcher (SIGIR 2009) [S]; k = 60 and the
weights per arm are [O]. A memory absent from an arm gets nothing from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from shared_core.errors import ConfigError

WeightOf = Mapping[str, float] | Callable[[str], float]


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, k: float = 60.0, weights: Sequence[float] | None = None
) -> dict[str, float]:
    """Return sum over arms of weight_i / (k + rank_i), ranks from 1 (design section 2).

    A key repeated inside one ranking counts once, at its best rank, and does not push others down.

    Args:
        rankings: One sequence of keys per arm, best first.
        k: Rank constant.
        weights: One weight per arm; all 1 by default.

    Returns:
        Fused score by key, in order of first appearance.

    Raises:
        ConfigError: k is not above 0, or weights are negative, not finite or not one per arm.
    """
    fused: dict[str, float] = {}
    for ranking, arm in zip(rankings, _arm_weights(len(rankings), k, weights), strict=True):
        for rank, key in enumerate(dict.fromkeys(ranking), start=1):
            fused[key] = fused.get(key, 0.0) + arm / (k + rank)
    return fused


def fuse_weighted(
    rankings: Sequence[Sequence[str]],
    weight_of: WeightOf,
    *,
    k: float = 60.0,
    weights: Sequence[float] | None = None,
    min_weight: float = 0.0,
) -> list[tuple[str, float]]:
    """Return (key, fused * w) best first; ties by fused score, then by key.

    Args:
        rankings: One sequence of keys per arm, best first.
        weight_of: Weight of a key; a key missing from a mapping has weight 1 (design section 2).
        k: Rank constant.
        weights: One weight per arm; all 1 by default.
        min_weight: Smallest memory weight that is returned; weight 0 never is.

    Returns:
        Pairs of key and score.

    Raises:
        ConfigError: See reciprocal_rank_fusion; or a memory's weight is negative or not finite.
    """
    scored: list[tuple[float, float, str]] = []
    for key, fused in reciprocal_rank_fusion(rankings, k=k, weights=weights).items():
        weight = float(weight_of.get(key, 1.0) if isinstance(weight_of, Mapping) else weight_of(key))
        if not (math.isfinite(weight) and weight >= 0):
            raise ConfigError(f"weight {weight!r} of memory {key!r} must be a finite number, 0 or more")
        if weight > 0 and weight >= min_weight:
            scored.append((-fused * weight, -fused, key))
    return [(key, -negative) for negative, _, key in sorted(scored)]


def unseen_bound(
    depths: Sequence[float], k: float = 60.0, weights: Sequence[float] | None = None, w_max: float = 1.0
) -> float:
    """Return the largest fused weighted score of a memory that no arm has shown yet.

    It ranks at best one below the last row of every arm: w_max * sum of weight_i / (k + depth_i + 1).
    A memory shown by some arms and not by others is outside this bound: it may still gain
    weight_i / (k + depth_i + 1) from each arm that has not shown it.

    Args:
        depths: How many distinct keys each arm has shown; math.inf for an arm that has no more.
        k: Rank constant.
        weights: One weight per arm; all 1 by default.
        w_max: Largest weight of any memory.

    Returns:
        The bound; 0 where every arm is exhausted.

    Raises:
        ConfigError: A depth or w_max is negative or NaN; otherwise as reciprocal_rank_fusion.
    """
    if not w_max >= 0 or any(not depth >= 0 for depth in depths):
        raise ConfigError(f"depths={list(depths)!r} and w_max={w_max!r} must be 0 or more")
    arms = _arm_weights(len(depths), k, weights)
    return w_max * sum(arm / (k + depth + 1) for arm, depth in zip(arms, depths, strict=True))


def _arm_weights(count: int, k: float, weights: Sequence[float] | None) -> Sequence[float]:
    if not (math.isfinite(k) and k > 0):
        raise ConfigError(f"rrf k={k!r} must be a finite number above 0")
    if weights is None:
        return [1.0] * count
    if len(weights) != count:
        raise ConfigError(f"{len(weights)} fusion weights for {count} rankings: give one for each")
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights):
        raise ConfigError(f"fusion weights {list(weights)!r} must be finite numbers, 0 or more")
    return weights
