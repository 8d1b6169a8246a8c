"""Decay and recovery against numbers worked out by hand, and their invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.config import ForgettingConfig
from shared_core.dynamics import decay_rate, update_weights
from shared_core.errors import ConfigError

unit = st.floats(0, 1)
memories = st.lists(st.tuples(unit, unit, unit, st.booleans()), min_size=1, max_size=20)
laws = st.sampled_from(["additive", "multiplicative"])


def columns(rows):
    weights, suspicion, consolidation, abnormal = zip(*rows, strict=True)
    return (*map(np.array, (weights, suspicion, consolidation)), np.array(abnormal))


def test_decay_rates_by_hand():
    s, c = np.array([0.0, 0.0, 0.3, 1.0]), np.array([1.0, 0.0, 0.5, 1.0])
    # lambda0 = 0.4, k = 10.
    np.testing.assert_allclose(
        decay_rate(s, c, ForgettingConfig()), [0.0, 0.4, 0.4 * 3.5, 0.4 * 10.0], atol=1e-15
    )
    shielded = decay_rate(s, c, ForgettingConfig(decay_law="multiplicative"))
    np.testing.assert_allclose(shielded, [0.0, 0.4, 0.4 * 4 * 0.5, 0.0], atol=1e-15)


def test_weights_by_hand():
    weights = np.array([0.5, 0.5, 0.5, 0.5, 1.0])
    suspicion = np.array([0.0, 0.0, 0.3, 0.3, 0.0])
    consolidation = np.array([1.0, 0.5, 1.0, 1.0, 1.0])
    abnormal = np.array([False, False, False, True, False])
    result = update_weights(weights, suspicion, consolidation, abnormal, ForgettingConfig())
    expected = [
        0.5 + 0.6 * 0.5,  # stable
        0.5 * math.exp(-0.4 * 0.5),  # c = 0.5 is not above theta_c
        0.8,  # suspicious from before, yet stable now
        0.5 * math.exp(-0.4 * 3.0),  # abnormal: 1 + 10 * 0.3 - 1
        1.0,
    ]
    np.testing.assert_allclose(result, expected)


def test_theta_c_decides_who_recovers():
    args = np.array([0.2]), np.array([0.0]), np.array([0.4]), np.array([False])
    assert update_weights(*args, ForgettingConfig())[0] < 0.2
    assert update_weights(*args, ForgettingConfig(theta_c=0.39))[0] == pytest.approx(0.68)


any_config = st.builds(
    ForgettingConfig,
    decay_law=laws,
    lambda0=st.floats(0, 1e6),
    k=st.floats(0, 1e6),
    alpha_rec=unit,
    theta_c=unit,
)


@given(memories, any_config)
def test_weights_stay_between_zero_and_one(rows, config):
    result = update_weights(*columns(rows), config)
    assert ((result >= 0) & (result <= 1)).all()
    assert (decay_rate(*columns(rows)[1:3], config) >= 0).all()


@given(memories, laws, st.floats(0, 5), st.floats(0, 5))
def test_more_decay_never_leaves_more_weight(rows, law, one, other):
    low, high = sorted((one, other))
    weak, strong = (
        update_weights(*columns(rows), ForgettingConfig(decay_law=law, lambda0=x)) for x in (low, high)
    )
    assert (strong <= weak).all()


@given(memories, laws, unit)
def test_a_stable_consolidated_memory_never_loses_weight(rows, law, theta):
    weights, suspicion, consolidation, abnormal = columns(rows)
    config = ForgettingConfig(decay_law=law, theta_c=theta)
    after = update_weights(weights, suspicion, consolidation, abnormal, config)
    stable = ~abnormal & (consolidation > theta)
    assert (after[stable] >= weights[stable]).all()
    assert (after[~stable] <= weights[~stable]).all()


@given(unit, unit, unit, unit)
def test_under_the_additive_law_full_consolidation_does_not_shield_a_suspect(w, s, c, more):
    low, high = sorted((s, more))
    one, two = (decay_rate(np.array([x]), np.array([c]), ForgettingConfig())[0] for x in (low, high))
    assert two >= one
    if s > 0.01:
        assert decay_rate(np.array([s]), np.array([1.0]), ForgettingConfig())[0] > 0


def test_no_decay_without_lambda0_and_no_recovery_without_alpha():
    rows = np.array([0.3, 0.7]), np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([True, False])
    result = update_weights(*rows, ForgettingConfig(lambda0=0.0, alpha_rec=0.0))
    np.testing.assert_array_equal(result, rows[0])


def test_inputs_are_left_alone_and_empty_banks_pass():
    rows = np.array([0.3, 0.7]), np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([True, False])
    before = [x.copy() for x in rows]
    update_weights(*rows, ForgettingConfig())
    for x, y in zip(rows, before, strict=True):
        np.testing.assert_array_equal(x, y)
    empty = np.empty(0)
    assert update_weights(empty, empty, empty, np.empty(0, bool), ForgettingConfig()).shape == (0,)


def test_forgetting_errors_quote_both_shapes():
    with pytest.raises(ConfigError, match=r"\(2,\).*\(3,\)"):
        decay_rate(np.zeros(2), np.zeros(3), ForgettingConfig())
    with pytest.raises(ConfigError, match=r"\(1,\).*\(2,\)"):
        update_weights(np.zeros(1), np.zeros(2), np.zeros(2), np.zeros(2, bool), ForgettingConfig())
