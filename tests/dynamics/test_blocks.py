"""Blocks of a sweep: no result depends on the threads, and every block has noise of its own."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy import stats

from shared_core.config import ForgettingConfig
from shared_core.dynamics import Moments, SweepState, block_probe, forgetting_sweep, measure
from shared_core.dynamics.blocks import BLOCK, Workers, available_threads, blocks
from shared_core.errors import ConfigError, InvalidMemoryError

COUNT = 2 * BLOCK + 500


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((COUNT, 6)) + 2 * np.eye(6)[0]
    return (rows * rng.uniform(1, 4, (COUNT, 1))).astype(np.float32)


@pytest.fixture(scope="module")
def state():
    draw = np.random.default_rng(1)
    return SweepState(draw.random(COUNT), draw.random(COUNT), draw.random(COUNT))


def sweep(bank, state, threads, seed=3, **options):
    rng = np.random.Generator(np.random.SFC64(seed))
    return forgetting_sweep(bank, state, ForgettingConfig(iterations=3, **options), rng, threads=threads)


@pytest.mark.parametrize(
    "options",
    [{}, {"noise": "anisotropic"}, {"probe": "full"}, {"retrieval_form": "softmax"}, {"noise_ratio": 0.0}],
    ids=str,
)
def test_no_result_depends_on_the_number_of_threads(bank, state, options):
    one, *others = (sweep(bank, state, threads, **options) for threads in (1, 2, 5))
    for other in others:
        for name in ("weights", "suspicion", "activation", "abnormal_counts"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.trace == other.trace


def test_a_seed_decides_everything_and_the_generator_moves_on(bank, state):
    np.testing.assert_array_equal(sweep(bank, state, 2).activation, sweep(bank, state, 2).activation)
    assert not np.array_equal(sweep(bank, state, 2).activation, sweep(bank, state, 2, seed=4).activation)
    rng = np.random.default_rng(0)
    one, two = (
        forgetting_sweep(bank, state, ForgettingConfig(iterations=1), rng).activation for _ in range(2)
    )
    assert not (one[:BLOCK] == two[:BLOCK]).any()
    assert not (one[BLOCK:] == two[BLOCK:]).any()


def test_blocks_draw_independent_noise_of_one_distribution():
    rows = np.tile([[1.0, 0.0], [0.0, 1.0]], (BLOCK, 1))
    config = ForgettingConfig(noise_ratio=0.3)
    probe = block_probe(rows, measure(rows), config, np.random.default_rng(0))
    (one, _), (two, _) = (probe.draw(number) for number in range(2))
    assert stats.ks_2samp(one, two).pvalue > 1e-4
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(BLOCK)
    again, _ = probe.draw(0)
    assert not (one == again).any()


def test_known_norms_and_moments_give_the_sweep_of_the_raw_rows(bank, state):
    raw = bank.astype(float)
    norms = np.linalg.norm(raw, axis=1)
    unit = raw / norms[:, None]
    for options in ({"sigma": 0.2, "noise_ratio": None}, {"noise": "anisotropic"}):
        config = ForgettingConfig(iterations=2, **options)
        expected = forgetting_sweep(raw, state, config, np.random.default_rng(0))
        for moments in (None, Moments.of(unit)):
            found = forgetting_sweep(
                unit, state, config, np.random.default_rng(0), norms=norms, unit_moments=moments
            )
            np.testing.assert_allclose(found.activation, expected.activation, atol=1e-9)


def test_what_is_known_must_fit(bank, state):
    config, rng = ForgettingConfig(), np.random.default_rng(0)
    with pytest.raises(ConfigError, match=r"norms of shape \(3,\)"):
        forgetting_sweep(bank, state, config, rng, norms=np.ones(3))
    with pytest.raises(ConfigError, match="need norms"):
        forgetting_sweep(bank, state, config, rng, unit_moments=Moments.of(bank))
    with pytest.raises(ConfigError, match="must agree"):
        forgetting_sweep(bank, state, config, rng, norms=np.ones(COUNT), unit_moments=Moments.of(bank[1:]))
    norms = np.ones(COUNT)
    norms[7] = 0.0
    with pytest.raises(InvalidMemoryError, match="row 7"):
        forgetting_sweep(bank, state, config, rng, norms=norms)
    with pytest.raises(ConfigError, match="threads=0"):
        sweep(bank, state, 0)


def test_workers_keep_the_order_and_tell_of_errors():
    parts = blocks(1000, 7)
    assert [part.stop - part.start for part in parts] == [7] * 142 + [6]
    names = set()

    def task(number, part):
        names.add(threading.current_thread().name)
        return number, part.start

    with Workers(3) as workers:
        assert workers.map(task, parts) == [(number, 7 * number) for number in range(143)]
        assert all(name.startswith("sweep") for name in names)
        with pytest.raises(ZeroDivisionError):
            workers.map(lambda number, _part: 1 // (number - 70), parts)
        assert workers.map(task, []) == []


def test_threads_are_as_many_as_openmp_may_use(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    every = available_threads()
    assert every >= 1
    for asked, expected in (("1", 1), ("100000", every), ("many", every), ("0", every)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert available_threads() == expected
