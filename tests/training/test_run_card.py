from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared_core.errors import ConfigError, MissingExtraError
from shared_core.reporting.training_curves import draw_training, save_png
from shared_core.training.run_card import (
    RunCard,
    curves_of,
    earlier_part,
    installed_versions,
    read_card,
)

CARD = RunCard(
    kind="grpo",
    agents=("dreamer",),
    model="smollm2",
    data="a" * 64,
    settings={"group": 4, "lora": {"rank": 16, "modules": ("q_proj",)}},
    steps=40,
    start="b" * 64,
    done=3,
    result="c" * 64,
    counts={"used": 5},
    curves={"step": [1.0, 2.0, 3.0], "reward": [0.1, None, 0.3]},
    seconds=1.5,
    versions={"torch": "2"},
)


def test_a_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_card(tmp_path) is None
    path = CARD.write(tmp_path / "run")
    assert read_card(tmp_path / "run") == CARD
    assert json.loads(path.read_text())["finished"] is False
    assert [one.name for one in path.parent.iterdir()] == ["card.json"]
    replace(CARD, done=40).write(tmp_path / "run")
    assert read_card(tmp_path / "run").finished  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "sft"}', "\xff"])
def test_what_is_no_card_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "card.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"card\.json is no card"):
        read_card(tmp_path)


def test_the_same_run_is_known_and_another_is_told_apart(tmp_path: Path) -> None:
    now = replace(CARD, done=0, result="", curves={}, seconds=0.0, versions={})
    assert earlier_part(tmp_path, now) is None
    CARD.write(tmp_path)
    assert earlier_part(tmp_path, now) == CARD
    assert earlier_part(tmp_path, replace(now, start=CARD.result)) == CARD
    for changed, told in (
        ({"kind": "sft"}, "kind='grpo', now 'sft'"),
        ({"settings": {**CARD.settings, "group": 8}}, "group=4, now 8"),
        ({"settings": {**CARD.settings, "lora": {"rank": 8}}}, "rank=16, now 8"),
        ({"settings": {"lora": CARD.settings["lora"]}}, "group=4, now None"),
        ({"steps": 41}, "steps=40, now 41"),
        ({"start": "d" * 64}, "another adapter"),
    ):
        with pytest.raises(ConfigError, match=told):
            earlier_part(tmp_path, replace(now, **changed))  # type: ignore[arg-type]
    assert read_card(tmp_path) == CARD


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        CARD.write(tmp_path / "file" / "run")


def test_curves_have_one_value_per_logged_step() -> None:
    history: list[dict[str, Any]] = [
        {"step": 1, "loss": 2.0, "grad_norm": 1},
        {"step": 2, "loss": float("nan")},
        {"step": 2, "train_runtime": 9.0},
    ]
    names = {"loss": "loss", "grad_norm": "norm", "entropy": "entropy"}
    assert curves_of(history, names) == {"step": [1.0, 2.0], "loss": [2.0, None], "norm": [1.0, None]}


def test_versions_are_those_installed() -> None:
    assert "dream-memory" in installed_versions()


def test_curves_are_drawn_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    steps = [float(step) for step in range(1, 41)]
    curves: dict[str, list[float | None]] = {
        "step": [*steps],
        "term/share": [0.5] * 40,
        "loss": [*steps[:-1], None],
        "reward": [None] * 30 + [0.1] * 10,
        "entropy": [*steps],
    }
    card = replace(CARD, curves=curves, done=40)
    figure = draw_training(card)
    shown = [panel for panel in figure.axes if panel.axison]
    assert [panel.get_title() for panel in shown] == ["reward", "loss", "share", "entropy"]
    assert len(shown[0].lines) == 2
    smooth = shown[3].lines[1].get_ydata()
    assert smooth[-1] == pytest.approx(sum(steps[20:]) / 20)
    for name in ("a", "b"):
        save_png(draw_training(card), tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(ConfigError, match="no curve yet"):
        draw_training(replace(CARD, curves={}))


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"dream-memory\[report\]"):
        draw_training(CARD)
