from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra train is not installed")

import torch

from shared_core.errors import ConfigError, MissingExtraError
from shared_core.training import grpo
from shared_core.training.advantages import group_advantages, group_loss
from shared_core.training.backbone import Backbone
from shared_core.training.dataset import Example
from shared_core.training.grpo import GrpoConfig, train_grpo, warmed
from shared_core.training.practice import Score
from shared_core.training.run_card import read_card
from tests.training.runs import KilledError, killed_at, training_set, weights
from tests.training.tiny import tiny_model

FAST = GrpoConfig(
    steps=4, group=4, accumulation=2, max_tokens=8, learning_rate=1e-2, save_every=2, micro_batch=8
)
ENDS = 60
"""Tokens that end a reply where replies shall differ in length."""


def vowels(_example: Example, replies: Sequence[str]) -> list[Score]:
    """Reward letters of the first half of the alphabet."""
    shares = [sum(one in "abcdefghijklm" for one in reply) / (len(reply) or 1) for reply in replies]
    return [Score(reward=one, terms={"share": one}, valid=one > 0) for one in shares]


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("grpo") / "model"))


@pytest.fixture
def backbone(model: str) -> Backbone:
    return Backbone.load(model)


@pytest.fixture(scope="module")
def straight(model: str, tmp_path_factory: Any) -> Any:
    """A run without interruption."""
    folder = tmp_path_factory.mktemp("straight")
    return train_grpo(Backbone.load(model), training_set(), "dreamer", folder, vowels, FAST)


# ---- Eq. 11


def one_step(
    backbone: Backbone, folder: Path, config: GrpoConfig, monkeypatch: Any, **changed: Any
) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """Return the gradient that TRL gives the adapter in its first step, and its micro-batches."""
    caught: dict[str, Any] = {}
    made = grpo.grpo_trainer

    def watched(*args: Any) -> Any:
        trainer = made(*args)
        for name, value in changed.items():
            setattr(trainer, name, value)
        base = __import__("transformers").TrainerCallback

        class Catch(base):  # type: ignore[misc, valid-type]
            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                caught["gradient"] = gradient(backbone)
                caught["batches"] = trainer._buffered_inputs

        trainer.add_callback(Catch())
        return trainer

    monkeypatch.setattr(grpo, "grpo_trainer", watched)
    train_grpo(backbone, training_set(), "dreamer", folder, vowels, config)
    return caught["gradient"], caught["batches"]


def gradient(backbone: Backbone) -> torch.Tensor:
    return torch.cat([value.grad.flatten().clone() for _, value in sorted(backbone.trainable("dreamer"))])


def literal(
    backbone: Backbone, batches: list[dict[str, Any]], temperature: float
) -> tuple[torch.Tensor, list[int]]:
    """Return the gradient of Eq. 11 for these replies, each run through the model by itself."""
    groups: dict[tuple[int, ...], list[tuple[list[int], float]]] = {}
    for batch in batches:
        for row in range(len(batch["completion_ids"])):
            prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
            reply = batch["completion_ids"][row][batch["completion_mask"][row].bool()].tolist()
            text = backbone.tokenizer.decode(reply, skip_special_tokens=True)
            groups.setdefault(tuple(prompt), []).append((reply, vowels(None, [text])[0].reward))  # type: ignore[arg-type]
    backbone.use("dreamer")
    losses = []
    for prompt, replies in groups.items():
        logs = []
        for reply, _ in replies:
            logits = backbone.model(torch.tensor([[*prompt, *reply]])).logits[0] / temperature
            each = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            logs.append(each[torch.arange(len(reply)), torch.tensor(reply)].sum())
        advantages = torch.tensor(group_advantages([reward for _, reward in replies]), dtype=torch.float32)
        losses.append(group_loss(torch.stack(logs), advantages))
    torch.stack(losses).mean().backward()
    return gradient(backbone), [len(reply) for replies in groups.values() for reply, _ in replies]


