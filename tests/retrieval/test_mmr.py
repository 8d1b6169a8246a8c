from __future__ import annotations

import math

import numpy as np
import pytest

from shared_core.errors import ConfigError
from shared_core.retrieval import mmr, weighted_scores


def cosine(a, b):
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else 0.0


def literal_mmr(relevance, embeddings, k, lambda_mult):
    chosen: list[int] = []
    while len(chosen) < min(k, len(relevance)):
        best, best_gain = -1, -math.inf
        for row in range(len(relevance)):
            if row in chosen:
                continue
            gain = relevance[row]
            if chosen:
                redundancy = max(cosine(embeddings[row], embeddings[other]) for other in chosen)
                gain = lambda_mult * relevance[row] - (1 - lambda_mult) * redundancy
            if gain > best_gain:
                best, best_gain = row, gain
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lambda_mult", [0.0, 0.3, 0.5, 1.0])
def test_same_as_the_slow_loop(seed, lambda_mult):
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(25, 8)) * rng.uniform(0.1, 20, size=(25, 1))
    relevance = rng.random(25) * rng.random(25)
    for k in (1, 7, 25, 40):
        expected = literal_mmr(relevance, embeddings, k, lambda_mult)
        assert mmr(relevance, embeddings, k, lambda_mult).tolist() == expected


@pytest.mark.parametrize("lambda_mult", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_full_weights_give_langchains_order(lambda_mult):
    utils = pytest.importorskip("langchain_core.vectorstores.utils")
    rng = np.random.default_rng(11)
    for _ in range(10):
        query = rng.random(16)
        embeddings = rng.random((30, 16)) + 0.05
        similarity = embeddings @ query / np.linalg.norm(embeddings, axis=1) / np.linalg.norm(query)
        relevance = weighted_scores(similarity, np.ones(30))
        theirs = utils.maximal_marginal_relevance(query, list(embeddings), lambda_mult=lambda_mult, k=12)
        assert mmr(relevance, embeddings, 12, lambda_mult).tolist() == theirs


def test_weight_changes_the_choice():
    embeddings = np.array([[1, 0], [0.9, 0.1], [0, 1]])
    similarity = np.array([0.9, 0.8, 0.7])
    assert mmr(similarity, embeddings, 2, 0.5).tolist() == [0, 2]
    suppressed = weighted_scores(similarity, np.array([0.1, 1, 1]))
    assert mmr(suppressed, embeddings, 1, 0.5).tolist() == [1]


def test_duplicates_are_spread_and_ties_take_the_lowest_row():
    embeddings = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    assert mmr(np.full(4, 0.5), embeddings, 4, 0.5).tolist() == [0, 2, 1, 3]


def test_extreme_and_zero_vectors():
    embeddings = np.array([[1e200, 0], [1e-200, 1e-200], [0, 0], [0, 1e200]])
    assert mmr(np.array([0.9, 0.8, 0.1, 0.5]), embeddings, 4, 0.5).tolist() == [0, 3, 2, 1]


def test_empty_input():
    assert mmr(np.empty(0), np.empty((0, 3)), 4, 0.5).tolist() == []


@pytest.mark.parametrize(
    ("relevance", "embeddings", "k", "lambda_mult", "message"),
    [
        (np.ones(2), np.ones((2, 2)), 0, 0.5, "k=0"),
        (np.ones(2), np.ones((2, 2)), 1, 1.1, "lambda_mult"),
        (np.ones(2), np.ones((2, 2)), 1, math.nan, "lambda_mult"),
        (np.ones(2), np.ones((3, 2)), 1, 0.5, "shape"),
        (np.ones(2), np.ones(2), 1, 0.5, "shape"),
        (np.array([1, np.nan]), np.ones((2, 2)), 1, 0.5, "finite"),
        (np.ones(2), np.full((2, 2), np.inf), 1, 0.5, "finite"),
    ],
)
def test_bad_arguments_are_refused(relevance, embeddings, k, lambda_mult, message):
    with pytest.raises(ConfigError, match=message):
        mmr(relevance, embeddings, k, lambda_mult)
