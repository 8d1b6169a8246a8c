from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN

from shared_core.evaluation import amemguard_drops, perplexity_drops
from shared_core.evaluation.baselines import dbscan_pairs


def at(*degrees: float) -> np.ndarray:
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_amemguard_keeps_the_largest_cluster() -> None:
    # cosine distance 0.5 is 60 degrees: 0, 50 and 100 are a chain of three, 200 and 210 a pair
    vectors = at(0, 50, 100, 200, 210)
    assert amemguard_drops(vectors).tolist() == [False, False, False, True, True]
    assert dbscan_pairs(vectors).tolist() == [0, 0, 0, 1, 1]
    lonely = np.array([[1, 0, 0], [0, 1, 0], [1, 0.1, 0], [0, 0, 1]], float)
    assert amemguard_drops(lonely).tolist() == [False, True, False, True]


def test_amemguard_drops_all_where_nothing_is_alike() -> None:
    assert amemguard_drops(np.eye(3)).tolist() == [True, True, True]
    assert amemguard_drops(np.empty((0, 3))).tolist() == []


def test_of_equal_clusters_the_first_is_kept() -> None:
    assert amemguard_drops(at(0, 180, 10, 190)).tolist() == [False, True, False, True]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(2, 6), st.floats(0.05, 0.9))
def test_clusters_are_those_of_dbscan(seed: int, rows: int, dimension: int, eps: float) -> None:
    vectors = np.random.default_rng(seed).standard_normal((rows, dimension))
    reference = DBSCAN(eps=eps, min_samples=2, metric="cosine").fit(vectors).labels_
    assert dbscan_pairs(vectors, eps).tolist() == reference.tolist()


@pytest.mark.parametrize(
    ("perplexity", "dropped"),
    [
        # median 30, deviations 20 10 0 10 970, MAD 10: threshold 44.8
        ([10, 20, 30, 40, 1000], [4]),
        ([10, 20, 30, 40, 44.8], []),
        ([10, 20, 30, 40, 44.9], [4]),
        # the absolute limit comes first, and what it drops does not count
        ([10, 20, 30, 40, 1000, 20_000, 1e12], [4, 5, 6]),
        # no deviation: twice the median
        ([10, 10, 10, 19, 21], [4]),
        ([20_000], [0]),
        ([float("nan"), 5, 5], [0]),
        ([], []),
    ],
)
def test_the_perplexity_filter_by_hand(perplexity: list[float], dropped: list[int]) -> None:
    assert np.flatnonzero(perplexity_drops(np.array(perplexity, float))).tolist() == dropped