def moved(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Give the adapter weights that are not those it begins with, half of which have no gradient."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _, value in sorted(backbone.trainable("dreamer")):
            value.add_(0.05 * torch.randn(value.shape, generator=draw))
    return {name: value.detach().clone() for name, value in backbone.trainable("dreamer")}


def back(backbone: Backbone, before: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, value in backbone.trainable("dreamer"):
            value.copy_(before[name])


def compared(
    backbone: Backbone, tmp_path: Path, monkeypatch: Any, config: GrpoConfig, **changed: Any
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    backbone.model.generation_config.eos_token_id = list(range(1, ENDS))
    before = moved(backbone)
    theirs, batches = one_step(backbone, tmp_path, config, monkeypatch, **changed)
    back(backbone, before)
    ours, lengths = literal(backbone, batches, config.temperature * (1 + config.exploration))
    return theirs, ours, lengths


def step(**changed: Any) -> GrpoConfig:
    return GrpoConfig(
        **{
            "steps": 1,
            "group": 4,
            "accumulation": 2,
            "max_tokens": 12,
            "gradient_norm": 1e9,
            "micro_batch": 2,
        }
        | changed
    )


@pytest.mark.parametrize("changed", [{"exploration": 0.0, "micro_batch": 8}, {}, {"temperature": 0.7}])
def test_a_step_of_trl_is_equation_11(
    backbone: Backbone, tmp_path: Path, monkeypatch: Any, changed: dict[str, Any]
) -> None:
    config = step(**changed)
    theirs, ours, lengths = compared(backbone, tmp_path, monkeypatch, config)
    assert len(set(lengths)) > 2
    error = float((theirs - ours).norm() / ours.norm())
    assert error < 1e-5


def test_dr_grpo_is_equation_11_but_for_the_longest_length(
    backbone: Backbone, tmp_path: Path, monkeypatch: Any
) -> None:
    theirs, ours, _ = compared(
        backbone, tmp_path, monkeypatch, step(), loss_type="dr_grpo", importance_sampling_level="token"
    )
    error = float((12 * theirs - ours).norm() / ours.norm())
    assert error < 1e-5


def test_the_loss_of_grpo_in_trl_is_another(backbone: Backbone, tmp_path: Path, monkeypatch: Any) -> None:
    theirs, ours, lengths = compared(
        backbone, tmp_path, monkeypatch, step(), loss_type="grpo", importance_sampling_level="token"
    )
    assert len(set(lengths)) > 2
    cosine = float(torch.nn.functional.cosine_similarity(theirs, ours, dim=0))
    assert cosine < 0.99


def test_the_temperature_holds_for_drawing_and_learning(backbone: Backbone) -> None:
    tokens = torch.tensor([[5, 6, 7, 8]])
    plain = backbone.model(tokens).logits
    with warmed(backbone.model) as warmth:
        warmth.temperature = 1.25
        torch.testing.assert_close(backbone.model(tokens).logits, plain / 1.25)
        warmth.temperature = 1.0
        assert torch.equal(backbone.model(tokens).logits, plain)
    warmth.temperature = 2.0
    assert torch.equal(backbone.model(tokens).logits, plain)


# ---- runs


def test_only_the_adapter_learns(backbone: Backbone, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a training told somebody")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    before, steps = weights(backbone), []
    dropout = [one.p for one in backbone.model.modules() if isinstance(one, torch.nn.Dropout)]
    data = training_set(agent="consolidator")
    capfd.readouterr()
    card = train_grpo(
        backbone, data, "consolidator", tmp_path, vowels, FAST, progress=lambda *told: steps.append(told)
    )
    assert "".join(capfd.readouterr()).strip() == ""
    after = weights(backbone)
    assert after["consolidator"] != before["consolidator"]
    assert {name for name in after if after[name] != before[name]} == {"consolidator"}
    assert card.finished
    assert steps == [("grpo", done, 4) for done in range(1, 5)]
    assert read_card(tmp_path) == card
    assert card.curves["temperature"] == pytest.approx([1.2, 1.15, 1.1, 1.05])
    assert card.curves["reward"] == pytest.approx(card.curves["term/share"])
    assert [one.p for one in backbone.model.modules() if isinstance(one, torch.nn.Dropout)] == dropout != []
    assert "forward" not in vars(backbone.model.get_base_model())
    assert not backbone.model.training
    assert weights(Backbone.load(backbone.name, adapters=tmp_path))["consolidator"] == after["consolidator"]


def test_rewards_rise(backbone: Backbone, tmp_path: Path) -> None:
    with torch.no_grad():
        # as they are, no change of the attention could make one token twice as likely as another
        backbone.model.get_input_embeddings().weight.mul_(20)
    config = GrpoConfig(
        steps=15, group=4, accumulation=4, max_tokens=4, learning_rate=3e-2, micro_batch=16, save_every=100
    )
    rewards: Any = train_grpo(backbone, training_set(), "dreamer", tmp_path, vowels, config).curves["reward"]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.1


def test_a_killed_run_ends_where_it_would_have_ended(
    backbone: Backbone, straight: Any, tmp_path: Path, model: str
) -> None:
    before = weights(backbone)
    with pytest.raises(KilledError):
        train_grpo(backbone, training_set(), "dreamer", tmp_path, vowels, FAST, progress=killed_at(3))
    assert weights(backbone) == before
    steps: list[int] = []
    resumed = train_grpo(
        Backbone.load(model),
        training_set(),
        "dreamer",
        tmp_path,
        vowels,
        FAST,
        progress=lambda _, done, __: steps.append(done),
    )
    assert steps == [3, 4]
    assert resumed.result == straight.result
    assert resumed.curves == straight.curves
    assert (
        train_grpo(backbone, training_set(), "dreamer", tmp_path, vowels, FAST, progress=killed_at(1))
        == resumed
    )


def test_a_stopped_run_goes_on(backbone: Backbone, straight: Any, tmp_path: Path) -> None:
    card = train_grpo(backbone, training_set(), "dreamer", tmp_path, vowels, FAST, stop=lambda: True)
    assert (card.done, card.finished) == (1, False)
    assert train_grpo(backbone, training_set(), "dreamer", tmp_path, vowels, FAST).result == straight.result


def test_what_the_rewards_depend_on_makes_another_run(backbone: Backbone, tmp_path: Path) -> None:
    train_grpo(
        backbone, training_set(), "dreamer", tmp_path, vowels, FAST, rewards={"weight": 1}, stop=lambda: True
    )
    with pytest.raises(ConfigError, match="weight=1, now 2"):
        train_grpo(backbone, training_set(), "dreamer", tmp_path, vowels, FAST, rewards={"weight": 2})


def test_equal_rewards_teach_nothing(backbone: Backbone, tmp_path: Path) -> None:
    def equal(_: Example, replies: Sequence[str]) -> list[Score]:
        return [Score(reward=0.1, valid=False) for _ in replies]

    before = weights(backbone)
    config = GrpoConfig(steps=2, accumulation=1, max_tokens=4, weight_decay=0.0, group=3)
    card = train_grpo(backbone, training_set(), "dreamer", tmp_path, equal, config)
    assert weights(backbone) == before
    assert card.curves["valid"] == [0.0, 0.0]
    assert card.curves["gradient norm"] == [0.0, 0.0]


def test_cases_are_chosen_by_signal_and_score(backbone: Backbone, tmp_path: Path) -> None:
    seen: set[str] = set()

    def noted(example: Example, replies: Sequence[str]) -> list[Score]:
        seen.add(example.case["targets"][0])
        return vowels(example, replies)

    config = GrpoConfig(steps=1, accumulation=4, max_tokens=2, signal="dream", top=0.5, micro_batch=16)
    card = train_grpo(backbone, training_set(), "dreamer", tmp_path, noted, config)
    assert seen == {"p3", "p5"}
    assert card.counts == {"used": 2, "too long": 0}


def test_options_examples_and_packages_are_checked(
    backbone: Backbone, tmp_path: Path, monkeypatch: Any
) -> None:
    for wrong in (
        {"group": 1},
        {"steps": 0},
        {"exploration": -0.1},
        {"temperature": 0.0},
        {"learning_rate": float("nan")},
        {"micro_batch": 3},
        {"schedule": "step"},
        {"max_tokens": 0},
    ):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            GrpoConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="6 of them longer than 9 tokens"):
        train_grpo(backbone, training_set(), "dreamer", tmp_path, vowels, GrpoConfig(longest=9, max_tokens=2))
    with pytest.raises(ConfigError, match="1 scores for 4 replies"):
        train_grpo(
            backbone, training_set(), "dreamer", tmp_path, lambda *_: [Score(reward=0, valid=True)], FAST
        )
    monkeypatch.setitem(__import__("sys").modules, "trl", None)
    with pytest.raises(MissingExtraError, match=r"dream-memory\[train\]"):
        train_grpo(backbone, training_set(), "dreamer", tmp_path, vowels, FAST)
