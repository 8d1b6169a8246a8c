from __future__ import annotations

import math

import numpy as np
import pytest

from shared_core.evaluation import auroc, overlap_at_k, share_with_poison


def test_auroc_counts_pairs() -> None:
    score = np.array([3.0, 1.0, 2.0, 1.0])
    positive = np.array([True, False, False, True])
    pairs = [(p, n) for p in score[positive] for n in score[~positive]]
    by_hand = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs)
    assert auroc(score, positive) == pytest.approx(by_hand)
    assert auroc(-score, positive) == pytest.approx(1 - by_hand)


@pytest.mark.parametrize("positive", [[True, True], [False, False], []])
def test_auroc_of_one_class_is_undefined(positive: list[bool]) -> None:
    assert math.isnan(auroc(np.zeros(len(positive)), np.array(positive, bool)))


def test_share_with_poison() -> None:
    retrieved = [["a", "p", "q", "r"], ["a", "b"], ["p"]]
    assert share_with_poison(retrieved, {"p", "q", "r"}) == pytest.approx(2 / 3)
    assert share_with_poison(retrieved, {"p", "q", "r"}, least=3) == pytest.approx(1 / 3)
    assert math.isnan(share_with_poison([], {"p"}))


def test_overlap_ignores_order_and_empty_queries() -> None:
    assert overlap_at_k([["a", "b"], ["c", "d"], []], [["b", "a"], ["c", "x"], ["y"]]) == 0.75
    assert math.isnan(overlap_at_k([], []))
