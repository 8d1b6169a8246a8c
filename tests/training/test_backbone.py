"""One backbone, three adapters: each agent's own, switched, saved and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("peft", reason="the extra train is not installed")

from shared_core.chat import ChatMessage
from shared_core.errors import ConfigError
from shared_core.training.backbone import Backbone, LoraSettings
from shared_core.training.dataset import AGENTS
from tests.training.tiny import tiny_model

PROMPTS = [
    [ChatMessage("system", "Reply with JSON."), ChatMessage("user", "Ask one question.")],
    [ChatMessage("user", "Ask one question about this page and copy its answer, all of it.")],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def loaded(folder: Path, **options: Any) -> Backbone:
    return Backbone.load(str(folder), **options)


def perturb(backbone: Backbone, agent: str, size: float = 0.5) -> None:
    import torch

    with torch.no_grad():
        for name, value in backbone.trainable(agent):  # type: ignore[arg-type]
            if "lora_B" in name:
                value.add_(size)


def texts(backbone: Backbone, agent: Any, **options: Any) -> list[str]:
    return [reply.text for reply in backbone.generate(agent, PROMPTS, max_tokens=12, **options)]


def test_new_adapters_are_on_the_attention_projections_and_change_nothing(folder: Path) -> None:
    backbone = loaded(folder)
    names = {name.split(".")[-4] for name, _ in backbone.trainable("analyst")}
    assert names == {"q_proj", "k_proj", "v_proj", "o_proj"}
    shapes = {tuple(value.shape) for name, value in backbone.trainable("dreamer") if "lora_A" in name}
    assert {shape[0] for shape in shapes} == {16}
    config = backbone.model.peft_config["dreamer"]
    assert (config.lora_alpha, config.lora_dropout) == (32, 0.05)
    bare = texts(backbone, None)
    assert all(texts(backbone, agent) == bare for agent in AGENTS)


def test_each_agent_answers_with_its_own_adapter(folder: Path) -> None:
    backbone = loaded(folder)
    bare = texts(backbone, None)
    perturb(backbone, "analyst")
    assert texts(backbone, "analyst") != bare
    assert texts(backbone, "dreamer") == bare
    assert texts(backbone, None) == bare


def test_only_the_agent_in_use_can_be_trained(folder: Path) -> None:
    backbone = loaded(folder)
    for agent in AGENTS:
        backbone.use(agent)
        open_now = {name for name, value in backbone.model.named_parameters() if value.requires_grad}
        assert open_now == {name for name, _ in backbone.trainable(agent)}


def test_adapters_are_saved_as_safetensors_and_read_back(folder: Path, tmp_path: Path) -> None:
    backbone = loaded(folder)
    perturb(backbone, "consolidator")
    backbone.save(tmp_path / "saved", ["consolidator"])
    assert (tmp_path / "saved" / "consolidator" / "adapter_model.safetensors").is_file()
    assert not list(tmp_path.rglob("*.bin"))
    again = loaded(folder, adapters=tmp_path / "saved")
    assert texts(again, "consolidator") == texts(backbone, "consolidator")
    assert texts(again, "dreamer") == texts(backbone, None)
    other = loaded(folder, seed=3)
    other.load_adapter("dreamer", tmp_path / "saved" / "consolidator")
    assert texts(other, "dreamer") == texts(backbone, "consolidator")


def test_an_adapter_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    other = loaded(tiny_model(tmp_path / "wide", hidden=64))
    other.save(tmp_path / "saved")
    with pytest.raises(ConfigError, match="does not fit"):
        loaded(folder, adapters=tmp_path / "saved")
    with pytest.raises(ConfigError, match="no adapter for"):
        loaded(folder).load_adapter("dreamer", tmp_path / "saved" / "dreamer")
    with pytest.raises(ConfigError, match="dream train sft"):
        loaded(folder, adapters=tmp_path)


def test_a_batch_answers_as_one_by_one(folder: Path) -> None:
    backbone = loaded(folder)
    perturb(backbone, "dreamer")
    alone = [backbone.generate("dreamer", [prompt], max_tokens=12)[0].text for prompt in PROMPTS]
    assert texts(backbone, "dreamer") == alone


def test_draws_come_in_groups_and_repeat_under_a_seed(folder: Path) -> None:
    backbone = loaded(folder)
    first = texts(backbone, "dreamer", samples=3, temperature=1.0, seed=5)
    assert len(first) == 6
    assert len(set(first)) > 2
    assert texts(backbone, "dreamer", samples=3, temperature=1.0, seed=5) == first
    assert texts(backbone, "dreamer", samples=3, temperature=1.0, seed=6) != first


def test_log_probabilities_are_those_of_the_model(folder: Path) -> None:
    import torch

    backbone = loaded(folder)
    perturb(backbone, "dreamer", 0.05)
    rollouts = backbone.generate("dreamer", PROMPTS, max_tokens=9, temperature=1.0, seed=1)
    replies = [rollouts[0].tokens[:4], rollouts[1].tokens]
    found = backbone.log_probabilities("dreamer", PROMPTS, replies, temperature=1.2)
    for at, (prompt, reply) in enumerate(zip(PROMPTS, replies, strict=True)):
        tokens = backbone.encode(prompt)
        with torch.no_grad():
            logits = backbone.model(input_ids=torch.tensor([[*tokens, *reply]])).logits[0] / 1.2
        logs = torch.log_softmax(logits, dim=-1)
        expected = sum(float(logs[len(tokens) - 1 + step, token]) for step, token in enumerate(reply))
        np.testing.assert_allclose(float(found[at].detach()), expected, rtol=1e-4)
    found.sum().backward()
    assert any(float(value.grad.abs().sum()) > 0 for _, value in backbone.trainable("dreamer"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"quantize": "8bit"}, "CUDA"),
        ({"quantize": "4bit"}, "neither none nor 8bit"),
    ],
)
def test_what_cannot_be_loaded_is_said(folder: Path, options: dict[str, Any], said: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this test is for machines without CUDA")
    with pytest.raises(ConfigError, match=said):
        loaded(folder, **options)


def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot load the model"):
        Backbone.load(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("options", [{"rank": 0}, {"dropout": 1.0}, {"modules": ()}])
def test_settings_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LoraSettings(**options)
