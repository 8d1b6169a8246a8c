"""Signals compared: every arm from the same start, judged on held-out real queries, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra train is not installed")

from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation.signals import ARMS, BASELINE, SignalRow, compare_signals, summarise
from shared_core.training import Backbone, GrpoConfig, Practices, TrainingSet
from shared_core.training.fine_tuning import adapter_digest
from tests.cli.test_cli import dream, dream_json
from tests.training.small_set import small_set
from tests.training.tiny import tiny_model

SHORT = GrpoConfig(steps=1, accumulation=1, group=2, max_tokens=4, micro_batch=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("signals") / "set"


@pytest.fixture(scope="module")
def data(folder: Path, embedder: SentenceTransformerEmbedder) -> TrainingSet:
    return small_set(folder, embedder)


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Path:
    Backbone.load(str(model)).save(tmp_path / "sft")
    return tmp_path / "sft"


def test_every_arm_begins_alike_and_is_kept(
    model: Path, data: TrainingSet, start: Path, tmp_path: Path, embedder: SentenceTransformerEmbedder
) -> None:
    practices = Practices(data, embedder)

    def compared(**options: Any) -> list[SignalRow]:
        backbone = Backbone.load(str(model))
        return compare_signals(
            backbone,
            data,
            practices,
            "dreamer",
            start / "dreamer",
            tmp_path / "out",
            seeds=1,
            config=SHORT,
            limit=2,
            **options,
        )

    rows = compared()
    assert [row.arm for row in rows] == [BASELINE, *ARMS]
    assert [row.seed for row in rows] == [None, 0, 0, 0]
    cards = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").glob("*-0/card.json"))]
    backbone = Backbone.load(str(model), adapters=start)
    assert {card["start"] for card in cards} == {adapter_digest(backbone, "dreamer")}
    assert {(card["settings"]["signal"], card["settings"]["top"]) for card in cards} == {
        ("dream", 0.5),
        ("dream", 0.3),
        ("real", 1.0),
    }
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("held_out.json")}
    assert len(written) == 4
    assert compared() == rows
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert len(compared(stop=lambda: True)) == 1
    with pytest.raises(ConfigError, match="not one of"):
        compared(arms=["moon"])


def test_a_summary_has_each_arm_over_its_seeds() -> None:
    def row(arm: str, seed: int | None, *talks: float) -> SignalRow:
        return SignalRow(
            arm=arm,
            seed=seed,
            reward=float(np.mean(talks)),
            valid=1.0,
            talks={str(at): value for at, value in enumerate(talks)},
            n=len(talks),
        )

    baseline, one = summarise([row(BASELINE, None, 0.2, 0.4), row("x", 0, 0.5, 0.5), row("x", 1, 0.0, 0.2)])
    assert (baseline.reward, baseline.deviation, baseline.better) == (pytest.approx(0.3), None, 0)
    assert (one.seeds, one.reward, one.better) == (2, pytest.approx(0.3), 1)
    assert one.deviation == pytest.approx(np.std([0.5, 0.1], ddof=1))
    assert one.talk_deviation == pytest.approx(0.05)


@pytest.mark.usefixtures("data")
def test_the_command_refuses_what_it_cannot_do(folder: Path, start: Path, tmp_path: Path) -> None:
    place = ("eval", "signals", folder, "--adapters", start, "--out", tmp_path / "out")
    for options, said in (
        (("--agent", "all"), "name one agent"),
        (("--agent", "poet"), "not one of"),
    ):
        refused = dream(*place, *options)
        assert refused.returncode == 2
        assert said in " ".join(refused.stderr.split())


@pytest.mark.usefixtures("data")
def test_the_command_compares(folder: Path, start: Path, model: Path, tmp_path: Path) -> None:
    told = dream_json(
        *("eval", "signals", folder, "--adapters", start, "--out", tmp_path / "out"),
        *("--agent", "dreamer", "--model", model, "--seeds", "1", "--steps", "1", "--accumulation", "1"),
        *("--limit", "1", "--arms", "dream, top 30 %"),
    )
    assert [arm["arm"] for arm in told["arms"]] == [BASELINE, "dream, top 30 %"]
