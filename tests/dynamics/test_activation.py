"""Each term against numbers worked out by hand, and their sum."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shared_core.config import ForgettingConfig
from shared_core.dynamics import activation, coherence, geometric_stability, retrieval_competitiveness
from shared_core.errors import ConfigError

SELF = np.array([0.99, 0.9, 0.5])
PROBE = np.array([0.30, 0.35, -0.10])
cosines = arrays(np.float64, st.integers(1, 20), elements=st.floats(-1, 1))


def test_geometric_term_is_the_cosine_itself_in_a_new_array():
    result = geometric_stability(SELF)
    np.testing.assert_array_equal(result, SELF)
    assert not np.shares_memory(result, SELF)


def test_logistic_term_by_hand():
    result = retrieval_competitiveness(PROBE, 0.30, 0.05, "logistic")
    # (0.30 - 0.30) / 0.05 = 0; (0.35 - 0.30) / 0.05 = 1; (-0.10 - 0.30) / 0.05 = -8.
    np.testing.assert_allclose(result, [0.5, 0.7310585786300049, 0.00033535013046647816], rtol=1e-9)


def test_softmax_term_by_hand():
    # exp(0.30 / 0.05) : exp(0.35 / 0.05) : exp(-0.10 / 0.05) = 1 : e : exp(-8)
    parts = np.array([1.0, math.e, math.exp(-8)])
    np.testing.assert_allclose(
        retrieval_competitiveness(PROBE, 0.30, 0.05, "softmax"), parts / parts.sum(), rtol=1e-9
    )


def test_coherence_by_hand():
    np.testing.assert_allclose(
        coherence(np.array([1.0, 0.5, -1.0]), 2.0), [1.0, 0.36787944117144233, 0.01831563888873418]
    )
    np.testing.assert_array_equal(coherence(PROBE, 0.0), np.ones(3))


def test_softmax_term_is_of_order_one_over_n_and_the_logistic_is_not():
    rng = np.random.default_rng(0)
    for count in (100, 10_000):
        probe = rng.normal(0.3, 0.05, count)
        softmax = retrieval_competitiveness(probe, 0.3, 0.05, "softmax")
        assert softmax.sum() == pytest.approx(1.0)
        assert softmax.max() < 100 / count
        assert retrieval_competitiveness(probe, 0.3, 0.05, "logistic").mean() == pytest.approx(0.5, abs=0.05)


@given(cosines, st.floats(-1, 1), st.floats(1e-300, 1e3))
def test_terms_stay_in_their_ranges_at_any_temperature(probe, mean, tau):
    for form in ("logistic", "softmax"):
        term = retrieval_competitiveness(probe, mean, tau, form)
        assert np.isfinite(term).all()
        assert (term >= 0).all()
        assert (term <= 1).all()
        # A memory closer to the centroid never competes worse.
        assert (np.diff(term[np.argsort(probe, kind="stable")]) >= -1e-12).all()
    assert retrieval_competitiveness(probe, mean, tau, "softmax").sum() == pytest.approx(1.0)


def test_extreme_cosines_over_temperature_do_not_overflow(recwarn):
    for form in ("logistic", "softmax"):
        retrieval_competitiveness(np.array([-1.0, 1.0]), 0.0, 1e-300, form)
    assert not recwarn.list


@pytest.mark.parametrize("size", [1, 2, 3])
def test_activation_is_the_sum_of_exactly_the_named_terms(size):
    parts = {
        "geometric": SELF,
        "retrieval": 1 / (1 + np.exp(-(PROBE - 0.2) / 0.1)),
        "coherence": np.exp(-3.0 * (1 - PROBE)),
    }
    for terms in itertools.permutations(parts, size):
        config = ForgettingConfig(terms=terms, tau=0.1, kappa=3.0)
        expected = sum(parts[term] for term in terms)
        np.testing.assert_allclose(activation(SELF, PROBE, 0.2, config), expected, rtol=1e-12)


def test_activation_uses_the_configured_form_and_leaves_its_inputs_alone():
    before = SELF.copy(), PROBE.copy()
    config = ForgettingConfig(terms=("retrieval",), retrieval_form="softmax")
    np.testing.assert_allclose(activation(SELF, PROBE, 0.2, config).sum(), 1.0)
    activation(SELF, PROBE, 0.2, ForgettingConfig(terms=("geometric",)))[:] = 7
    np.testing.assert_array_equal(SELF, before[0])
    np.testing.assert_array_equal(PROBE, before[1])


def test_activation_of_an_empty_bank_is_empty():
    for form in ("logistic", "softmax"):
        config = ForgettingConfig(retrieval_form=form)
        assert activation(np.empty(0), np.empty(0), 0.0, config).shape == (0,)


def test_activation_errors_quote_what_was_given():
    with pytest.raises(ConfigError, match=r"\(3,\).*\(2,\)"):
        activation(SELF, PROBE[:2], 0.0, ForgettingConfig())
    with pytest.raises(ConfigError, match="tau=0"):
        retrieval_competitiveness(PROBE, 0.0, 0, "logistic")
    with pytest.raises(ConfigError, match="'cubic'"):
        retrieval_competitiveness(PROBE, 0.0, 0.1, "cubic")
