from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core.errors import ConfigError
from shared_core.retrieval import top_k, weighted_scores, widening_top_k


def literal_top_k(similarity, weight, k, *, min_weight=0.0, threshold=None):
    ranked = []
    for row, (s, w) in enumerate(zip(similarity, weight, strict=True)):
        score = float(w) * max(0.0, float(s))
        if w == 0 or w < min_weight or (threshold is not None and score < threshold):
            continue
        ranked.append((-score, -float(s), row))
    return [row for _, _, row in sorted(ranked)[:k]]


class Index:
    """Knows similarity only; ties in row order, as a stable sort gives them."""

    def __init__(self, similarity, weight):
        self.similarity = np.asarray(similarity, dtype=float)
        self.weight = np.asarray(weight, dtype=float)
        self.order = np.argsort(-self.similarity, kind="stable")
        self.depths: list[int] = []

    def fetch(self, n):
        self.depths.append(n)
        rows = self.order[:n]
        return [str(row) for row in rows], self.similarity[rows]

    def weights_of(self, keys):
        return self.weight[[int(key) for key in keys]]

    def search(self, k, **options):
        options.setdefault("total", len(self.similarity))
        return widening_top_k(self.fetch, self.weights_of, k, **options)


def giving(keys, similarities: int, weights: int) -> Index:
    index = Index([], [])
    index.fetch = lambda _: (keys, np.ones(similarities))
    index.weights_of = lambda _: np.ones(weights)
    return index


GRID = [round(-1 + 0.25 * step, 2) for step in range(9)]
WEIGHTS = [0.0, 1e-9, 0.005, 0.01, 0.25, 0.5, 0.5, 1.0, 1.0]


