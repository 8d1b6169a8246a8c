"""RankFusion against reciprocal ranks over both whole rankings, in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from shared_core import RetrievalConfig
from shared_core.retrieval.hybrid import RankFusion
from shared_core.retrieval.vectors import Scan
from shared_core.retrieval.word_ranks import WordRanks

N = 400


def in_order(worded: np.ndarray) -> WordRanks:
    """Return the ranking with these rows, best first; neighbours tie in pairs, and go by their order."""
    scores, order = np.zeros(N, np.float32), np.arange(N) + N
    scores[worded] = 1.0 + np.arange(len(worded))[::-1] // 2
    order[worded] = np.arange(len(worded))
    return WordRanks(scores, order)


def expected(
    scan: Scan, worded: list[int], config: RetrievalConfig, weights: np.ndarray, k: int
) -> list[tuple[str, float]]:
    rows = list(range(N)) if scan.rows is None else scan.rows.tolist()
    dense = sorted(rows, key=lambda row: (-scan.similarity[row], row))
    fused = {row: config.rrf_weights[0] / (config.rrf_k + rank) for rank, row in enumerate(dense, 1)}
    for rank, row in enumerate(worded, 1):
        fused[row] += config.rrf_weights[1] / (config.rrf_k + rank)
    least = config.score_threshold
    kept = [
        row
        for row in dense
        if fused[row] > 0
        and weights[row] > 0
        and weights[row] >= config.min_weight
        and (least is None or weights[row] * max(0.0, float(scan.similarity[row])) >= least)
    ]
    # sorted is stable: what ties stays in the order of similarity
    best = sorted(kept, key=lambda row: (-weights[row] * fused[row], -fused[row]))[:k]
    return [(scan.ids[row], weights[row] * fused[row]) for row in best]


@pytest.mark.parametrize("pattern", ["full", "uneven", "few"])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("arms", [(1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.3, 2.0)])
def test_ranks_as_over_both_whole_rankings(
    rng: np.random.Generator, pattern: str, filtered: bool, arms: tuple[float, float]
) -> None:
    for repeats in (1, 7):
        # seven memories share each similarity, which no memory may gain from
        similarity = np.repeat(rng.standard_normal(N // repeats + 1), repeats)[:N].astype(np.float32)
        rng.shuffle(similarity)
        rows = np.sort(rng.choice(N, 250, replace=False)) if filtered else None
        counted = np.arange(N) if rows is None else rows
        worded = rng.permutation(counted)[: len(counted) // 2]
        weights = {
            "full": np.ones(N),
            "uneven": rng.uniform(size=N),
            "few": np.where(np.arange(N) % 40 == 0, rng.uniform(size=N), 0.0),
        }[pattern]
        scan = Scan([f"m{i}" for i in range(N)], similarity, rows)
        for k, threshold in ((1, None), (4, None), (30, 0.2), (500, None)):
            config = RetrievalConfig(k=k, rrf_weights=arms, score_threshold=threshold)
            fusion = RankFusion(scan, in_order(worded), config)
            found = fusion.best(lambda keys, w=weights: np.array([w[int(key[1:])] for key in keys]), k)
            right = expected(scan, worded.tolist(), config, weights, k)
            assert found.keys == [key for key, _ in right]
            np.testing.assert_allclose(found.score, [score for _, score in right])
            at = [int(key[1:]) for key in found.keys]
            np.testing.assert_allclose(found.similarity, similarity[at])


def test_nothing_at_all() -> None:
    scan = Scan([], np.empty(0, np.float32))
    found = RankFusion(
        scan, WordRanks(np.empty(0, np.float32), np.empty(0, np.int64)), RetrievalConfig()
    ).best(lambda keys: np.ones(len(keys)), 4)
    assert found.keys == []
