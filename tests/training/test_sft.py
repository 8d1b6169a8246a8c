from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="the extra train is not installed")

from shared_core.chat import ChatMessage
from shared_core.errors import ConfigError, MissingExtraError
from shared_core.training.backbone import Backbone, LoraSettings
from shared_core.training.run_card import read_card
from shared_core.training.sft import IGNORED, SftConfig, tokens_of, train_sft
from tests.training.runs import KilledError, killed_at, training_set, weights
from tests.training.tiny import tiny_model

FAST = SftConfig(learning_rate=2e-2, epochs=4, save_every=2)
"""Six steps on six examples."""
PROMPT = [ChatMessage(role="user", content="Ask about page p1 p1 ")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("sft") / "model"))


@pytest.fixture
def backbone(model: str) -> Backbone:
    return Backbone.load(model)


@pytest.fixture(scope="module")
def straight(model: str, tmp_path_factory: Any) -> Any:
    """A run without interruption."""
    return train_sft(
        Backbone.load(model), training_set(), "dreamer", tmp_path_factory.mktemp("straight"), FAST
    )


def test_only_the_adapter_learns_and_it_is_saved_as_it_is_used(
    backbone: Backbone, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a training told somebody")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    before, steps = weights(backbone), []
    capfd.readouterr()
    card = train_sft(
        backbone,
        training_set(agent="analyst"),
        "analyst",
        tmp_path,
        FAST,
        progress=lambda *s: steps.append(s),
    )
    assert "".join(capfd.readouterr()).strip() == ""
    after = weights(backbone)
    assert after["analyst"] != before["analyst"]
    assert {name: one for name, one in after.items() if name != "analyst"} == {
        name: one for name, one in before.items() if name != "analyst"
    }
    assert card.finished
    assert steps == [("sft", step, 6) for step in range(1, 7)]
    assert card.curves["loss"][-1] < card.curves["loss"][0]
    assert read_card(tmp_path) == card
    assert not (tmp_path / "checkpoints").exists()
    again = Backbone.load(backbone.name, adapters=tmp_path)
    assert weights(again)["analyst"] == after["analyst"]
    assert again.generate("analyst", [PROMPT], max_tokens=8) == backbone.generate(
        "analyst", [PROMPT], max_tokens=8
    )


def test_the_model_is_left_as_it_can_be_used(backbone: Backbone, tmp_path: Path) -> None:
    asked = {name: value.requires_grad for name, value in backbone.model.named_parameters()}
    train_sft(backbone, training_set(), "dreamer", tmp_path, FAST)
    assert "forward" not in vars(backbone.model.get_base_model())
    assert not backbone.model.training
    assert {name: value.requires_grad for name, value in backbone.model.named_parameters()} == asked
    assert all(value.grad is None for value in backbone.model.parameters())


def test_the_reply_alone_carries_loss(model: str, tmp_path: Path) -> None:
    import torch

    backbone = Backbone.load(model, lora=LoraSettings(dropout=0.0))
    data = training_set(4)
    total, count = 0.0, 0
    for example in data.examples:
        row = tokens_of(backbone, example)
        prompt = backbone.encode([ChatMessage(**message) for message in example.prompt])  # type: ignore[arg-type]
        reply = row["input_ids"][len(prompt) :]
        assert row["labels"] == [IGNORED] * len(prompt) + reply
        assert reply[-1] == backbone.tokenizer.eos_token_id
        assert backbone.tokenizer.decode(reply[:-1]) == example.completion
        with torch.no_grad():
            logits = backbone.model(torch.tensor([row["input_ids"]])).logits[0].log_softmax(-1)
        total -= sum(
            float(logits[at - 1, row["input_ids"][at]]) for at in range(len(prompt), len(row["labels"]))
        )
        count += len(reply)
    card = train_sft(backbone, data, "dreamer", tmp_path, SftConfig(epochs=1))
    assert card.curves["loss"][0] == pytest.approx(total / count, rel=1e-5)


def test_examples_per_forward_pass_do_not_change_what_is_learnt(model: str, tmp_path: Path) -> None:
    found = []
    for size in (1, 4):
        backbone = Backbone.load(model, lora=LoraSettings(dropout=0.0))
        config = SftConfig(epochs=2, micro_batch=size)
        card = train_sft(backbone, training_set(), "dreamer", tmp_path / str(size), config)
        found.append(card.curves["loss"])
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_a_killed_run_ends_where_it_would_have_ended(
    backbone: Backbone, straight: Any, tmp_path: Path, model: str
) -> None:
    before = weights(backbone)
    with pytest.raises(KilledError):
        train_sft(backbone, training_set(), "dreamer", tmp_path, FAST, progress=killed_at(5))
    assert weights(backbone) == before
    assert (tmp_path / "checkpoints" / "checkpoint-4" / "adapter_model.safetensors").exists()
    steps: list[int] = []
    resumed = train_sft(
        Backbone.load(model),
        training_set(),
        "dreamer",
        tmp_path,
        FAST,
        progress=lambda _, done, __: steps.append(done),
    )
    assert steps == [5, 6]
    assert resumed.finished
    assert resumed.result == straight.result
    assert resumed.curves["loss"] == straight.curves["loss"]


def test_a_stopped_run_ends_after_its_step_and_goes_on(
    backbone: Backbone, straight: Any, tmp_path: Path
) -> None:
    asked: list[None] = []

    def third() -> bool:
        asked.append(None)
        return len(asked) == 3

    card = train_sft(backbone, training_set(), "dreamer", tmp_path, FAST, stop=third)
    assert (card.done, card.finished) == (3, False)
    assert card.result == read_card(tmp_path).result  # type: ignore[union-attr]
    assert train_sft(backbone, training_set(), "dreamer", tmp_path, FAST).result == straight.result


def test_a_run_killed_before_its_adapter_was_in_place_is_finished_without_a_step(
    backbone: Backbone, straight: Any, tmp_path: Path, model: str, monkeypatch: Any
) -> None:
    def killed(*_: Any) -> None:
        raise KilledError

    monkeypatch.setattr(backbone, "save", killed)
    with pytest.raises(KilledError):
        train_sft(backbone, training_set(), "dreamer", tmp_path, FAST)
    assert not read_card(tmp_path).finished  # type: ignore[union-attr]
    other = Backbone.load(model)
    resumed = train_sft(other, training_set(), "dreamer", tmp_path, FAST, progress=killed_at(6))
    assert resumed.finished
    assert resumed.result == straight.result
    assert weights(Backbone.load(model, adapters=tmp_path)) == weights(other)


def test_a_run_without_its_checkpoints_does_not_begin_anew(backbone: Backbone, tmp_path: Path) -> None:
    train_sft(backbone, training_set(), "dreamer", tmp_path, FAST, stop=lambda: True)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"checkpoints .* are gone"):
        train_sft(backbone, training_set(), "dreamer", tmp_path, FAST)


