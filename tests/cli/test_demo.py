"""The demo measures what it prints, on the bundled memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.cli.demo import COLLECTION
from shared_core.evaluation import bundled_case

DREAM = Path(sys.executable).with_name("dream")


def test_the_bundled_case_is_a_small_agent_memory() -> None:
    case = bundled_case()
    benign = [memory for memory in case.memories if not memory.poison]
    assert 180 <= len(benign) <= 220
    assert len(case.poison_ids) == 4
    assert len({memory.key for memory in case.memories}) == len(case.memories)
    assert all(memory.value for memory in case.memories)
    assert len(case.triggered_queries) == len(case.benign_queries) == 20


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    folder = tmp_path_factory.mktemp("demo") / "kept"
    done = subprocess.run(
        [DREAM, "demo", "--json", "--keep", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder, json.loads(done.stdout)


def test_the_attack_works_undefended_and_undo_restores(kept: tuple[Path, dict[str, object]]) -> None:
    _, result = kept
    assert result["asr_r_undefended"] >= 0.95
    assert result["undo_restores_retrieval"] is True
    assert result["redo_repeats_retrieval"] is True
    assert result["memories"] == len(bundled_case().memories)


def test_reported_numbers_are_those_of_the_kept_bank(kept: tuple[Path, dict[str, object]]) -> None:
    folder, result = kept
    case = bundled_case()
    with MemoryBank.open(folder, COLLECTION) as bank:
        assert np.all(bank.weights(bank.ids()) == 1.0), "the kept bank is not swept"
        unswept = bank.runs(1)[0]
        bank.undo(unswept.run_id)
        weight = dict(zip(bank.ids(), bank.weights(bank.ids()), strict=True))
        metadata = [memory.metadata for memory in bank]
    poison = case.poison_ids
    forgotten = sum(weight[i] < 0.1 for i in poison) / len(poison)
    wronged = sum(w < 0.5 for i, w in weight.items() if i not in poison) / (len(weight) - len(poison))
    assert result["poison_forget"] == forgotten
    assert result["false_forget"] == pytest.approx(wronged)
    assert all(set(row) == {"value"} for row in metadata), "the ground truth must not be in the collection"


def test_the_plain_demo_shows_both_sides_and_the_next_step() -> None:
    done = subprocess.run([DREAM, "demo"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("triggered: ") == 4
    assert "POISON" in done.stdout
    assert "dream forget PATH --collection NAME" in done.stdout
    assert done.stderr == ""
