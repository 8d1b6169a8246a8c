"""The small policy on a real bank: it begins as the rules, learns, is judged, saved, loaded and used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.agents.protocol import Probe, Retrieval
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.graph import MemoryGraph, read_graph
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.training import (
    Policy,
    PolicyAnalyst,
    PolicyTraining,
    load_policy,
    policy_path,
    save_policy,
    train_policy,
    trained_analyst,
)
from shared_core.training.features import CHOICES, NAMES, SKIP, Case
from shared_core.training.objectives import ObjectiveName, best_choices
from shared_core.training.policy import PRIOR, SHAPES, card_path
from shared_core.training.policy_training import learn
from shared_core.training.rehearsal import (
    Lessons,
    Outcome,
    Recorder,
    fresh_probes,
    lessons,
    rehearse,
    split_rows,
)
from tests.agents.nut_story import pages
from tests.conftest import OpenBank

CONFIG = DreamConfig(groundwork=False, seconds=1e9)
SMALL = DreamConfig(groundwork=False, seconds=1e9, rounds=1, partitions=1, probes=48)
SHORT = PolicyTraining(steps=60)


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages())
    return bank


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, embedder: SentenceTransformerEmbedder) -> MemoryGraph:
    place = tmp_path_factory.mktemp("policy")
    with MemoryBank.open(place, "memories", embedder=embedder, create=True) as bank:
        ConversationMemory(bank).add_pages(pages())
        return read_graph(bank)


@pytest.fixture(scope="module")
def failed(graph: MemoryGraph, embedder: SentenceTransformerEmbedder) -> list[tuple[Probe, Retrieval]]:
    recorder = Recorder()
    rehearse(graph, embedder, frozenset(range(len(graph))), recorder, CONFIG)
    return recorder.failures


def toy(rule: int, better: int, features: np.ndarray) -> Case:
    """A case without a memory behind it: the learner reads features and options only."""
    probe = Probe(query="?", expected_answer="!", targets=("m",), query_type="fact", weakness="stale")
    seen = features.copy()
    seen[rule] = 1.0
    return Case(probe=probe, features=seen, options={rule: None, better: None}, rule=rule)  # type: ignore[dict-item]


def toys(rng: np.random.Generator, count: int) -> Lessons:
    """The rules extract; merging is better where a feature is high, and worse elsewhere."""
    cases, rewards = [], np.zeros((count, len(CHOICES)))
    for at in range(count):
        features = np.zeros(len(NAMES))
        features[len(CHOICES)] = at % 2
        features[len(CHOICES) + 1 :] = rng.random(len(NAMES) - len(CHOICES) - 1) * 0.1
        cases.append(toy(1, 3, features))
        rewards[at, 1], rewards[at, 3] = (0.0, 0.5) if at % 2 else (0.5, 0.0)
    return Lessons(cases=cases, rewards=rewards, tried=0)


def test_an_untrained_policy_is_the_rules(graph: MemoryGraph, failed: list[tuple[Probe, Retrieval]]) -> None:
    ruled = RuleAnalyst().diagnose(graph, failed)
    assert len(ruled) > 3
    assert PolicyAnalyst(Policy.untrained()).diagnose(graph, failed) == ruled


def test_a_policy_can_do_otherwise_but_never_what_is_not_offered(
    graph: MemoryGraph, failed: list[tuple[Probe, Retrieval]]
) -> None:
    weights = dict(Policy.untrained().weights)
    weights["outer_bias"] = np.array([0, 0, 90, 0, 0], np.float32)
    found = PolicyAnalyst(Policy(weights)).diagnose(graph, failed)
    assert {one.category for one in found} >= {"scattered"}
    assert all(len(one.targets) > 1 for one in found if one.category == "scattered")
    weights["outer_bias"] = np.array([90, 0, 0, 0, 0], np.float32)
    assert PolicyAnalyst(Policy(weights)).diagnose(graph, failed) == []


@pytest.mark.parametrize("objective", ["imitation", "group-relative"])
def test_learning_finds_what_the_rules_do_not_know(
    rng: np.random.Generator, objective: ObjectiveName
) -> None:
    policy, learning = learn(toys(rng, 24), PolicyTraining(objective=objective, steps=300))
    assert learning.rules == pytest.approx(0.25)
    assert learning.policy > 0.45
    assert learning.best == pytest.approx(0.5)
    unseen = toys(np.random.default_rng(99), 20)
    chosen = policy.scores(unseen.features, unseen.allowed).argmax(axis=1)
    assert (chosen == unseen.rewards.argmax(axis=1)).mean() > 0.9


def test_learning_never_ends_below_the_rules_on_its_own_cases(rng: np.random.Generator) -> None:
    useless = toys(rng, 10)
    useless.rewards[:] = 0.0
    useless.rewards[:, 1] = 1.0
    options = PolicyTraining(objective="group-relative", steps=40, learning_rate=1.0)
    policy, learning = learn(useless, options)
    assert learning.policy >= learning.rules == 1.0
    assert (policy.scores(useless.features, useless.allowed).argmax(axis=1) == 1).all()


def test_of_equal_choices_the_best_is_that_of_the_rules(rng: np.random.Generator) -> None:
    cases = toys(rng, 24)
    assert (best_choices(cases) == np.where(np.arange(24) % 2, 3, 1)).all()
    cases.rewards[:] = 0.0
    assert (best_choices(cases) == 1).all()


def test_without_a_prior_it_begins_as_nothing_and_learns_all_the_same(rng: np.random.Generator) -> None:
    cases, start = toys(rng, 24), Policy.untrained(prior=0.0)
    assert (start.scores(cases.features, cases.allowed).argmax(axis=1) == SKIP).all()
    options = PolicyTraining(objective="group-relative", steps=300)
    policy, learning = learn(cases, options, start=start)
    assert policy.prior == 0.0
    assert learning.policy > 0.45


def test_a_prior_is_saved_and_an_earlier_card_has_the_usual_one(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_policy(Policy.untrained(prior=0.5), {}, path)
    policy, card = load_policy(path)
    assert policy.prior == card["prior"] == 0.5
    del card["prior"]
    card_path(path).write_text(json.dumps(card))
    assert load_policy(path)[0].prior == PRIOR
    card_path(path).write_text(json.dumps({**card, "prior": "much"}))
    with pytest.raises(ConfigError, match="prior='much'"):
        load_policy(path)
    with pytest.raises(ConfigError, match="no finite number"):
        Policy.untrained(prior=float("nan"))


def test_learning_is_the_same_under_the_same_seed(rng: np.random.Generator) -> None:
    cases = toys(rng, 12)
    one, other = (learn(cases, SHORT)[0] for _ in range(2))
    assert all(np.array_equal(one.weights[name], other.weights[name]) for name in SHAPES)


def test_parts_share_no_memory(graph: MemoryGraph) -> None:
    one, other = split_rows(graph, (0.6, 0.4), 3)
    assert not one & other
    assert len(one) > len(other) > 0
    assert split_rows(graph, (0.6, 0.4), 3) == [one, other]


def test_fresh_probes_are_new_questions_about_the_same_memories(
    graph: MemoryGraph, failed: list[tuple[Probe, Retrieval]]
) -> None:
    asked = [probe for probe, _ in failed]
    fresh = fresh_probes(graph, asked, 0)
    assert fresh
    assert not {probe.query for probe in fresh} & {probe.query for probe in asked}
    assert {probe.targets for probe in fresh} <= {probe.targets for probe in asked}


def test_lessons_reward_what_helps_the_same_under_the_same_seed(
    graph: MemoryGraph, embedder: SentenceTransformerEmbedder
) -> None:
    (half, _) = split_rows(graph, (0.5, 0.5), 0)
    found = lessons(graph, embedder, half, CONFIG)
    assert len(found.cases) == len(found.rewards) > 3
    assert found.tried > 0
    assert (found.rewards[:, SKIP] == 0).all()
    assert (found.rewards[found.allowed == 0] == 0).all()
    assert found.rewards.max() > 0
    assert np.array_equal(found.rewards, lessons(graph, embedder, half, CONFIG).rewards)


def test_lessons_can_be_stopped(graph: MemoryGraph, embedder: SentenceTransformerEmbedder) -> None:
    rows = frozenset(range(len(graph)))
    seen: list[int] = []
    found = lessons(
        graph,
        embedder,
        rows,
        CONFIG,
        stop=lambda: len(seen) >= 2,
        progress=lambda _, done, __: seen.append(done),
    )
    assert (len(found.cases), seen) == (2, [1, 2])


def test_training_saves_a_judged_policy_and_writes_nothing_into_the_bank(bank: MemoryBank) -> None:
    runs = bank.runs()
    report = train_policy(bank, training=SHORT, dream=SMALL)
    assert (bank.runs(), len(bank.ids())) == (runs, len(pages()))
    assert report.path == str(policy_path(bank))
    assert report.used == (report.held_out_policy.gain > report.held_out_rules.gain + 1e-9)
    assert report.held_out_rules.f1_before == report.held_out_policy.f1_before
    policy, card = load_policy(policy_path(bank))
    assert card["used"] == report.used
    assert policy.parameters == report.parameters < 1000
    assert card["learning"]["curve"] == report.learning.curve
    analyst = trained_analyst(bank)
    assert isinstance(analyst, PolicyAnalyst if report.used else RuleAnalyst)
    with pytest.raises(ConfigError, match="already"):
        train_policy(bank, training=SHORT, dream=SMALL)
    assert train_policy(bank, training=SHORT, dream=SMALL, overwrite=True).data == report.data


@pytest.mark.parametrize("used", [True, False])
def test_a_policy_that_was_not_better_is_not_used(bank: MemoryBank, used: bool) -> None:
    save_policy(Policy.untrained(), {"used": used}, policy_path(bank))
    assert isinstance(trained_analyst(bank), PolicyAnalyst if used else RuleAnalyst)


def test_a_dream_with_a_policy_repairs_and_is_undone(bank: MemoryBank) -> None:
    weights = bank.weights(bank.ids()).tolist()
    report = DreamCycle(bank, analyst=PolicyAnalyst(Policy.untrained()), config=CONFIG).run()
    assert report.repairs
    assert report.f1_after > report.f1_before
    bank.undo(report.run_id or "")
    assert bank.weights([page.id or "" for page in pages()]).tolist() == weights


def test_an_outcome_tells_its_gain() -> None:
    outcome = Outcome(
        probes=2, fresh=2, f1_before=0.5, f1_after=0.75, fresh_before=0.5, fresh_after=0.5, repairs=1
    )
    assert outcome.gain == 0.25


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    save_policy(Policy.untrained(), {"used": True}, path)
    card = json.loads(card_path(path).read_text())
    for change, message in (
        ({"features_version": 99}, "version 99"),
        ({"format": "other"}, "'other'"),
        ({"sha256": "0"}, "its card describes"),
    ):
        card_path(path).write_text(json.dumps({**card, **change}))
        with pytest.raises(ConfigError, match=message):
            load_policy(path)
    card_path(path).write_text("[]")
    with pytest.raises(ConfigError, match="no policy's card"):
        load_policy(path)
    card_path(path).unlink()
    with pytest.raises(ConfigError, match="there is no policy"):
        load_policy(path)


def test_what_is_no_policys_card_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"mine": 1}')
    with pytest.raises(ConfigError, match="not replaced"):
        save_policy(Policy.untrained(), {}, tmp_path / "p.safetensors", replace=True)
    assert (tmp_path / "p.json").read_text() == '{"mine": 1}'
    with pytest.raises(ConfigError, match=r"end in \.safetensors"):
        save_policy(Policy.untrained(), {}, tmp_path / "p.pkl")
    with pytest.raises(ConfigError, match="no folder"):
        save_policy(Policy.untrained(), {}, tmp_path / "none" / "p.safetensors")


def test_weights_of_another_shape_or_no_number_are_refused() -> None:
    weights = dict(Policy.untrained().weights)
    with pytest.raises(ConfigError, match="no finite number"):
        Policy({**weights, "outer_bias": np.full(len(CHOICES), np.nan, np.float32)})
    with pytest.raises(ConfigError, match="train it anew"):
        Policy({**weights, "outer_bias": np.zeros(2, np.float32)})


def test_a_memory_that_answers_everything_teaches_nothing(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages()[:2])
    with pytest.raises(ConfigError, match="nothing to learn"):
        train_policy(bank)
    assert not policy_path(bank).exists()


@pytest.mark.parametrize(
    "options",
    [
        {"group": 1},
        {"steps": 0},
        {"learning_rate": 0.0},
        {"exploration": 2.0},
        {"held_out": 1.0},
        {"seed": -1},
    ],
)
def test_training_options_have_ranges(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        PolicyTraining(**options)  # type: ignore[arg-type]
