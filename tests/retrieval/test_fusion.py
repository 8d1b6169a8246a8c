from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core.errors import ConfigError
from shared_core.retrieval import fuse_weighted, reciprocal_rank_fusion, unseen_bound


def test_hand_computed_values():
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["c", "a", "d"]])
    assert fused == pytest.approx({"a": 1 / 61 + 1 / 62, "b": 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 63})
    weighed = reciprocal_rank_fusion([["a", "b"], ["b"]], k=1, weights=[2, 0.5])
    assert weighed == pytest.approx({"a": 2 / 2, "b": 2 / 3 + 0.5 / 2})


def test_a_duplicate_counts_once_and_pushes_nobody_down():
    assert reciprocal_rank_fusion([["a", "a", "b", "a"]], k=1) == {"a": 1 / 2, "b": 1 / 3}


def test_empty_arms():
    assert reciprocal_rank_fusion([]) == {}
    assert reciprocal_rank_fusion([[], ["a"]], k=1) == {"a": 0.5}
    assert fuse_weighted([[], []], {}) == []


def test_weight_multiplies_and_zero_or_small_weights_vanish():
    weights = {"a": 0.1, "b": 1.0, "c": 0.0, "d": 0.009}
    fused = fuse_weighted([["a", "b", "c", "d", "new"]], weights, k=1, min_weight=0.01)
    assert fused == [("b", pytest.approx(1 / 3)), ("new", pytest.approx(1 / 6)), ("a", pytest.approx(0.05))]
    assert [key for key, _ in fuse_weighted([["c", "d"]], weights)] == ["d"]
    assert fuse_weighted([["a", "b"]], lambda key: {"a": 1, "b": 0.5}[key], k=1) == [("a", 0.5), ("b", 1 / 6)]


def test_ties_go_by_fused_score_then_key_whatever_the_order():
    arms = [["y", "b"], ["b", "y"], ["x"], ["a"]]
    expected = ["b", "y", "a", "x"]
    for shuffled in itertools.permutations(arms):
        assert [key for key, _ in fuse_weighted(shuffled, {})] == expected
    # 1/2 * 0.5 and 1/4 * 1 are equal; the better fused one leads.
    assert [key for key, _ in fuse_weighted([["z", "c", "a"]], {"z": 0.5, "c": 0.1}, k=1)][:2] == ["z", "a"]


def test_unseen_bound_by_hand():
    assert unseen_bound([3, 0], 60, [1, 2], 0.5) == pytest.approx(0.5 * (1 / 64 + 2 / 61))
    assert unseen_bound([10, math.inf]) == pytest.approx(1 / 71)
    assert unseen_bound([math.inf, math.inf]) == 0
    assert unseen_bound([]) == 0


@settings(max_examples=150, deadline=None)
@given(
    arms=st.lists(st.permutations([str(i) for i in range(9)]), min_size=1, max_size=3),
    depth=st.integers(0, 8),
    weights=st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=9, max_size=9),
)
def test_no_unseen_memory_beats_the_bound_and_one_can_reach_it(arms, depth, weights):
    weight_of = dict(zip(map(str, range(9)), weights, strict=True))
    bound = unseen_bound([depth] * len(arms), w_max=max(weights))
    seen = {key for arm in arms for key in arm[:depth]}
    full = dict(fuse_weighted(arms, weight_of))
    assert all(score <= bound + 1e-15 for key, score in full.items() if key not in seen)
    first_unseen = [[*arm[:depth], "u"] for arm in arms]
    assert dict(fuse_weighted(first_unseen, {**weight_of, "u": 1.0}))["u"] == pytest.approx(
        unseen_bound([depth] * len(arms))
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reciprocal_rank_fusion([["a"]], k=0), "k=0"),
        (lambda: reciprocal_rank_fusion([["a"]], k=math.nan), "k=nan"),
        (lambda: reciprocal_rank_fusion([["a"]], weights=[1, 2]), "2 fusion weights for 1"),
        (lambda: reciprocal_rank_fusion([["a"]], weights=[-1]), "0 or more"),
        (lambda: fuse_weighted([["a"]], {"a": math.nan}), "'a'"),
        (lambda: fuse_weighted([["a"]], {"a": -1}), "'a'"),
        (lambda: unseen_bound([-1]), "depths"),
        (lambda: unseen_bound([math.nan]), "depths"),
        (lambda: unseen_bound([1], w_max=math.nan), "w_max"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
