"""Top-K from bounds is top-K, whatever the bounds, as long as they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core.retrieval.bounded import bounded_top_k
from shared_core.retrieval.topk import top_k


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([0, 1, 5, 70, 700]),
    k=st.sampled_from([1, 3, 6, 80]),
    width=st.sampled_from([0.0, 0.01, 0.3, 3.0]),
    distinct=st.sampled_from([2, 5, 10_000]),
    min_weight=st.sampled_from([0.0, 0.3, 1.0]),
    threshold=st.sampled_from([None, -0.1, 0.0, 0.4, 2.0]),
)
def test_as_the_full_scan(
    seed: int, rows: int, k: int, width: float, distinct: int, min_weight: float, threshold: float | None
) -> None:
    rng = np.random.default_rng(seed)
    similarity = rng.integers(-distinct, distinct + 1, rows) / distinct
    weight = rng.integers(0, distinct + 1, rows) / distinct
    error = rng.uniform(0.0, width, rows).astype(np.float32) + np.float32(1e-6)
    near = (similarity + rng.uniform(-0.99, 0.99, rows) * error).astype(np.float32)
    error += np.float32(1e-7)
    options = {"min_weight": min_weight, "threshold": threshold}
    found = bounded_top_k(near, error, weight, lambda asked: similarity[asked], k, **options)  # type: ignore[arg-type]
    expected = top_k(similarity, weight, k, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.rows, expected)
    np.testing.assert_array_equal(found.weight, weight[expected])
    np.testing.assert_array_equal(found.similarity, similarity[expected])


@pytest.mark.parametrize("weighted", [False, True])
def test_little_is_compared(rng: np.random.Generator, weighted: bool) -> None:
    similarity = rng.normal(0.0, 0.05, 50_000)
    weight = rng.uniform(size=50_000) if weighted else np.ones(50_000)
    error = np.full(50_000, 0.015, np.float32)
    found = bounded_top_k(similarity.astype(np.float32), error, weight, lambda rows: similarity[rows], 4)
    assert found.compared < 500
