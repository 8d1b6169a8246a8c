"""A sweep on torch: as numpy's, but for the noise; and what is said where there is no GPU."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from scipy import stats

from shared_core.config import ForgettingConfig
from shared_core.device import opened
from shared_core.dynamics import SweepState, block_probe, forgetting_sweep, measure, probe_scalar
from shared_core.dynamics.blocks import BLOCK
from shared_core.errors import ConfigError, MissingExtraError

torch = pytest.importorskip("torch", reason="torch is not installed")
torch_arrays = pytest.importorskip("shared_core.device.torch_arrays")

COLUMNS = ("weights", "suspicion", "activation", "abnormal_counts")


@pytest.fixture(scope="module")
def cpu():
    return torch_arrays.TorchArrays("cpu")


class AllAtOnce(torch_arrays.TorchArrays):
    """As on a GPU: one block."""

    def __init__(self):
        super().__init__("cpu")
        self.block = self.drawn = 1 << 62


def bank(count=60, dim=16, seed=0):
    rng = np.random.default_rng(seed)
    rows = 0.5 * rng.standard_normal((count, dim))
    rows[:, 0] += np.where(np.arange(count) < 0.9 * count, 2.0, -1.0)
    return rows * rng.uniform(1, 10, (count, 1))


def state(count):
    draw = np.random.default_rng(1)
    return SweepState(draw.random(count), draw.random(count), draw.random(count))


def sweep(rows, arrays=None, seed=0, **options):
    rng = np.random.default_rng(seed)
    return forgetting_sweep(rows, state(len(rows)), ForgettingConfig(**options), rng, arrays=arrays)


@pytest.mark.parametrize(
    "options",
    [
        {"noise_ratio": 0.0},
        {"noise_ratio": 0.0, "retrieval_form": "softmax"},
        {"noise_ratio": 0.0, "decay_law": "multiplicative", "terms": ("retrieval", "coherence")},
    ],
    ids=str,
)
def test_without_noise_it_computes_what_numpy_computes(cpu, options):
    rows = bank(2 * BLOCK + 500, 6)
    expected = sweep(rows, **options)
    assert 0 < expected.abnormal_counts.sum() < 10 * len(rows)
    for arrays in (cpu, AllAtOnce()):
        found = sweep(rows, arrays, **options)
        for name in COLUMNS:
            column = getattr(found, name)
            assert isinstance(column, np.ndarray)
            assert column.dtype == getattr(expected, name).dtype
            np.testing.assert_allclose(column, getattr(expected, name), rtol=1e-9, atol=1e-12)
        for step, other in zip(found.trace, expected.trace, strict=True):
            assert step.abnormal == other.abnormal
            assert step.mean == pytest.approx(other.mean)
            assert step.threshold == pytest.approx(other.threshold)
            assert step.mean_weight == pytest.approx(other.mean_weight)


@pytest.mark.parametrize("dim", [2, 3, 384])
def test_probes_are_of_the_distribution_that_numpy_draws(cpu, dim):
    near, scale = np.full(6000, 0.55), np.full(6000, 0.3 / np.sqrt(dim))
    expected = probe_scalar(near, dim, scale, np.random.default_rng(0))
    (draws,) = cpu.streams(np.random.default_rng(0), 1)
    found = probe_scalar(cpu.put(near), dim, cpu.put(scale), draws, xp=cpu.xp)
    for one, other in zip(found, expected, strict=True):
        assert stats.ks_2samp(cpu.take(one), other).pvalue > 1e-3
    assert np.corrcoef(*map(cpu.take, found))[0, 1] == pytest.approx(np.corrcoef(*expected)[0, 1], abs=0.05)


@pytest.mark.parametrize("noise", [{"noise_ratio": 0.7}, {"noise_ratio": None, "sigma": 0.5}], ids=str)
def test_sweeps_agree_in_distribution(cpu, noise):
    rows = bank(40, 8)
    ours, numpys = ([sweep(rows, arrays, seed, **noise) for seed in range(150)] for arrays in (cpu, None))
    for statistic in (
        lambda r: r.abnormal_counts.sum(),
        lambda r: r.weights.mean(),
        lambda r: r.suspicion.mean(),
        lambda r: r.activation.std(),
    ):
        assert stats.ks_2samp([statistic(r) for r in ours], [statistic(r) for r in numpys]).pvalue > 1e-3


def test_a_seed_decides_everything_and_nobody_elses_stream_is_used(cpu):
    rows = bank(2 * BLOCK + 500, 6)
    before = torch.random.get_rng_state()
    one, same, other = (sweep(rows, cpu, seed, iterations=2) for seed in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert one.trace == same.trace
    assert not (one.activation == other.activation).all()


def test_blocks_have_noise_of_their_own_and_so_has_every_probe(cpu):
    rows = np.tile([[1.0, 0.0], [0.0, 1.0]], (BLOCK, 1))
    config = ForgettingConfig(noise_ratio=0.3)
    probe = block_probe(rows, measure(rows), config, np.random.default_rng(0), arrays=cpu)
    one, two, again = (cpu.take(probe.draw(number)[0]) for number in (0, 1, 0))
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(BLOCK)
    assert abs(np.corrcoef(one, again)[0, 1]) < 5 / np.sqrt(BLOCK)


def test_state_is_not_written_to_and_banks_without_noise_in_them_are_left_alone(cpu):
    rows, columns = bank(), state(60)
    for column in (columns.weights, columns.suspicion, columns.consolidation):
        column.setflags(write=False)
    forgetting_sweep(rows, columns, ForgettingConfig(), np.random.default_rng(0), arrays=cpu)
    alike = sweep(np.tile(bank(1), (20, 1)), cpu)
    assert alike.abnormal_counts.sum() == 0
    assert sweep(np.empty((0, 4)), cpu).trace == ()
    assert sweep(np.array([[1.0, 0.0], [-1.0, 0.0]]), cpu).weights.shape == (2,)


@pytest.mark.parametrize("options", [{"probe": "full"}, {"noise": "sparse"}], ids=str)
def test_only_scalar_probes_are_drawn_there(cpu, options):
    with pytest.raises(ConfigError, match="device='cpu' only"):
        sweep(bank(), cpu, **options)
    with pytest.raises(ConfigError, match="preset 'paper'"):
        opened(ForgettingConfig(device="cuda", **options))
    assert opened(ForgettingConfig(device="auto", **options)) is None
    with pytest.raises(ConfigError, match="dimension 2 or more"):
        sweep(bank(dim=1), cpu, probe="scalar")


def test_terms_need_no_device():
    with pytest.raises(ConfigError, match="diagnosis='coupling'"):
        opened(ForgettingConfig.preset("hardened", device="cuda"))
    assert opened(ForgettingConfig.preset("hardened", device="auto")) is None


def test_without_a_gpu_cuda_is_refused_and_auto_is_numpy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"sees no CUDA device: install .* or use device='cpu'"):
        opened(ForgettingConfig(device="cuda"))
    assert opened(ForgettingConfig(device="auto")) is None
    assert opened(ForgettingConfig()) is None


def test_without_torch_cuda_is_refused_and_auto_is_numpy(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "shared_core.device.opening.find_spec", lambda name: None if name == "torch" else found(name)
    )
    with pytest.raises(MissingExtraError, match=r"torch is not installed.*dream-memory\[embed\]"):
        opened(ForgettingConfig(device="cuda"))
    assert opened(ForgettingConfig(device="auto")) is None


def test_a_sweep_that_names_cuda_needs_the_arrays():
    with pytest.raises(ConfigError, match=r"arrays=shared_core\.device\.opened"):
        sweep(bank(), device="cuda")
    with pytest.raises(ConfigError, match="device='gpu'"):
        ForgettingConfig(device="gpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_computes_what_numpy_computes():
    arrays = opened(ForgettingConfig(device="cuda"))
    rows = bank(2 * BLOCK + 500, 6)
    expected, found = (sweep(rows, where, noise_ratio=0.0) for where in (None, arrays))
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9, atol=1e-12)
    one, same = (sweep(rows, arrays, noise_ratio=0.5, iterations=2) for _ in range(2))
    np.testing.assert_array_equal(one.weights, same.weights)
    numpys = sweep(rows, noise_ratio=0.5, iterations=2)
    assert stats.ks_2samp(one.activation, numpys.activation).pvalue > 1e-3
