"""The same questions to the backbone and to an adapter, and what the replies are worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("peft", reason="the extra train is not installed")

import numpy as np

from shared_core.agents.parsing import JSON
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.training.backbone import Backbone
from shared_core.training.dataset import AGENTS, AgentName, TrainingSet
from shared_core.training.held_out import evaluate, held_out_examples
from shared_core.training.practice import Practices
from tests.training.small_set import Scripted, small_set, taught
from tests.training.tiny import tiny_model


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, embedder: SentenceTransformerEmbedder) -> TrainingSet:
    return small_set(tmp_path_factory.mktemp("set"), embedder)


@pytest.fixture(scope="module")
def practices(known: TrainingSet, embedder: SentenceTransformerEmbedder) -> Practices:
    return Practices(known, embedder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def pupil(folder: Path, known: TrainingSet) -> Scripted:
    """One whose adapters reply as the teacher, and whose backbone says nothing of use."""
    found, replies = Scripted.load(str(folder)), taught(known)
    assert isinstance(found, Scripted)
    found.script = lambda agent, prompt, _: replies[prompt] if agent else "hm"
    return found


@pytest.mark.parametrize("agent", AGENTS)
def test_what_an_adapter_adds_is_told(
    pupil: Scripted, known: TrainingSet, practices: Practices, agent: AgentName
) -> None:
    bare = evaluate(pupil, known, practices, agent, adapter=False)
    trained = evaluate(pupil, known, practices, agent, adapter=True, batch=2)
    examples = known.of(agent, "test")
    worth = [practices.of(one.talk).score(one, one.completion).reward for one in examples]
    assert (bare.n, bare.valid, bare.mean_reward) == (len(examples), 0, 0.0)
    assert bare.reasons == {JSON: len(examples)}
    assert (trained.valid_share, trained.reasons) == (1.0, {})
    assert trained.mean_reward == pytest.approx(np.mean(worth))
    assert trained.deviation == pytest.approx(np.std(worth))
    assert trained.talks == {"unseen": pytest.approx(trained.mean_reward)}
    assert json.loads(json.dumps(trained.to_dict()))["valid_share"] == 1.0


def test_a_limit_spreads_over_the_set(known: TrainingSet) -> None:
    every = known.of("dreamer", "test")
    found = held_out_examples(known, "dreamer", limit=3)
    assert found == [every[0], every[(len(every) - 1) // 2], every[-1]]
    assert held_out_examples(known, "dreamer", limit=1000) == every
    assert {one.signal for one in held_out_examples(known, "dreamer", signal="real")} == {"real"}


def test_what_was_answered_before_a_stop_is_told(
    pupil: Scripted, known: TrainingSet, practices: Practices
) -> None:
    steps: list[tuple[str, int, int]] = []
    found = evaluate(
        pupil,
        known,
        practices,
        "dreamer",
        adapter=True,
        batch=2,
        stop=lambda: True,
        progress=lambda *step: steps.append(step),
    )
    assert found.n == 2
    assert steps == [("dreamer: adapter", 2, len(known.of("dreamer", "test")))]


def test_a_set_without_held_out_talks_is_refused(known: TrainingSet) -> None:
    only = TrainingSet(talks={}, examples=known.of("dreamer", "train"), digest="")
    with pytest.raises(ConfigError, match="dream train data"):
        held_out_examples(only, "dreamer")


def test_a_new_adapter_answers_as_the_backbone(
    folder: Path, known: TrainingSet, practices: Practices
) -> None:
    backbone = Backbone.load(str(folder))
    bare, new = (
        evaluate(backbone, known, practices, "analyst", adapter=adapter, max_tokens=12)
        for adapter in (False, True)
    )
    assert (bare.n, bare.valid, bare.reasons) == (new.n, new.valid, new.reasons)