def test_a_finished_run_is_not_repeated_and_its_adapter_is_loaded(
    backbone: Backbone, model: str, tmp_path: Path
) -> None:
    first = train_sft(backbone, training_set(), "dreamer", tmp_path, FAST)
    other = Backbone.load(model)
    assert train_sft(other, training_set(), "dreamer", tmp_path, FAST, progress=killed_at(1)) == first
    assert weights(other) == weights(backbone)
    assert train_sft(backbone, training_set(), "dreamer", tmp_path, FAST, progress=killed_at(1)) == first


def test_another_run_is_not_mistaken_for_it(backbone: Backbone, model: str, tmp_path: Path) -> None:
    train_sft(backbone, training_set(), "dreamer", tmp_path, FAST)
    with pytest.raises(ConfigError, match="epochs=4, now 2"):
        train_sft(
            backbone,
            training_set(),
            "dreamer",
            tmp_path,
            SftConfig(learning_rate=2e-2, epochs=2, save_every=2),
        )
    with pytest.raises(ConfigError, match="data="):
        train_sft(backbone, training_set(digest="e" * 64), "dreamer", tmp_path, FAST)
    with pytest.raises(ConfigError, match="another adapter"):
        train_sft(Backbone.load(model, seed=1), training_set(), "dreamer", tmp_path, FAST)


def test_seeds_decide(model: str, straight: Any, tmp_path: Path) -> None:
    same = train_sft(Backbone.load(model), training_set(), "dreamer", tmp_path / "same", FAST)
    config = SftConfig(learning_rate=2e-2, epochs=4, save_every=2, seed=1)
    other = train_sft(Backbone.load(model), training_set(), "dreamer", tmp_path / "other", config)
    assert same.result == straight.result != other.result


def test_what_is_too_long_is_left_out_and_counted(backbone: Backbone, tmp_path: Path) -> None:
    data = training_set()
    lengths = sorted(len(tokens_of(backbone, one)["input_ids"]) for one in data.examples)
    config = SftConfig(epochs=1, longest=lengths[3])
    card = train_sft(backbone, data, "dreamer", tmp_path / "some", config)
    assert card.counts == {"used": 4, "too long": 2}
    assert train_sft(
        backbone, data, "dreamer", tmp_path / "drawn", SftConfig(epochs=1, max_examples=2)
    ).counts == {"used": 2, "too long": 0}
    with pytest.raises(ConfigError, match="6 of them longer than 3 tokens"):
        train_sft(backbone, data, "dreamer", tmp_path / "none", SftConfig(longest=3))
    with pytest.raises(ConfigError, match="no example to fine-tune the analyst"):
        train_sft(backbone, data, "analyst", tmp_path / "none", SftConfig())


def test_a_training_that_diverges_says_so_and_leaves_the_adapter(backbone: Backbone, tmp_path: Path) -> None:
    before = weights(backbone)
    with pytest.raises(ConfigError, match="diverged"):
        train_sft(backbone, training_set(), "dreamer", tmp_path, SftConfig(learning_rate=1e30))
    assert weights(backbone) == before


def test_options_and_packages_are_checked(backbone: Backbone, tmp_path: Path, monkeypatch: Any) -> None:
    for wrong in (
        {"batch": 0},
        {"learning_rate": 0.0},
        {"micro_batch": 3},
        {"max_examples": 0},
        {"seed": -1},
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            SftConfig(**wrong)  # type: ignore[arg-type]
    monkeypatch.setitem(__import__("sys").modules, "trl", None)
    with pytest.raises(MissingExtraError, match=r"dream-memory\[train\]"):
        train_sft(backbone, training_set(), "dreamer", tmp_path, FAST)
