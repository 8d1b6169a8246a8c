"""Credit and consolidation against numbers worked out by hand, and their invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.dynamics import attribute, consolidate
from shared_core.errors import ConfigError

unit = st.floats(0, 1)


def test_utility_by_hand():
    # softmax of (0.9, 0.8, 0.6) at T = 0.1: 1 : exp(-1) : exp(-3), times K = 3, capped at 1.
    total = 1 + math.exp(-1) + math.exp(-3)
    expected = np.array([1.0, 3 * math.exp(-1) / total, 3 * math.exp(-3) / total])
    scores = np.array([0.9, 0.8, 0.6])
    np.testing.assert_allclose(attribute(scores, 1.0, 0.1), expected)
    np.testing.assert_allclose(attribute(scores, 0.25, 0.1), 0.25 * expected)


@pytest.mark.parametrize("count", [1, 2, 4, 50])
def test_average_helpers_get_the_whole_success_whatever_k(count):
    np.testing.assert_allclose(attribute(np.full(count, 0.7), 0.6, 0.1), 0.6)


def test_consolidation_by_hand():
    np.testing.assert_allclose(
        consolidate(np.array([1.0, 0.5, 0.0]), np.array([0.0, 1.0, 0.25]), 0.2), [0.8, 0.6, 0.05]
    )
    c, u = np.array([0.3]), np.array([0.9])
    assert consolidate(c, u, 0.0)[0] == pytest.approx(0.3)
    assert consolidate(c, u, 1.0)[0] == pytest.approx(0.9)


def test_a_memory_that_keeps_failing_falls_below_theta_c_after_four_tasks():
    c, history = np.ones(1), []
    for _ in range(4):
        c = consolidate(c, attribute(np.array([0.8]), 0.0, 0.1), 0.2)
        history.append(float(c[0]))
    np.testing.assert_allclose(history, [0.8, 0.64, 0.512, 0.4096])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), unit, st.floats(1e-300, 1e6), unit, unit)
def test_credit_and_consolidation_stay_in_range_and_in_order(scores, success, temperature, before, momentum):
    utility = attribute(np.array(scores), success, temperature)
    assert ((utility >= 0) & (utility <= success)).all()
    assert (np.diff(utility[np.argsort(scores, kind="stable")]) >= 0).all()
    # The best helper is at least an average one.
    assert utility.max() == pytest.approx(success)
    after = consolidate(np.full(len(scores), before), utility, momentum)
    assert ((after >= 0) & (after <= 1)).all()


def test_nothing_retrieved_gives_no_credit():
    assert attribute(np.empty(0), 1.0, 0.1).shape == (0,)
    assert consolidate(np.empty(0), np.empty(0), 0.2).shape == (0,)


def test_inputs_are_left_alone():
    scores, c = np.array([0.9, 0.8]), np.array([0.5, 0.5])
    consolidate(c, attribute(scores, 1.0, 0.1), 0.5)
    assert scores.tolist() == [0.9, 0.8]
    assert c.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("scores", "success", "temperature", "quoted"),
    [
        ([0.5], 1.1, 0.1, "success=1.1"),
        ([0.5], -0.1, 0.1, "success=-0.1"),
        ([0.5], math.nan, 0.1, "success=nan"),
        ([0.5], 1.0, 0.0, "temperature=0.0"),
        ([0.5], 1.0, math.inf, "temperature=inf"),
        ([0.5, math.nan], 1.0, 0.1, r"\(2,\)"),
        ([[0.5]], 1.0, 0.1, r"\(1, 1\)"),
    ],
)
def test_credit_errors_quote_what_was_given(scores, success, temperature, quoted):
    with pytest.raises(ConfigError, match=quoted):
        attribute(np.array(scores), success, temperature)


def test_consolidate_errors_quote_what_was_given():
    with pytest.raises(ConfigError, match=r"momentum=1\.5"):
        consolidate(np.ones(1), np.ones(1), 1.5)
    with pytest.raises(ConfigError, match=r"\(2,\).*\(3,\)"):
        consolidate(np.ones(2), np.ones(3), 0.5)