def patterned(name: str, similarity: np.ndarray, free: np.ndarray) -> np.ndarray:
    n = len(similarity)
    order = np.argsort(-similarity, kind="stable")
    weight = np.ones(n)
    if name == "all zero":
        weight[:] = 0
    elif name == "only the last":
        weight[:] = 0
        weight[order[-1:]] = 1
    elif name == "geometric":
        weight[order] = 0.5 ** np.arange(n)[::-1]
    elif name == "similar suppressed":
        weight[order[: (n + 1) // 2]] = 1e-3
    elif name == "free":
        weight = free
    return weight


PATTERNS = ["ones", "all zero", "only the last", "geometric", "similar suppressed", "free"]


@st.composite
def banks(draw):
    n = draw(st.integers(1, 40))
    value = st.one_of(st.sampled_from(GRID), st.floats(-1, 1, allow_nan=False))
    similarity = np.array(draw(st.lists(value, min_size=n, max_size=n)))
    free = np.array(draw(st.lists(st.sampled_from(WEIGHTS), min_size=n, max_size=n)))
    return similarity, patterned(draw(st.sampled_from(PATTERNS)), similarity, free)


options = st.fixed_dictionaries(
    {
        "k": st.integers(1, 50),
        "min_weight": st.sampled_from([0.0, 0.01, 0.6]),
        "threshold": st.sampled_from([None, -0.5, 0.0, 0.1, 0.5, 1.0]),
    }
)


@settings(max_examples=150, deadline=None)
@given(bank=banks(), option=options)
def test_top_k_is_the_literal_ranking(bank, option):
    similarity, weight = bank
    rows = top_k(similarity, weight, **option)
    assert rows.tolist() == literal_top_k(similarity, weight, **option)


@settings(max_examples=200, deadline=None)
@given(bank=banks(), option=options, first=st.sampled_from([None, 1, 2, 5]), tight=st.booleans())
def test_widening_is_brute_force_in_order(bank, option, first, tight):
    similarity, weight = bank
    index = Index(similarity, weight)
    found = index.search(**option, first=first, w_max=float(weight.max()) if tight else 1.0)
    # Ties in score and similarity are ranked by the index's own order, which here is the row order.
    expected = literal_top_k(similarity, weight, **option)
    assert found.keys == [str(row) for row in expected]
    np.testing.assert_array_equal(found.similarity, similarity[expected])
    np.testing.assert_array_equal(found.weight, weight[expected])
    np.testing.assert_array_equal(found.score, weighted_scores(similarity[expected], weight[expected]))
    assert found.rounds == len(index.depths)
    assert all(b >= min(2 * a, len(weight)) for a, b in pairwise(index.depths))


@pytest.mark.parametrize("name", PATTERNS)
def test_widening_on_a_thousand(name):
    rng = np.random.default_rng(7)
    similarity = rng.normal(0, 0.4, 1000).clip(-1, 1)
    weight = patterned(name, similarity, rng.random(1000) ** 4)
    index = Index(similarity, weight)
    expected = literal_top_k(similarity, weight, 10, min_weight=0.01)
    assert index.search(10, min_weight=0.01).keys == [str(row) for row in expected]


@pytest.mark.parametrize("k", [1, 4, 100])
def test_full_weights_need_one_round(k):
    index = Index(np.linspace(1, -1, 5000), np.ones(5000))
    found = index.search(k)
    assert (found.rounds, found.fetched) == (1, max(4 * k, 32))


def test_fixed_over_fetch_would_be_wrong_here():
    similarity = np.linspace(0.9, 0.8, 1000)
    weight = np.full(1000, 0.5)
    weight[900] = 1.0
    found = Index(similarity, weight).search(1)
    assert found.keys == ["900"]
    assert found.rounds > 1


def test_known_largest_weight_stops_early():
    similarity, weight = np.linspace(0.9, 0.1, 4096), np.full(4096, 0.2)
    assert Index(similarity, weight).search(4).rounds > 1
    assert Index(similarity, weight).search(4, w_max=0.2).rounds == 1
    forgotten = Index(similarity, np.zeros(4096))
    assert forgotten.search(4, w_max=0.0).keys == []
    assert forgotten.search(4, w_max=0.005, min_weight=0.01).rounds == 0


def test_threshold_stops_early_and_filters():
    index = Index(np.linspace(0.9, -1, 4096), np.full(4096, 0.01))
    assert index.search(4, threshold=0.899).keys == []
    assert index.depths == [32]
    index = Index([0.9, 0.8, 0.7], [1, 0.5, 1])
    assert index.search(3, threshold=0.5).keys == ["0", "2"]


def test_negative_similarities_stop_only_with_k_eligible():
    similarity = -np.linspace(0.1, 1, 1000)
    assert Index(similarity, np.ones(1000)).search(3).rounds == 1
    weight = np.zeros(1000)
    weight[[1, 500, 999]] = 0.5
    index = Index(similarity, weight)
    assert index.search(3).keys == ["1", "500", "999"]
    assert index.depths[-1] == 1000
    assert index.search(1).rounds == 1


def test_index_that_gives_fewer_rows_counts_as_exhausted():
    index = Index(np.linspace(1, 0.5, 10), [0] * 8 + [0.1, 0.1])
    found = index.search(4, total=10_000, first=16)
    assert (found.keys, found.rounds, found.fetched) == (["8", "9"], 1, 10)
    empty = giving([], 0, 0).search(3, total=50)
    assert (empty.keys, empty.score.shape, empty.rounds) == ([], (0,), 1)
    nothing = Index([], []).search(3)
    assert (nothing.keys, nothing.rounds) == ([], 0)


def test_an_index_that_lies_is_refused():
    distances = Index([0.1, 0.5, 0.9], [1, 1, 1])
    distances.order = distances.order[::-1]
    with pytest.raises(ConfigError, match="not best first"):
        distances.search(1)
    with pytest.raises(ConfigError, match=r"weight 1 above w_max=0\.5"):
        Index([0.9, 0.8], [0.2, 1]).search(1, w_max=0.5)
    with pytest.raises(ConfigError, match="2 keys came with"):
        giving(["a", "b"], 3, 2).search(1, total=3)
    with pytest.raises(ConfigError, match="2 keys came with"):
        giving(["a", "b"], 2, 1).search(1, total=3)
    with pytest.raises(ConfigError, match="not a finite number"):
        Index([0.9, np.nan], [1, 1]).search(1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_top_k_refuses_values_that_are_not_numbers(bad):
    with pytest.raises(ConfigError, match=r"similarity\[1\]="):
        top_k(np.array([0.5, bad]), np.array([1.0, 0.0]), 1)
    with pytest.raises(ConfigError, match=r"weight\[0\]="):
        top_k(np.array([0.5, 0.1]), np.array([bad, 1.0]), 1)


def test_top_k_refuses_bad_arguments():
    with pytest.raises(ConfigError, match="k=0"):
        top_k(np.ones(2), np.ones(2), 0)
    with pytest.raises(ConfigError, match=r"\(2,\).*\(3,\)"):
        top_k(np.ones(2), np.ones(3), 1)
    with pytest.raises(ConfigError, match="negative"):
        top_k(np.ones(2), np.array([1, -0.1]), 1)
    with pytest.raises(ConfigError, match="first=0"):
        Index([0.5], [1]).search(1, first=0)
    with pytest.raises(ConfigError, match="w_max=nan"):
        Index([0.5], [1]).search(1, w_max=float("nan"))


def test_suppression_is_not_undone_by_a_negative_similarity():
    similarity, weight = np.array([-0.2, -0.1, -0.3]), np.array([0.01, 1.0, 1.0])
    assert weighted_scores(similarity, weight).tolist() == [0, 0, 0]
    assert top_k(similarity, weight, 3).tolist() == [1, 0, 2]


def test_ties_at_the_boundary_of_a_large_array_are_ranked_by_similarity_then_row():
    similarity = np.tile([0.8, 0.4, 0.4], 40_000)
    weight = np.tile([0.5, 1.0, 1.0], 40_000)
    expected = literal_top_k(similarity, weight, 40_500)
    assert top_k(similarity, weight, 40_500).tolist() == expected
    assert top_k(similarity, weight, 5).tolist() == [0, 3, 6, 9, 12]


def test_float32_and_float64_weights_meet_the_same_limit():
    similarity = np.array([0.9, 0.8], dtype=np.float32)
    weight = np.array([0.01, 1.0], dtype=np.float32)
    index = Index(similarity, weight)
    scanned = top_k(similarity, weight, 2, min_weight=0.01).tolist()
    assert index.search(2, min_weight=0.01).keys == [str(row) for row in scanned]


def test_mostly_zero_weights_are_no_slower_than_a_full_bank():
    rng = np.random.default_rng(0)
    similarity = rng.uniform(-1, 1, 200_000)
    sparse = (rng.random(200_000) < 0.01).astype(float)

    def seconds(weight):
        taken = []
        for _ in range(7):
            start = time.perf_counter()
            top_k(similarity, weight, 10)
            taken.append(time.perf_counter() - start)
        return min(taken)

    assert seconds(sparse) < seconds(np.ones(200_000))
