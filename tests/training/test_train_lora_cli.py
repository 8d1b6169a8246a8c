"""``dream train data``, ``sft``, ``grpo``, ``joint`` and ``check`` as a user runs them, with a tiny model."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra train is not installed")

from shared_core import MemoryBank
from shared_core.bank.conversation import ConversationMemory
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.training.dataset import AGENTS, read_training_set
from tests.agents.nut_story import pages
from tests.cli.test_cli import DREAM, dream, dream_json
from tests.conftest import SHARED_DATA
from tests.training.tiny import tiny_model

SHORT = ("--steps", "1", "--group", "2", "--accumulation", "1", "--signal", "both")
SFT = ("--epochs", "1", "--examples", "4")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return "--model", str(tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, embedder: SentenceTransformerEmbedder) -> Path:
    folder = tmp_path_factory.mktemp("bank") / "chroma"
    with MemoryBank.open(folder, "talks", embedder=embedder, create=True) as bank:
        ConversationMemory(bank).add_pages(pages())
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Path:
    folder = tmp_path_factory.mktemp("data") / "set"
    told = dream_json("train", "data", place, "--collection", "talks", "--out", folder)
    assert told["source"] == "talks"
    return folder


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory, data: Path, model: tuple[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("adapters") / "sft"
    told = dream_json("train", "sft", data, "--out", folder, *SFT, *model)
    assert [run["agents"] for run in told["runs"]] == [[agent] for agent in AGENTS]
    assert all(run["finished"] for run in told["runs"])
    return folder


def test_a_bank_becomes_a_set_with_memories_to_test_on(place: Path, data: Path, tmp_path: Path) -> None:
    found = read_training_set(data)
    train, test = found.talks.values()
    assert (train.split, test.split) == ("train", "test")
    assert {page.id for page in train.pages} | {page.id for page in test.pages} == {
        page.id for page in pages()
    }
    assert not {page.session for page in train.pages} & {page.session for page in test.pages}
    assert 0.25 <= len(test.pages) / 50 < 0.45
    assert found.card["embedder"] == "minilm"
    again = dream("train", "data", place, "--collection", "talks", "--out", data)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr
    whole = tmp_path / "whole"
    shown = dream("train", "data", place, "-c", "talks", "--out", whole, "--held-out", "0")
    assert shown.returncode == 0, shown.stderr
    assert "1 talks" in shown.stdout
    assert f"dream train sft {whole}" in shown.stdout


@pytest.mark.slow
def test_a_set_of_msc_names_its_source(tmp_path: Path) -> None:
    if not (SHARED_DATA / "msc").is_dir():
        pytest.skip("shared/data/msc is not here")
    told = dream_json("train", "data", "--msc", SHARED_DATA / "msc", "--talks", "1", "--out", tmp_path)
    assert (told["source"], told["talks"]) == ("msc", 2)
    assert all(told["examples"][agent] for agent in AGENTS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "--msc DIR"),
        (("chroma", "--out", "new"), "--collection NAME"),
        (("chroma", "--msc", "msc", "--out", "new"), "--msc DIR"),
        (("--msc", "nowhere", "--out", "new"), "Multi-Session Chat"),
        (("--msc", "nowhere"), "--out DIR"),
        (("--msc", "nowhere", "--out", "new", "--teacher", "nobody"), "nobody"),
    ],
)
def test_data_from_nowhere_is_refused(arguments: tuple[str, ...], complaint: str) -> None:
    done = dream("train", "data", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_adapters_are_taught_each_with_a_card_and_a_curve(
    data: Path, adapters: Path, model: tuple[str, str]
) -> None:
    for agent in AGENTS:
        run = adapters / "runs" / agent
        card = json.loads((run / "card.json").read_text())
        assert (card["kind"], card["agents"], card["done"]) == ("sft", [agent], card["steps"])
        assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
        assert (adapters / agent / "adapter_model.safetensors").is_file()
    before = (adapters / "dreamer" / "adapter_model.safetensors").read_bytes()
    shown = dream("train", "sft", data, "--out", adapters, *SFT, *model)
    assert shown.returncode == 0, shown.stderr
    assert "dream train check" in shown.stdout
    assert (adapters / "dreamer" / "adapter_model.safetensors").read_bytes() == before
    other = dream("train", "sft", data, "--out", adapters, "--epochs", "2", *model)
    assert other.returncode == 2
    assert "give another folder" in other.stderr


def test_grpo_keeps_the_agents_that_it_does_not_train(
    data: Path, adapters: Path, model: tuple[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "grpo"
    asked = ("train", "grpo", data, "--adapters", adapters, "--out", out, *SHORT, *model)
    told = dream_json(*asked, "--agent", "analyst")
    assert [run["agents"] for run in told["runs"]] == [["analyst"]]
    assert len(told["runs"][0]["curves"]["reward"]) == 1
    for agent in AGENTS:
        assert (out / agent / "adapter_model.safetensors").is_file()
    same = dream("train", "grpo", data, "--adapters", adapters, "--out", adapters, *SHORT, *model)
    assert same.returncode == 2
    assert "give another folder" in same.stderr
    lost = dream("train", "grpo", data, "--adapters", tmp_path, "--out", out / "new", *SHORT, *model)
    assert lost.returncode == 2
    assert "dream train sft" in lost.stderr


def test_a_later_stage_overwrites_no_adapter(
    data: Path, adapters: Path, model: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "dreamer").mkdir()
    (tmp_path / "dreamer" / "adapter_config.json").write_text("mine")
    for stage in ("grpo", "joint"):
        done = dream("train", stage, data, "--adapters", adapters, "--out", tmp_path, *SHORT, *model)
        assert done.returncode == 2
        assert "give another --out" in done.stderr
    assert (tmp_path / "dreamer" / "adapter_config.json").read_text() == "mine"


def test_joint_training_writes_all_three_adapters(
    data: Path, adapters: Path, model: tuple[str, str], tmp_path: Path
) -> None:
    asked = ("train", "joint", data, "--adapters", adapters, "--out", tmp_path, *SHORT, *model)
    told = dream_json(*asked)
    (run,) = told["runs"]
    assert (run["kind"], run["agents"], run["done"]) == ("joint", ["dreamer", "consolidator"], 1)
    assert Path(run["curve"]).is_file()
    saved = [folder / "analyst" / "adapter_model.safetensors" for folder in (adapters, tmp_path)]
    assert saved[0].read_bytes() == saved[1].read_bytes()
    shown = dream(*asked)
    assert shown.returncode == 0, shown.stderr
    assert "dreamer" in shown.stdout


def test_the_check_compares_with_the_backbone(
    data: Path, adapters: Path, model: tuple[str, str], tmp_path: Path
) -> None:
    asked = ("train", "check", data, "--adapters", adapters, "--limit", "1", *model)
    held_out = [agent for agent in AGENTS if read_training_set(data).of(agent, "test")]
    told = dream(*asked, "--json")
    rows = json.loads(told.stdout)["rows"]
    assert [(row["agent"], row["adapter"]) for row in rows] == [
        (agent, adapter) for agent in held_out for adapter in (False, True)
    ]
    assert "dreamer" in held_out
    assert told.stderr.count("left out") == len(AGENTS) - len(held_out)
    assert all(row["n"] == 1 and 0 <= row["valid_share"] <= 1 for row in rows)
    shown = dream(*asked, "--agent", "dreamer", "--no-backbone")
    assert shown.returncode == 0, shown.stderr
    assert "mean reward" in shown.stdout
    assert "backbone" not in shown.stdout
    lost = dream("train", "check", data, "--adapters", tmp_path, *model)
    assert lost.returncode == 2
    assert "dream train sft" in lost.stderr


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [("--agent", "poet", "poet"), ("--signal", "noise", "noise"), ("--model", "no/such", "no/such")],
)
def test_a_wrong_option_is_told(data: Path, tmp_path: Path, option: str, value: str, complaint: str) -> None:
    done = dream("train", "sft", data, "--out", tmp_path / "new", option, value)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_missing_set_is_told(tmp_path: Path, model: tuple[str, str]) -> None:
    done = dream("train", "sft", tmp_path / "nowhere", "--out", tmp_path / "new", *model)
    assert done.returncode == 2
    assert "give the folder of a training set" in done.stderr


def test_ctrl_c_ends_after_a_step_and_the_same_command_goes_on(
    data: Path, model: tuple[str, str], tmp_path: Path
) -> None:
    asked = [
        "train",
        "sft",
        str(data),
        "--out",
        str(tmp_path),
        "--agent",
        "dreamer",
        "--epochs",
        "200",
        "--save-every",
        "1",
        *model,
    ]
    running = subprocess.Popen(
        [DREAM, *asked, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    card = tmp_path / "runs" / "dreamer" / "card.json"
    deadline = time.monotonic() + 120
    while not (card.exists() and json.loads(card.read_text())["done"] > 0) and time.monotonic() < deadline:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=120)
    assert running.returncode == 130, errors
    assert "the same command goes on" in errors
    (run,) = json.loads(out)["runs"]
    assert 0 < run["done"] < run["steps"]
    assert not (tmp_path / "dreamer").exists()
    assert json.loads(card.read_text())["done"] == run["done"]
