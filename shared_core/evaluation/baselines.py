"""Published defences as baselines: what each would drop from a bank, without labels. Pure, numpy only.

A-MemGuard clusters the reasoning chains that an LLM writes for each retrieved memory; its clustering variant
is applied here to the embeddings that the bank holds [O: no LLM, the whole bank at once]. The perplexity
filter is the one of A-MemGuard's repository (after Alon and Kamfonas, 2023); how perplexities are computed is
none of this module's business, see ``perplexity``.
"""

from __future__ import annotations

import numpy as np

from shared_core.types import Array, BoolArray, FloatArray

EPS = 0.5
"""Largest cosine distance between neighbours [S: A-MemGuard]."""
ABSOLUTE_LIMIT = 10_000.0
"""Perplexity above which a text is dropped before anything else [S]."""
MAD_SCALE = 1.4826
"""Makes the median absolute deviation comparable to a standard deviation [S]."""
BLOCK = 2048


def amemguard_drops(embeddings: FloatArray, eps: float = EPS) -> BoolArray:
    """Return which memories lie outside the largest cluster (A-MemGuard, clustering variant).

    Args:
        embeddings: Shape (N, d).
        eps: Largest cosine distance between two neighbours.

    Returns:
        Shape (N,); all of them where no two memories are neighbours, as upstream.
    """
    labels = dbscan_pairs(embeddings, eps)
    clustered = labels[labels >= 0]
    if not len(clustered):
        return np.ones(len(labels), bool)
    # of equally large clusters the first, as Counter.most_common does upstream
    sizes = np.bincount(clustered)
    drops: BoolArray = labels != int(np.argmax(sizes))
    return drops


def dbscan_pairs(embeddings: FloatArray, eps: float = EPS) -> Array:
    """Cluster by cosine distance: DBSCAN with min_samples = 2, one block of distances at a time.

    With min_samples = 2 every memory that has a neighbour is a core, so a cluster is a connected component of
    at least two; numbered by their first member, as scikit-learn does.

    Args:
        embeddings: Shape (N, d).
        eps: Largest cosine distance between two neighbours, itself included.

    Returns:
        Shape (N,): number of the cluster, -1 for a memory without a neighbour.
    """
    matrix = np.asarray(embeddings, np.float64)
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit = matrix / np.where(norms == 0, 1, norms)
    labels = np.full(len(unit), -1)
    waiting = np.arange(len(unit))
    cluster = 0
    while len(waiting):
        first, waiting = waiting[:1], waiting[1:]
        members, edge = first, first
        while len(edge) and len(waiting):
            reached = _reached(unit[edge], unit[waiting], 1 - eps)
            edge, waiting = waiting[reached], waiting[~reached]
            members = np.concatenate([members, edge])
        if len(members) > 1:
            labels[members] = cluster
            cluster += 1
    return labels


def perplexity_drops(perplexity: FloatArray) -> BoolArray:
    """Return which memories the perplexity filter drops: above 10000, then above median + 1.4826 MAD.

    Args:
        perplexity: Shape (N,).

    Returns:
        Shape (N,). Where the deviation is 0, twice the median takes the place of the threshold, as upstream.
    """
    drops: BoolArray = ~(perplexity <= ABSOLUTE_LIMIT)
    kept = perplexity[~drops]
    if len(kept):
        median = float(np.median(kept))
        deviation = float(np.median(np.abs(kept - median)))
        threshold = median + MAD_SCALE * deviation if deviation else 2 * median
        drops |= perplexity > threshold
    return drops


def _reached(edge: FloatArray, waiting: FloatArray, least: float) -> BoolArray:
    reached = np.zeros(len(waiting), bool)
    # a hair of tolerance, so that rounding does not part what lies exactly eps away
    for start in range(0, len(edge), BLOCK):
        reached |= (waiting @ edge[start : start + BLOCK].T >= least - 1e-12).any(axis=1)
    return reached
