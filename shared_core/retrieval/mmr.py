"""Maximal marginal relevance over weighted scores: relevant memories that do not repeat each other.

Carbonell and Goldstein (SIGIR 1998): argmax of lambda * relevance - (1 - lambda) * max cosine to those
already selected. Takes arrays, knows nothing of queries or stores. Departs in one point [O]: relevance is
the weighted score of design section 2, so a suppressed memory is also less relevant here. Novelty is not
weighted: leave out forgotten memories before the call, or a low lambda may pick one for being different.
"""

from __future__ import annotations

import numpy as np

from shared_core.dynamics.geometry import unit_rows
from shared_core.errors import ConfigError
from shared_core.types import Array, FloatArray


def mmr(relevance: FloatArray, embeddings: FloatArray, k: int, lambda_mult: float) -> Array:
    """Return row indices in the order of selection; the first is the most relevant, ties the lowest row.

    Args:
        relevance: Weighted score of each candidate, shape (n,).
        embeddings: Their embeddings in any norm, shape (n, d); a zero vector resembles nothing.
        k: How many rows at most.
        lambda_mult: 1 is relevance only, 0 is diversity only.

    Returns:
        Row indices, shape (min(k, n),).

    Raises:
        ConfigError: k is below 1, lambda_mult outside [0, 1], shapes differ, or a value is not finite.
    """
    relevance, embeddings = np.asarray(relevance, np.float64), np.asarray(embeddings, np.float64)
    _check(relevance, embeddings, k, lambda_mult)
    n = len(relevance)
    if n == 0:
        return np.empty(0, dtype=np.intp)
    units = unit_rows(embeddings)
    nearest = np.full(n, -np.inf)
    free = np.ones(n, dtype=bool)
    chosen = [int(np.argmax(relevance))]
    for _ in range(min(k, n) - 1):
        free[chosen[-1]] = False
        nearest = np.maximum(nearest, units @ units[chosen[-1]])
        gain = lambda_mult * relevance - (1 - lambda_mult) * nearest
        chosen.append(int(np.argmax(np.where(free, gain, -np.inf))))
    return np.asarray(chosen, dtype=np.intp)


def _check(relevance: FloatArray, embeddings: FloatArray, k: int, lambda_mult: float) -> None:
    if k < 1:
        raise ConfigError(f"k={k!r} must be 1 or more")
    if not 0 <= lambda_mult <= 1:
        raise ConfigError(f"lambda_mult={lambda_mult!r} is outside [0, 1]")
    if relevance.ndim != 1 or embeddings.ndim != 2 or len(relevance) != len(embeddings):
        raise ConfigError(
            f"relevance of shape {relevance.shape} and embeddings of shape {embeddings.shape} "
            "must be (n,) and (n, d)"
        )
    if not (np.isfinite(relevance).all() and np.isfinite(embeddings).all()):
        raise ConfigError("relevance and embeddings must hold finite numbers only")
