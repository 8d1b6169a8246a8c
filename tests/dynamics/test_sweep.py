"""Whole sweeps: against a plain loop, scalar against full, edge banks, determinism, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shared_core.config import ForgettingConfig
from shared_core.dynamics import SweepState, forgetting_sweep, measure
from shared_core.errors import ConfigError, InvalidMemoryError


def fresh(count):
    return SweepState(np.ones(count), np.zeros(count), np.ones(count))


def sweep(embeddings, seed=0, state=None, **options):
    state = fresh(len(embeddings)) if state is None else state
    return forgetting_sweep(embeddings, state, ForgettingConfig(**options), np.random.default_rng(seed))


def bank(count=60, dim=16, seed=0, dtype=np.float64):
    """A cluster, with the last tenth of the rows pointing away from it; norms vary."""
    rng = np.random.default_rng(seed)
    rows = 0.5 * rng.standard_normal((count, dim))
    rows[:, 0] += np.where(np.arange(count) < 0.9 * count, 2.0, -1.0)
    return (rows * rng.uniform(1, 10, (count, 1))).astype(dtype)


def plain_sweep(embeddings, state, config, rng):
    """The whole algorithm, one memory at a time, with d-dimensional isotropic noise."""
    unit = [row / math.sqrt(sum(x * x for x in row)) for row in embeddings.astype(float)]
    mean = sum(unit) / len(unit)
    centroid = mean / math.sqrt(sum(x * x for x in mean))
    typical = sum(float(v @ centroid) for v in unit) / len(unit)
    w, s, c = (list(map(float, x)) for x in (state.weights, state.suspicion, state.consolidation))
    counts = [0] * len(w)
    for _ in range(config.iterations):
        responses = []
        for v, row in zip(unit, embeddings, strict=True):
            scale = config.sigma / np.linalg.norm(row)
            probe = v + scale * rng.standard_normal(len(v))
            length = math.sqrt(float(probe @ probe))
            near = float(probe @ centroid) / length
            p_ret = 1 / (1 + math.exp(-(near - typical) / config.tau))
            responses.append(float(probe @ v) / length + p_ret + math.exp(-config.kappa * (1 - near)))
        average = sum(responses) / len(responses)
        spread = math.sqrt(sum((r - average) ** 2 for r in responses) / len(responses))
        for i, r in enumerate(responses):
            if r < average - config.eta * spread:
                counts[i] += 1
                s[i] = min(1.0, s[i] + config.suspicion_gain * (average - r) / spread)
                w[i] *= math.exp(-config.lambda0 * max(0.0, 1 + config.k * s[i] - c[i]))
                continue
            s[i] *= config.gamma
            if c[i] > config.theta_c:
                w[i] += config.alpha_rec * (1 - w[i])
            else:
                w[i] *= math.exp(-config.lambda0 * max(0.0, 1 + config.k * s[i] - c[i]))
    return np.array(w), np.array(s), np.array(counts)


def test_full_sweep_is_what_a_plain_loop_computes():
    embeddings = bank(25, 6)
    draw = np.random.default_rng(1)
    state = SweepState(draw.random(25), draw.random(25), draw.random(25))
    config = ForgettingConfig(sigma=0.8, noise_ratio=None, probe="full", iterations=6)
    result = forgetting_sweep(embeddings, state, config, np.random.default_rng(7))
    weights, suspicion, counts = plain_sweep(embeddings, state, config, np.random.default_rng(7))
    np.testing.assert_allclose(result.weights, weights, rtol=1e-9)
    np.testing.assert_allclose(result.suspicion, suspicion, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(result.abnormal_counts, counts)
    assert 0 < counts.sum() < 25 * 6


@pytest.mark.parametrize("noise", [{"noise_ratio": 0.7}, {"noise_ratio": None, "sigma": 0.5}])
@pytest.mark.parametrize("terms", [("geometric", "retrieval", "coherence"), ("geometric",)])
def test_scalar_and_full_sweeps_agree_in_distribution(noise, terms):
    embeddings = bank(40, 8)
    results = {
        probe: [sweep(embeddings, seed, probe=probe, terms=terms, **noise) for seed in range(250)]
        for probe in ("scalar", "full")
    }
    for statistic in (
        lambda r: r.abnormal_counts.sum(),
        lambda r: r.weights.mean(),
        lambda r: r.suspicion.mean(),
        lambda r: r.activation.std(),
        lambda r: r.activation[0] - r.activation[-1],
    ):
        scalar, full = ([statistic(r) for r in results[probe]] for probe in ("scalar", "full"))
        assert stats.ks_2samp(scalar, full).pvalue > 1e-3
    counts = {p: np.mean([r.abnormal_counts for r in rs], axis=0) for p, rs in results.items()}
    np.testing.assert_allclose(counts["scalar"], counts["full"], atol=0.6)
    # Relative noise through the geometric term alone condemns everybody equally often: no information.
    alike = terms == ("geometric",) and "sigma" not in noise
    assert (np.ptp(counts["full"]) < 0.6) == alike


def test_outliers_are_forgotten_and_the_cluster_is_kept():
    result = sweep(bank())
    assert (result.weights[-6:] < 0.01).all()
    assert (result.suspicion[-6:] > 0.9).all()
    assert (result.abnormal_counts[-6:] == 10).all()
    # Not all of it: the literal threshold also flags the edge of a clean cluster.
    assert np.mean(result.weights[:-6] > 0.9) > 0.8
    assert result.activation[-6:].max() < result.activation[:-6].min()


def test_trace_tells_each_iteration():
    result = sweep(bank(), iterations=4)
    assert len(result.trace) == 4
    for step in result.trace:
        assert step.threshold == pytest.approx(step.mean - 0.8 * step.std)
        assert step.std > 0
    assert sum(step.abnormal for step in result.trace) == result.abnormal_counts.sum()
    assert result.trace[-1].mean_weight == pytest.approx(result.weights.mean())
    assert np.mean([step.mean for step in result.trace]) == pytest.approx(result.activation.mean())


def test_progress_is_told_after_each_iteration():
    calls = []
    forgetting_sweep(
        bank(), fresh(60), ForgettingConfig(iterations=3), np.random.default_rng(0),
        progress=lambda *call: calls.append(call),
    )  # fmt: skip
    assert calls == [("sweep", 1, 3), ("sweep", 2, 3), ("sweep", 3, 3)]


@pytest.mark.parametrize("options", [{}, {"probe": "full"}, {"noise": "sparse"}, {"noise": "anisotropic"}])
def test_a_seed_decides_everything(options):
    one, same, other = (sweep(bank(), seed, **options) for seed in (3, 3, 4))
    for name in ("weights", "suspicion", "activation", "abnormal_counts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert one.trace == same.trace
    assert not np.array_equal(one.activation, other.activation)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("probe", ["scalar", "full"])
def test_inputs_are_never_written_to(dtype, probe):
    embeddings, state = bank(dtype=dtype), fresh(60)
    embeddings.setflags(write=False)
    for column in (state.weights, state.suspicion, state.consolidation):
        column.setflags(write=False)
    result = sweep(embeddings, state=state, probe=probe)
    assert not np.shares_memory(result.weights, state.weights)
    assert result.weights.dtype == np.float64


def test_single_precision_gives_the_same_sweep():
    embeddings = bank(200, 32)
    double, single = (sweep(embeddings.astype(t)) for t in (np.float64, np.float32))
    np.testing.assert_allclose(single.activation, double.activation, atol=1e-5)


@pytest.mark.parametrize("family", ["isotropic", "uniform", "sparse", "anisotropic"])
def test_every_noise_family_sweeps(family):
    result = sweep(bank(), noise=family)
    assert (result.weights[-6:] < 0.01).all()


def test_auto_probe_is_scalar_where_that_is_exact():
    embeddings = bank()
    for options, same in (({}, "scalar"), ({"noise": "uniform"}, "full")):
        auto = sweep(embeddings, **options)
        chosen = sweep(embeddings, probe=same, **options)
        np.testing.assert_array_equal(auto.activation, chosen.activation)
    one_dimensional = np.array([[1.0], [2.0], [-1.0]])
    np.testing.assert_array_equal(
        sweep(one_dimensional).activation, sweep(one_dimensional, probe="full").activation
    )
    with pytest.raises(ConfigError, match="not 1"):
        sweep(one_dimensional, probe="scalar")


def test_each_term_changes_the_activation_as_it_should():
    embeddings = bank()
    geometry = measure(embeddings)
    alone = {
        term: sweep(embeddings, noise_ratio=0.3, iterations=200, terms=(term,)).activation
        for term in ("geometric", "retrieval", "coherence")
    }
    # Relative noise moves every memory alike: the geometric term averages to one constant, 1/sqrt(1 + r^2).
    assert alone["geometric"] == pytest.approx(1 / math.sqrt(1.09), abs=0.006)
    for term in ("retrieval", "coherence"):
        assert stats.spearmanr(alone[term], geometry.cosines).statistic > 0.95
    together = sweep(embeddings, noise_ratio=0.3, iterations=200).activation
    np.testing.assert_allclose(together, sum(alone.values()), atol=0.03)


def test_absolute_noise_disturbs_short_embeddings_most():
    embeddings = bank()
    options = {"sigma": 0.3, "noise_ratio": None, "terms": ("geometric",), "iterations": 50}
    norms = np.linalg.norm(embeddings, axis=1)
    assert stats.spearmanr(sweep(embeddings, **options).activation, norms).statistic > 0.9


def test_softmax_form_all_but_vanishes_beside_the_other_terms():
    embeddings = bank(2000)
    terms = ("geometric", "coherence")
    without = sweep(embeddings, terms=terms)
    softmax = sweep(embeddings, retrieval_form="softmax")
    assert np.abs(softmax.activation - without.activation).max() < 0.01
    assert np.abs(sweep(embeddings).activation - without.activation).max() > 0.9


@pytest.mark.parametrize("noise", [{"noise_ratio": 0.0}, {"noise_ratio": None, "sigma": 0.0}])
@pytest.mark.parametrize("probe", ["auto", "full", "scalar"])
def test_no_noise_is_deterministic(noise, probe):
    one, two = (sweep(bank(), seed, probe=probe, **noise) for seed in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert len({step.mean for step in one.trace}) == 1
    cosines = measure(bank()).cosines
    expected = 1 + 1 / (1 + np.exp(-(cosines - cosines.mean()) / 0.05)) + np.exp(-2 * (1 - cosines))
    np.testing.assert_allclose(one.activation, expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("family", ["isotropic", "uniform"])
def test_memories_that_cannot_be_told_apart_keep_their_weights(dtype, count, family):
    row = np.random.default_rng(0).standard_normal(384)
    embeddings = (np.linspace(0.5, 9, count)[:, None] * row).astype(dtype)
    result = sweep(embeddings, noise=family, noise_ratio=0.7)
    np.testing.assert_array_equal(result.weights, 1.0)
    assert result.abnormal_counts.sum() == 0
    assert result.suspicion.sum() == 0
    np.testing.assert_allclose(result.activation, 1 + 0.5 + 1)


def test_orthogonal_memories_without_noise_are_all_alike():
    embeddings = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 40)))[0].astype(np.float32)
    result = sweep(embeddings, noise_ratio=0.0)
    assert result.abnormal_counts.sum() == 0


@pytest.mark.parametrize("probe", ["scalar", "full"])
def test_a_bank_without_a_direction_has_cosines_of_zero(probe):
    half = bank(20)
    embeddings = np.vstack([half, -half])
    np.testing.assert_array_equal(measure(embeddings).direction, 0.0)
    result = sweep(embeddings, probe=probe, terms=("retrieval", "coherence"))
    np.testing.assert_allclose(result.activation, 0.5 + math.exp(-2))
    assert result.abnormal_counts.sum() == 0


@pytest.mark.parametrize("shape", [(0, 0), (0, 8)])
def test_an_empty_bank_gives_empty_arrays(shape):
    result = sweep(np.empty(shape))
    for column in (result.weights, result.suspicion, result.activation, result.abnormal_counts):
        assert column.shape == (0,)
    assert result.trace == ()


@given(
    st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**32), st.floats(0, 3),
    st.sampled_from(["isotropic", "uniform", "sparse", "anisotropic"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_bank_ends_in_range(count, dim, seed, ratio, family):
    rng = np.random.default_rng(seed)
    embeddings = rng.standard_normal((count, dim)) + 1e-3
    state = SweepState(rng.random(count), rng.random(count), rng.random(count))
    result = sweep(embeddings, seed, state, noise_ratio=ratio, noise=family, iterations=3)
    for column in (result.weights, result.suspicion):
        assert ((column >= 0) & (column <= 1)).all()
    assert np.isfinite(result.activation).all()
    assert (result.abnormal_counts <= 3).all()


def test_geometry_by_hand():
    geometry = measure(np.array([[3.0, 0.0], [0.0, 5.0]]))
    np.testing.assert_allclose(geometry.norms, [3, 5])
    np.testing.assert_allclose(geometry.direction, [math.sqrt(0.5)] * 2)
    np.testing.assert_allclose(geometry.cosines, [math.sqrt(0.5)] * 2)
    assert not geometry.identical


def test_geometry_in_blocks_is_geometry_at_once():
    embeddings = bank(3000, 128, dtype=np.float32)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    direction = unit.mean(axis=0) / np.linalg.norm(unit.mean(axis=0))
    np.testing.assert_allclose(measure(embeddings).cosines, unit @ direction, atol=1e-6)
    np.testing.assert_allclose(measure(embeddings[:, ::-1]).cosines, unit @ direction, atol=1e-6)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_without_direction_is_named(value, dtype, recwarn):
    embeddings = bank(dtype=dtype)
    embeddings[17] = value
    with pytest.raises(InvalidMemoryError, match=r"row 17 .*1 of 60"):
        sweep(embeddings)
    assert not recwarn.list


def test_shapes_are_checked_and_quoted():
    with pytest.raises(ConfigError, match=r"\(3,\)"):
        sweep(np.ones(3))
    with pytest.raises(ConfigError, match=r"weights.*\(4,\).*\(60, 16\)"):
        sweep(bank(), state=fresh(4))
    with pytest.raises(ConfigError, match=r"suspicion.*\(60, 1\).*\(60, 16\)"):
        sweep(bank(), state=SweepState(np.ones(60), np.zeros((60, 1)), np.ones(60)))
    with pytest.raises(ConfigError, match=r"weights.*\(60,\).*\(0, 16\)"):
        sweep(np.empty((0, 16)), state=fresh(60))


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_state_outside_its_range_is_named(value):
    state = fresh(60)
    state.consolidation[5] = value
    with pytest.raises(ConfigError, match=rf"consolidation\[5\]={value:g}"):
        sweep(bank(), state=state)
