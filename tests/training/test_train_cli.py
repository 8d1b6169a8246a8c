"""``dream train policy`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared_core import MemoryBank
from shared_core.bank.conversation import ConversationMemory
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.training import Policy, load_policy, policy_path, save_policy
from tests.agents.nut_story import pages
from tests.cli.test_cli import dream, dream_json

QUICK = ("--steps", "40", "--rounds", "1", "--partitions", "1", "--probes", "48", "--collection", "talks")


@pytest.fixture
def place(tmp_path: Path, embedder: SentenceTransformerEmbedder) -> Path:
    with MemoryBank.open(tmp_path / "chroma", "talks", embedder=embedder, create=True) as bank:
        ConversationMemory(bank).add_pages(pages())
    return tmp_path / "chroma"


def test_a_policy_is_trained_saved_and_told(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.safetensors"
    told = dream_json("train", "policy", place, *QUICK, "--out", out)
    policy, card = load_policy(out)
    assert told["path"] == str(out)
    assert told["parameters"] == policy.parameters
    assert told["used"] == card["used"]
    assert card["training"]["steps"] == 40
    again = dream("train", "policy", place, *QUICK, "--out", out)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr
    shown = dream("train", "policy", place, *QUICK, "--out", out, "--overwrite")
    assert shown.returncode == 0, shown.stderr
    assert "held-out repairs" in shown.stdout
    assert ("it is used" in shown.stdout) == json.loads(out.with_suffix(".json").read_text())["used"]


def test_a_wrong_place_is_told_before_anything_is_learnt(place: Path, tmp_path: Path) -> None:
    done = dream("train", "policy", place, *QUICK, "--out", tmp_path / "mine.pkl")
    assert done.returncode == 2
    assert "must end in .safetensors" in done.stderr


@pytest.mark.parametrize("used", [True, False, None])
def test_a_dream_uses_a_policy_only_where_it_was_better(
    place: Path, embedder: SentenceTransformerEmbedder, used: bool | None
) -> None:
    if used is not None:
        with MemoryBank.open(place, "talks", embedder=embedder) as bank:
            save_policy(Policy.untrained(), {"used": used}, policy_path(bank))
    done = dream("cycle", place, "--collection", "talks", "--agents", "policy", "--probes", "24", "--json")
    if used:
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert dream("undo", told["run_id"], place, "--collection", "talks").returncode == 0
        assert told["stopped_by"] in {"converged", "rounds", "repairs"}
    else:
        assert done.returncode == 2
        assert ("no better than the rules" if used is False else "dream train policy") in done.stderr
        with MemoryBank.open(place, "talks", embedder=embedder) as bank:
            assert not bank.state.runs(kinds=["cycle"])
