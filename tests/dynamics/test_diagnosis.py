"""Threshold and suspicion against numbers worked out by hand, and their invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.config import ForgettingConfig
from shared_core.dynamics import moments, threshold, update_suspicion
from shared_core.errors import ConfigError

# Mean 2, population deviation 1.
R = np.array([0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 4.0])


def test_threshold_by_hand():
    assert moments(R) == (2.0, 1.0)
    assert threshold(R, 0.8) == pytest.approx(1.2)
    assert threshold(R, 0.0) == 2.0


def test_suspicion_by_hand():
    suspicion = np.array([0.1, 0.0, 0.2, 1.0, 0.4, 0.0, 0.0, 0.6])
    result, abnormal = update_suspicion(suspicion, R, ForgettingConfig())
    assert abnormal.tolist() == [True] + [False] * 7
    # 0.1 + 0.25 * (2 - 0) / 1; the others halve, also the one far above the mean.
    np.testing.assert_allclose(result, [0.6, 0.0, 0.1, 0.5, 0.2, 0.0, 0.0, 0.3])


def test_suspicion_saturates_at_one():
    result, _ = update_suspicion(np.full(8, 0.9), R, ForgettingConfig(suspicion_gain=10.0))
    assert result[0] == 1.0
    np.testing.assert_allclose(result[1:], 0.45)


def test_gain_gamma_and_eta_do_what_they_say():
    start = np.full(8, 0.4)
    gain, _ = update_suspicion(start, R, ForgettingConfig(suspicion_gain=0.1))
    assert gain[0] == pytest.approx(0.6)
    gamma, _ = update_suspicion(start, R, ForgettingConfig(gamma=0.9))
    assert gamma[1] == pytest.approx(0.36)
    assert update_suspicion(start, R, ForgettingConfig(eta=1.99))[1].sum() == 1
    # The threshold itself is not below the threshold.
    assert update_suspicion(start, R, ForgettingConfig(eta=2.0))[1].sum() == 0
    assert update_suspicion(start, R, ForgettingConfig(eta=0.0))[1].sum() == 1


@pytest.mark.parametrize("value", [0.1, 1.7, 1e-9, -3.3, 0.0])
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_equal_activations_make_nobody_abnormal(value, count):
    result, abnormal = update_suspicion(np.full(count, 0.8), np.full(count, value), ForgettingConfig(eta=0.0))
    assert not abnormal.any()
    np.testing.assert_allclose(result, 0.4)
    assert threshold(np.full(count, value), 0.8) == pytest.approx(value, abs=1e-15)


def test_small_but_real_differences_are_seen():
    tiny = 1e-5 + 1e-9 * R
    assert update_suspicion(np.zeros(8), tiny, ForgettingConfig())[1].tolist() == [True] + [False] * 7


def test_empty_bank_is_defined():
    assert moments(np.empty(0)) == (0.0, 0.0)
    assert threshold(np.empty(0), 0.8) == 0.0
    result, abnormal = update_suspicion(np.empty(0), np.empty(0), ForgettingConfig())
    assert result.shape == abnormal.shape == (0,)
    assert abnormal.dtype == np.bool_


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(-3, 3)), min_size=1, max_size=30),
    st.floats(0, 1),
    st.floats(0, 5),
    st.floats(0, 100),
)
def test_suspicion_stays_in_range_rises_if_abnormal_and_never_otherwise(rows, gamma, eta, gain):
    before, response = np.array(rows).T
    config = ForgettingConfig(gamma=gamma, eta=eta, suspicion_gain=gain)
    after, abnormal = update_suspicion(before, response, config)
    assert ((after >= 0) & (after <= 1)).all()
    assert (after[abnormal] >= before[abnormal]).all()
    assert (after[~abnormal] <= before[~abnormal]).all()
    assert (response[abnormal] <= threshold(response, eta)).all()
    # The largest response is never abnormal, so a bank is never condemned as a whole.
    assert not abnormal[np.argmax(response)]


def test_inputs_are_left_alone_and_shapes_are_checked():
    suspicion, response = np.full(8, 0.5), R.copy()
    update_suspicion(suspicion, response, ForgettingConfig())
    np.testing.assert_array_equal(suspicion, np.full(8, 0.5))
    np.testing.assert_array_equal(response, R)
    with pytest.raises(ConfigError, match=r"\(3,\).*\(8,\)"):
        update_suspicion(np.zeros(3), R, ForgettingConfig())
