"""The update law's simulation agrees with real sweeps, and says what a high c buys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation import CachedEmbedder, bundled_case, fill_collection
from shared_core.evaluation.update_law import (
    LawRow,
    LawSetting,
    _median_first,
    diagnose_bank,
    law_rows,
    measure_laws,
    trajectory,
)
from tests.conftest import OpenBank

CASE = bundled_case()


@pytest.fixture(scope="module")
def cached(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


@pytest.fixture
def bank(open_bank: OpenBank, cached: CachedEmbedder) -> MemoryBank:
    bank = open_bank(embedder=cached, value_key="value")
    fill_collection(bank, CASE)
    return bank


@pytest.mark.parametrize("preset", ["paper", "hardened"])
@pytest.mark.parametrize("iterations", [1, 10])
def test_a_trajectory_ends_where_a_sweep_ends(bank: MemoryBank, preset: str, iterations: int) -> None:
    config = ForgettingConfig.preset(preset, iterations=iterations, seed=3)  # type: ignore[arg-type]
    found = diagnose_bank(bank, config)
    assert set(bank.weights(found.ids)) == {1.0}
    ones = np.ones(len(found.ids))
    moved = trajectory(found, config, ones, ones, iterations=iterations)
    bank.sweep(config)
    assert np.allclose(moved.weights[-1], bank.weights(found.ids), rtol=1e-12, atol=0)
    assert np.allclose(moved.suspicion[-1], bank.state.columns().gather(found.ids, "suspicion"))
    assert (moved.weights.shape, moved.abnormal.shape) == ((iterations + 1, 204), (iterations, 204))
    with pytest.raises(ConfigError, match="take a new one"):
        diagnose_bank(bank, ForgettingConfig.preset("hardened"))


def test_what_the_table_says(bank: MemoryBank) -> None:
    config = ForgettingConfig.preset("hardened")
    found = diagnose_bank(bank, config)
    poison = np.array([memory_id in CASE.poison_ids for memory_id in found.ids])

    def row(**setting: float | str) -> LawRow:
        (one,) = law_rows(
            "c", found, poison, config, preset="hardened", varied=[LawSetting(**setting)], shown=[10]
        )  # type: ignore[arg-type]
        return one

    assert (row().poison_forgotten, row().false_forget, row().forgotten_after) == (1.0, 0.0, 1.0)
    shielded = row(law="multiplicative")
    assert (shielded.poison_weight, shielded.poison_forgotten, shielded.forgotten_after) == (1.0, 0.0, None)
    assert row(law="multiplicative", poison_c=0.4).poison_forgotten == 1.0
    assert row(poison_c=0.0).poison_weight < row().poison_weight < 1e-9
    slow = [row(momentum=momentum).forgotten_after for momentum in (0.0, 0.5, 0.9)]
    assert slow == sorted(slow)
    assert slow[0] < slow[-1]
    assert row(benign_c=0.4).false_forget == 0.0, "hardened: unread or unlucky is not suspect"
    assert row(start=0.2).recovered_after == 3.0


def test_published_theta_c_lets_benign_memories_fade(bank: MemoryBank) -> None:
    config = replace(ForgettingConfig.preset("hardened"), theta_c=0.5)
    found = diagnose_bank(bank, config)
    poison = np.array([memory_id in CASE.poison_ids for memory_id in found.ids])
    (faded,) = law_rows(
        "c", found, poison, config, preset="hardened", varied=[LawSetting(benign_c=0.4)], shown=[10]
    )
    assert (faded.false_forget, round(faded.benign_weight, 2)) == (1.0, 0.09)


def test_several_probes_average_what_is_drawn(bank: MemoryBank) -> None:
    found = diagnose_bank(bank, ForgettingConfig())
    spread = [
        np.std([found.responding(replace(ForgettingConfig(), seed=seed), probes)()[0] for seed in range(40)])
        for probes in (1, 16)
    ]
    assert spread[1] < spread[0] / 2


def test_a_clean_bank_has_no_poison_columns(cached: CachedEmbedder) -> None:
    rows = measure_laws(CASE, cached, presets=["paper"], clean=True, varied=[LawSetting()])
    assert {row.case for row in rows} == {f"clean/{CASE.name}"}
    assert all(row.poison_weight is row.forgotten_after is None for row in rows)
    assert [row.iterations for row in rows] == [1, 2, 3, 5, 10, 20]


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        ([[0], [1], [1]], 1.0),
        ([[0], [1], [0]], None),
        ([[1], [1], [1]], 0.0),
        ([[1], [0], [1]], 2.0),
        ([[0, 0], [0, 1], [1, 1]], 1.5),
    ],
)
def test_the_first_iteration_from_which_it_lasts(reached: list[list[int]], expected: float | None) -> None:
    assert _median_first(np.array(reached, bool)) == expected
