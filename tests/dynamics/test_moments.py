"""Running moments against recomputation, whatever comes and goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core.dynamics import Moments, anisotropic_scale, measure
from shared_core.dynamics.blocks import Workers
from shared_core.errors import ConfigError


def rows_of(seed, count, dim, offset):
    return offset + np.random.default_rng(seed).standard_normal((count, dim))


def assert_same(ours, rows, largest=0.0):
    """``largest`` is the largest scatter there ever was: rounding is relative to that."""
    assert ours.count == len(rows)
    if len(rows):
        np.testing.assert_allclose(ours.mean, rows.mean(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ours.total, rows.sum(axis=0), rtol=1e-11, atol=1e-11)
        scatter = np.square(rows - rows.mean(axis=0)).sum(axis=0)
        np.testing.assert_allclose(ours.scatter, scatter, rtol=1e-9, atol=1e-10 * largest)
        np.testing.assert_array_equal(ours.std, np.sqrt(ours.scatter / len(rows)))


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=8),
    st.integers(1, 5),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 1.0, -1e3]),
)
@settings(max_examples=80, deadline=None)
def test_any_history_ends_where_recomputation_does(steps, dim, seed, offset):
    held = rows_of(seed, 7, dim, offset)
    ours = Moments.of(held)
    largest = 0.0
    for number, (adding, count) in enumerate(steps):
        if adding:
            new = rows_of((seed, number), count, dim, offset)
            ours, held = ours.added(new), np.concatenate([held, new])
        else:
            gone = np.random.default_rng((seed, number)).permutation(len(held))[: min(count, len(held))]
            ours, held = ours.removed(held[gone]), np.delete(held, gone, axis=0)
        largest = max(largest, float(ours.scatter.max(initial=0.0)), float(held.size))
        assert_same(ours, held, largest)


def test_merging_parts_is_the_whole_in_any_order():
    rows = rows_of(0, 1000, 6, 3.0)
    one, two, three = (Moments.of(part) for part in np.split(rows, [10, 700]))
    for merged in (one.merged(two).merged(three), three.merged(one.merged(two))):
        assert_same(merged, rows)


def test_a_small_spread_around_a_large_mean_is_kept():
    rows = 1e6 + 1e-3 * rows_of(1, 500, 3, 0.0)
    np.testing.assert_allclose(Moments.of(rows).std, rows.std(axis=0), rtol=1e-6)
    squares = np.square(rows).mean(axis=0) - np.square(rows.mean(axis=0))
    assert not np.allclose(np.sqrt(np.maximum(0, squares)), rows.std(axis=0), rtol=0.1)


def test_blocks_and_threads_change_nothing():
    rows = rows_of(2, 30_000, 8, 0.5).astype(np.float32)
    serial = Moments.of(rows)
    assert_same(serial, rows.astype(float))
    with Workers(3) as workers:
        threaded = Moments.of(rows, workers)
    np.testing.assert_array_equal(serial.mean, threaded.mean)
    np.testing.assert_array_equal(serial.scatter, threaded.scatter)


def test_numbers_have_moments_without_a_dimension():
    values = rows_of(3, 50, 1, 2.0)[:, 0]
    ours = Moments.of(values)
    assert (float(ours.mean), float(ours.std)) == pytest.approx((values.mean(), values.std()))


def test_removing_everything_and_too_much():
    rows = rows_of(4, 5, 2, 0.0)
    empty = Moments.of(rows).removed(rows)
    assert_same(empty, rows[:0])
    np.testing.assert_array_equal(empty.std, 0.0)
    assert_same(empty.added(rows), rows)
    with pytest.raises(ConfigError, match="5 rows cannot be removed from 0"):
        empty.removed(rows)


def test_anisotropic_scale_from_moments_is_that_of_the_rows():
    rows = rows_of(5, 200, 6, 0.1) * np.linspace(0.1, 1, 6)
    np.testing.assert_allclose(anisotropic_scale(Moments.of(rows)), anisotropic_scale(rows))
    np.testing.assert_allclose(anisotropic_scale(rows), rows.std(axis=0) / np.sqrt(np.mean(rows.var(axis=0))))


@pytest.mark.parametrize("threads", [1, 3])
def test_geometry_of_unit_rows_with_and_without_their_sum(threads):
    raw = rows_of(6, 5000, 40, 0.3) * np.random.default_rng(0).uniform(1, 9, (5000, 1))
    expected = measure(raw)
    norms = np.linalg.norm(raw, axis=1)
    unit = raw / norms[:, None]
    with Workers(threads) as workers:
        for total in (None, Moments.of(unit).total):
            found = measure(unit, norms=norms, total=total, workers=workers)
            np.testing.assert_allclose(found.cosines, expected.cosines, atol=1e-12)
            np.testing.assert_allclose(found.direction, expected.direction, atol=1e-12)
            np.testing.assert_array_equal(found.norms, norms)
