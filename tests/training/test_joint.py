"""Joint training: two adapters in turn, the third untouched, Eq. 11 over Eq. 12, and resuming."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("peft", reason="the extra train is not installed")

import numpy as np
import torch

from shared_core.agents.parsing import JSON
from shared_core.agents.protocol import Diagnosis
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.training.backbone import Backbone
from shared_core.training.dataset import AgentName, Example, TrainingSet, probe_of
from shared_core.training.fine_tuning import adapter_digest
from shared_core.training.held_out import messages_of
from shared_core.training.joint import TURNS, JointConfig, train_joint
from shared_core.training.joint_checkpoint import FILE
from shared_core.training.joint_stage import ANSWERED, NO_REPAIR, Stage
from shared_core.training.practice import Practices
from shared_core.training.run_card import CARD, RunCard
from tests.training.small_set import Scripted, small_set, taught
from tests.training.tiny import tiny_model

CONFIG = JointConfig(steps=4, accumulation=2, signal=None, save_every=1)
BURIED = json.dumps({"cause": "buried", "pages": ["p1"], "confidence": 0.8})
BAD = "I would rather not."


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, embedder: SentenceTransformerEmbedder) -> TrainingSet:
    return small_set(tmp_path_factory.mktemp("set"), embedder)


@pytest.fixture(scope="module")
def practices(whole: TrainingSet, embedder: SentenceTransformerEmbedder) -> Practices:
    return Practices(whole, embedder)


@pytest.fixture(scope="module")
def helpful(whole: TrainingSet, practices: Practices) -> dict[AgentName, Example]:
    """A weak memory whose question leads to a repair that helps, and a repair that helps."""
    practice = practices.of("seen")
    found: dict[AgentName, Example] = {}
    for one in whole.of("consolidator", "train"):
        if practice.gain(probe_of(one), practice.task(one).read(one.completion)) > 0:
            found["consolidator"] = one
    for one in whole.of("dreamer", "train"):
        probe = practice.task(one).read(one.completion)
        diagnosis = Diagnosis(
            probe=probe, category="buried", targets=probe.targets[:1], confidence=0.8, rationale=""
        )
        repair = practice.trials.consolidator.propose(practice.graph, diagnosis)
        if practice.trials.ask(probe).f1 < 1 and practice.gain(probe, repair) > 0:
            found["dreamer"] = one
    assert len(found) == 2, "no repair of the story helps: these tests need another story"
    return found


@pytest.fixture(scope="module")
def known(whole: TrainingSet, helpful: dict[AgentName, Example]) -> TrainingSet:
    return replace(whole, examples=list(helpful.values()))


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory, whole: TrainingSet) -> Callable[[], Scripted]:
    folder, replies = tiny_model(tmp_path_factory.mktemp("tiny")), taught(whole)

    def script(agent: str | None, prompt: str, sample: int) -> str:
        if agent == "analyst":
            return BURIED
        return BAD if sample % 2 else quoted(prompt) if agent == "consolidator" else replies[prompt]

    def loaded() -> Scripted:
        found = Scripted.load(str(folder))
        assert isinstance(found, Scripted)
        found.script = script
        return found

    return loaded


def quoted(prompt: str) -> str:
    """Return a reply that quotes the last sentence of every page of a prompt."""
    pages = [line.split(": ", 1) for line in prompt.splitlines() if line.startswith("p")]
    quotes = [{"page": name, "text": json.loads(text).rsplit(". ", 1)[-1]} for name, text in pages]
    return json.dumps({"quotes": quotes})


def weights(backbone: Backbone) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in backbone.model.named_parameters()}


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """Return the agents whose adapters differ; "model" for what is no adapter."""
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    return {next((one for one in (*TURNS, "analyst") if f".{one}." in name), "model") for name in moved}


def test_the_agents_learn_in_turn_and_the_analyst_stays(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices, tmp_path: Path
) -> None:
    backbone = load()
    states = [weights(backbone)]
    card = train_joint(
        backbone,
        known,
        practices,
        tmp_path,
        CONFIG,
        progress=lambda *_: states.append(weights(backbone)),
    )
    steps = [changed(one, other) for one, other in pairwise(states)]
    assert steps == [{"dreamer"}, {"consolidator"}] * 2
    assert changed(states[0], states[-1]) == {"dreamer", "consolidator"}
    assert card.finished
    assert card.curves["step"] == [1, 2, 3, 4]
    rewards = card.curves["dreamer reward"]
    assert [value is None for value in rewards] == [False, True, False, True]
    assert rewards[0] is not None
    assert rewards[0] > 0
    assert card.curves["dreamer valid"] == [0.5, None, 0.5, None]
    assert card.curves["consolidator valid"] == [None, 0.5, None, 0.5]
    assert card.counts[f"dreamer: {JSON}"] == 2 * CONFIG.accumulation * CONFIG.group // 2
    assert not (tmp_path / FILE).exists()
    again = Backbone.load(backbone.name, adapters=tmp_path)
    assert not changed(weights(backbone), weights(again))


def test_the_loss_is_equation_11(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices, tmp_path: Path
) -> None:
    backbone, total = load(), 0.0
    (example,) = known.of("dreamer")
    temperature = 1 + CONFIG.exploration
    (group,) = Stage(backbone, practices).dream([example], CONFIG.group, temperature, 0)
    rewards = np.array([one.reward for one in group.rollouts])
    for one, reward in zip(group.rollouts, rewards, strict=True):
        log = backbone.log_probabilities(
            "dreamer", [messages_of(example)], [one.tokens], temperature=temperature
        )
        total -= (reward - rewards.mean()) / (rewards.std() + 1e-6) * float(log.detach()) / len(rewards)
    card = train_joint(backbone, known, practices, tmp_path, replace(CONFIG, steps=1))
    assert card.curves["dreamer loss"] == [pytest.approx(total, rel=1e-4)]


def test_what_helps_becomes_likelier(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices, tmp_path: Path
) -> None:
    backbone = load()

    def preferred(agent: AgentName) -> float:
        stage = Stage(backbone, practices)
        play = stage.dream if agent == "dreamer" else stage.consolidate
        (group,) = play(known.of("dreamer"), 2, 1.0, 0)
        good, bad = backbone.log_probabilities(
            agent, [group.prompt] * 2, [one.tokens for one in group.rollouts]
        ).tolist()
        return float(good - bad)

    before = [preferred(agent) for agent in TURNS]
    train_joint(backbone, known, practices, tmp_path, replace(CONFIG, steps=12))
    after = [preferred(agent) for agent in TURNS]
    assert all(new > old + 1 for old, new in zip(before, after, strict=True))


def test_a_stopped_training_ends_where_it_would_have_ended(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices, tmp_path: Path
) -> None:
    once, twice = load(), load()
    train_joint(once, known, practices, tmp_path / "once", CONFIG)
    part = train_joint(twice, known, practices, tmp_path / "twice", CONFIG, stop=lambda: True)
    assert (part.done, part.finished) == (1, False)
    fresh = load()
    done = train_joint(fresh, known, practices, tmp_path / "twice", CONFIG)
    assert done.finished
    assert adapter_digest(fresh, *TURNS) == adapter_digest(once, *TURNS)
    assert done.curves == json.loads((tmp_path / "once" / CARD).read_text())["curves"]


def test_a_finished_training_is_loaded_and_another_refused(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices, tmp_path: Path
) -> None:
    config = replace(CONFIG, steps=2)
    first = load()
    card = train_joint(first, known, practices, tmp_path, config)
    later, steps = load(), []
    told = train_joint(later, known, practices, tmp_path, config, progress=lambda *step: steps.append(step))
    assert json.dumps(told.to_dict()) == json.dumps(card.to_dict())
    assert steps == []
    assert isinstance(told, RunCard)
    assert adapter_digest(later, *TURNS) == adapter_digest(first, *TURNS)
    with pytest.raises(ConfigError, match=r"seed=0, now 1\): give another folder"):
        train_joint(load(), known, practices, tmp_path, replace(config, seed=1))


def test_a_failure_leaves_the_adapters_as_they_were(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices, tmp_path: Path
) -> None:
    backbone = load()
    before = weights(backbone)

    def breaks(*_: object) -> None:
        assert changed(before, weights(backbone))
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        train_joint(backbone, known, practices, tmp_path, CONFIG, progress=breaks)
    assert not changed(before, weights(backbone))


def test_a_spoilt_checkpoint_is_refused(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices, tmp_path: Path
) -> None:
    train_joint(load(), known, practices, tmp_path, CONFIG, stop=lambda: True)
    (tmp_path / FILE).write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="cannot read the checkpoint"):
        train_joint(load(), known, practices, tmp_path, CONFIG)


def test_a_useless_reply_is_worth_nothing_and_says_why(
    load: Callable[[], Scripted], whole: TrainingSet, practices: Practices
) -> None:
    stage = Stage(load(), practices)
    groups = stage.dream(whole.of("dreamer", "train", "dream"), 2, 1.0, 0)
    found = {one.reason: one for group in groups for one in group.rollouts}
    assert not found[JSON].valid
    assert found[ANSWERED].valid
    assert {one.reward for name, one in found.items() if name} == {0.0}
    assert NO_REPAIR not in found or found[NO_REPAIR].valid
    assert {len(group.rollouts) for group in groups} == {2}


def test_the_memories_are_only_supposed(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices
) -> None:
    practice, stage = practices.of("seen"), Stage(load(), practices, known.of("consolidator"))
    state = practice.trials.verifier.index.weights.copy(), list(practice.trials.verifier.index.ids)
    examples = known.of("dreamer")
    first = stage.consolidate(examples * 2, 2, 1.0, 0)
    assert len(first) == 2
    assert stage.consolidate(examples * 2, 2, 1.0, 0) == first
    index = practice.trials.verifier.index
    assert np.array_equal(index.weights, state[0])
    assert list(index.ids) == state[1]


def test_there_must_be_something_to_dream_about(
    load: Callable[[], Scripted], known: TrainingSet, practices: Practices, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="dream train data"):
        train_joint(load(), known, practices, tmp_path, replace(CONFIG, signal="dream"))
    assert JointConfig(steps=10, temperature=0.5).warmth(5) == pytest.approx(0.55)
    for wrong in ({"steps": 0}, {"group": 1}, {"temperature": 0.0}, {"exploration": -0.1}, {"top": 0.0}):
        with pytest.raises(ConfigError):
            replace(CONFIG, **wrong)
