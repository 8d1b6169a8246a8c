"""The scalar probe against the full one, the full one against three plain loops, and the noise itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from shared_core.config import ForgettingConfig
from shared_core.dynamics import anisotropic_scale, noise_scale, probe_full, probe_scalar, sample_noise
from shared_core.errors import ConfigError

FAMILIES = ("isotropic", "uniform", "sparse", "anisotropic")
DRAWS = 12_000
# Seeds are fixed, so this is the chance that a correct implementation was unlucky when the test was written.
SMALLEST_P = 1e-4


def pair_with_cosine(a, dim):
    """A unit v and a unit c with cos(v, c) = a, not along the axes."""
    basis = np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, 2)))[0].T
    return basis[0], a * basis[0] + math.sqrt(1 - a * a) * basis[1]


@pytest.mark.parametrize("dim", [2, 3, 64, 384])
@pytest.mark.parametrize("ratio", [0.12, 0.70, 3.0])
@pytest.mark.parametrize("a", [-0.4, 0.0, 0.55, 0.98])
def test_scalar_probe_has_the_joint_distribution_of_the_full_one(dim, ratio, a):
    draws = DRAWS if dim < 384 else 5_000
    v, c = pair_with_cosine(a, dim)
    scale = np.full(draws, ratio / math.sqrt(dim))
    full = probe_full(np.tile(v, (draws, 1)), c, scale, "isotropic", np.random.default_rng(1))
    scalar = probe_scalar(np.full(draws, a), dim, scale, np.random.default_rng(2))

    for ours, reference in zip(scalar, full, strict=True):
        assert stats.ks_2samp(ours, reference).pvalue > SMALLEST_P
    # Marginals can agree where the joint does not: standardised combinations see the dependence.
    (mean_s, std_s), (mean_c, std_c) = ((x.mean(), x.std()) for x in full)
    for angle in (0.7, 2.3):
        ours, reference = (
            math.cos(angle) * (x - mean_s) / std_s + math.sin(angle) * (y - mean_c) / std_c
            for x, y in (scalar, full)
        )
        assert stats.ks_2samp(ours, reference).pvalue > SMALLEST_P


def test_these_ks_tests_see_one_degree_of_freedom_too_many():
    v, c = pair_with_cosine(0.55, 3)
    scale = np.full(DRAWS, 0.7 / math.sqrt(3))
    full = probe_full(np.tile(v, (DRAWS, 1)), c, scale, "isotropic", np.random.default_rng(1))
    wrong = probe_scalar(np.full(DRAWS, 0.55), 4, scale, np.random.default_rng(2))
    assert stats.ks_2samp(wrong[0], full[0]).pvalue < SMALLEST_P


@pytest.mark.parametrize("dim", [2, 64])
def test_scalar_probe_mixes_scales_and_cosines_row_by_row(dim):
    a, scale = np.array([-0.9, 0.1, 0.8]), np.array([0.0, 1e-4, 0.2])
    for _ in range(3):
        cos_self, cos_centroid = probe_scalar(a, dim, scale, np.random.default_rng(5), block=2)
        assert cos_self[0] == 1.0
        assert cos_centroid[0] == pytest.approx(-0.9, abs=1e-15)
        assert 0 < 1 - cos_self[1] < 1e-5
        assert cos_centroid[1] == pytest.approx(0.1, abs=1e-2)
        assert abs(cos_centroid[2] - 0.8) > 1e-4


def test_scalar_probe_resolves_tiny_deviations():
    cos_self, _ = probe_scalar(np.full(2000, 0.5), 384, np.full(2000, 1e-5), np.random.default_rng(0))
    expected = 1e-10 * 383 / 2
    assert np.mean(1 - cos_self) == pytest.approx(expected, rel=0.02)
    assert len(np.unique(cos_self)) > 1000


def test_scalar_probe_of_a_memory_at_the_centroid_has_both_cosines_equal():
    cos_self, cos_centroid = probe_scalar(np.ones(50), 8, np.full(50, 0.3), np.random.default_rng(0))
    np.testing.assert_allclose(cos_self, cos_centroid, rtol=1e-12)
    beyond = probe_scalar(np.full(50, 1 + 1e-7), 8, np.full(50, 0.3), np.random.default_rng(0))
    np.testing.assert_array_equal(beyond[1], cos_centroid)


def test_full_probe_is_what_three_plain_loops_compute():
    count, dim = 5, 7
    draw = np.random.default_rng(0)
    unit = draw.standard_normal((count, dim))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    c = unit.mean(axis=0) / np.linalg.norm(unit.mean(axis=0))
    scale = np.linspace(0.05, 0.5, count)
    cos_self, cos_centroid = probe_full(unit, c, scale, "isotropic", np.random.default_rng(9), block=2)

    rng = np.random.default_rng(9)
    for i in range(count):
        square = with_self = with_c = 0.0
        for j in range(dim):
            x = unit[i, j] + scale[i] * rng.standard_normal()
            square += x * x
            with_self += x * unit[i, j]
            with_c += x * c[j]
        assert cos_self[i] == pytest.approx(with_self / math.sqrt(square), rel=1e-12)
        assert cos_centroid[i] == pytest.approx(with_c / math.sqrt(square), rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_noise_families_have_equal_energy_and_mean_zero(family):
    dim, rows = 40, 5000
    scale = np.linspace(0.2, 2.0, dim)
    scale /= math.sqrt(np.mean(scale**2))
    noise = sample_noise(rows, dim, family, np.random.default_rng(3), scale)
    assert noise.shape == (rows, dim)
    assert np.mean(np.sum(noise**2, axis=1)) == pytest.approx(dim, rel=0.03)
    assert abs(noise.mean()) < 0.015


def test_noise_families_differ_in_shape():
    rng = np.random.default_rng(4)
    scale = np.array([math.sqrt(2.0 - 0.01), 0.1])
    uniform = sample_noise(2000, 2, "uniform", rng)
    assert np.abs(uniform).max() <= math.sqrt(3)
    assert np.abs(uniform).max() > 1.7
    sparse = sample_noise(20_000, 2, "sparse", rng)
    assert np.mean(sparse == 0) == pytest.approx(0.9, abs=0.01)
    assert stats.kstest(sparse[sparse != 0] * math.sqrt(0.1), "norm").pvalue > SMALLEST_P
    assert sample_noise(9000, 2, "anisotropic", rng, scale).std(axis=0) == pytest.approx(scale, rel=0.04)
    assert stats.kstest(sample_noise(9000, 2, "isotropic", rng).ravel(), "norm").pvalue > SMALLEST_P


def test_anisotropic_scale_follows_the_bank_and_has_mean_square_one():
    bank = np.array([[1.0, 0.0, 0.5], [-1.0, 0.0, 0.5], [1.0, 0.2, 0.5], [-1.0, 0.2, 0.5]])
    scale = anisotropic_scale(bank)
    np.testing.assert_allclose(scale, np.array([1.0, 0.1, 0.0]) / math.sqrt(1.01 / 3))
    assert np.mean(scale**2) == pytest.approx(1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_anisotropic_scale_of_a_constant_bank_is_one_everywhere(dtype):
    np.testing.assert_array_equal(anisotropic_scale(np.full((7, 3), 1 / math.sqrt(3), dtype)), np.ones(3))
    np.testing.assert_array_equal(anisotropic_scale(np.empty((0, 3), dtype)), np.ones(3))


def test_noise_scale_is_relative_to_the_norm():
    norms = np.array([1.0, 2.0, 10.0])
    by_sigma = noise_scale(norms, 100, ForgettingConfig(sigma=0.05, noise_ratio=None))
    np.testing.assert_allclose(by_sigma, [0.05, 0.025, 0.005])
    np.testing.assert_allclose(noise_scale(norms, 100, ForgettingConfig(noise_ratio=0.7)), [0.07] * 3)
    # The published sigma at the published norm and dimension is the default ratio.
    published = noise_scale(np.array([11.9]), 768, ForgettingConfig(sigma=0.05, noise_ratio=None))
    np.testing.assert_allclose(published, noise_scale(np.array([11.9]), 768, ForgettingConfig()), rtol=0.04)


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_do_not_change_how_noise_reaches_rows(family):
    """Rows without noise stay exact in every block, rows with noise all move."""
    rng = np.random.default_rng(0)
    unit = rng.standard_normal((11, 30))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    scale = np.where(np.arange(11) % 2, 0.1, 0.0)
    cos_self, cos_centroid = probe_full(unit, unit[0], scale, family, rng, np.ones(30), block=3)
    np.testing.assert_allclose(cos_self[::2], 1.0, rtol=1e-14)
    np.testing.assert_allclose(cos_centroid[::2], unit[::2] @ unit[0], rtol=1e-12)
    assert (cos_self[1::2] < 1 - 1e-3).all()


def test_errors_quote_what_was_given():
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="2 or more, not 1"):
        probe_scalar(np.ones(3), 1, np.ones(3), rng)
    with pytest.raises(ConfigError, match=r"\(3,\).*\(4,\)"):
        probe_scalar(np.ones(3), 5, np.ones(4), rng)
    with pytest.raises(ConfigError, match=r"\(3, 2\).*\(2,\).*\(5,\)"):
        probe_full(np.ones((3, 2)), np.ones(5), np.ones(3), "isotropic", rng)
    with pytest.raises(ConfigError, match=r"\(2,\), not None"):
        sample_noise(3, 2, "anisotropic", rng)
    with pytest.raises(ConfigError, match="'pink'"):
        sample_noise(3, 2, "pink", rng)
    with pytest.raises(ConfigError, match="dim=0"):
        noise_scale(np.ones(2), 0, ForgettingConfig())


def test_empty_banks_probe_to_empty_arrays():
    rng = np.random.default_rng(0)
    for pair in (
        probe_scalar(np.empty(0), 4, np.empty(0), rng),
        probe_full(np.empty((0, 4)), np.zeros(4), np.empty(0), "isotropic", rng),
    ):
        assert [x.shape for x in pair] == [(0,), (0,)]
