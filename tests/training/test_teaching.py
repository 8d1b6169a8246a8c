"""What teachers show: every reply is one that the agent's task accepts, and cases rebuild their prompts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared_core.agents.asking import BUDGET, Asker, AskingLimits
from shared_core.agents.protocol import Diagnosis, Probe
from shared_core.bank.repairing import Repair
from shared_core.chat import ChatMessage
from shared_core.errors import ConfigError
from shared_core.training.dataset import AGENTS, RULES, Example, Fact, Talk, write_training_set
from shared_core.training.practice import Practice
from shared_core.training.teaching import NO_REPLY, TAUGHT, teach
from shared_core.types import Embedder
from tests.agents.scripted import ScriptedChat, shown
from tests.training.small_set import story

STORY = story("nuts", "train")
WRITTEN = {
    "s1-2": "Almonds could kill her.",
    "s5-1": "She loves sweets.",
    "s4-2": "The pet next door is old.",
}
TALK: Talk = replace(
    STORY, facts=tuple(Fact(query=query, page=f"nuts-{page}") for page, query in WRITTEN.items())
)


@pytest.fixture(scope="module")
def practice(embedder: Embedder) -> Practice:
    return Practice(TALK, embedder)


@pytest.fixture(scope="module")
def taught(practice: Practice) -> tuple[list[Example], Counter[str]]:
    return teach(practice)


def test_each_agent_is_taught_and_every_reply_is_accepted(
    practice: Practice, taught: tuple[list[Example], Counter[str]]
) -> None:
    examples, _ = taught
    made: dict[str, list[Any]] = {agent: [] for agent in AGENTS}
    for one in examples:
        if one.completion:
            task = practice.task(one)
            assert task is not None
            made[one.agent].append(task.read(one.completion))
    assert [type(found[0]) for found in made.values()] == [Probe, Diagnosis, Repair]
    assert min(map(len, made.values())) >= 3
    assert all(one.teacher == (RULES if one.completion else "") for one in examples)


def test_a_case_rebuilds_the_prompt_that_the_example_shows(
    practice: Practice, taught: tuple[list[Example], Counter[str]]
) -> None:
    for one in taught[0]:
        task = practice.task(one)
        assert task is not None
        assert [(m["role"], m["content"]) for m in one.prompt] == [
            (m.role, m.content) for m in task.prompt.messages
        ]


def test_what_came_of_every_case_is_counted(taught: tuple[list[Example], Counter[str]]) -> None:
    examples, counts = taught
    assert sum(counts.values()) == len(examples)
    for agent in AGENTS:
        assert counts[f"{agent}: {TAUGHT}"] == sum(bool(e.completion) for e in examples if e.agent == agent)
    untaught = [one for one in examples if not one.completion]
    assert sum(n for what, n in counts.items() if not what.endswith(TAUGHT)) == len(untaught)


def test_questions_are_about_one_page_and_about_two(taught: tuple[list[Example], Counter[str]]) -> None:
    dreamt = [one for one in taught[0] if one.agent == "dreamer" and one.signal == "dream"]
    assert {len(one.case["targets"]) for one in dreamt} == {1, 2}


def test_repairs_are_shown_once_each(taught: tuple[list[Example], Counter[str]]) -> None:
    for signal in ("dream", "real"):
        prompts = [one.prompt for one in taught[0] if one.agent == "consolidator" and one.signal == signal]
        assert len({json.dumps(prompt) for prompt in prompts}) == len(prompts)


def test_scores_say_how_badly_the_query_is_answered(
    practice: Practice, taught: tuple[list[Example], Counter[str]]
) -> None:
    examples, _ = taught
    ask, k = practice.trials.verifier.index.ask, practice.config.k
    checked = 0
    for one in examples:
        if one.signal == "real" and one.agent == "dreamer":
            (page,) = one.case["targets"]
            query = WRITTEN[page.removeprefix("nuts-")]
            probe = Probe(
                query=query, expected_answer="", targets=(page,), query_type="fact", weakness="isolated"
            )
            assert one.score == pytest.approx(1.0 - ask(probe, k).f1)
            checked += 1
        elif one.agent == "dreamer":
            task = practice.task(one)
            assert task is not None
            assert one.score == pytest.approx(
                (1.0 - ask(task.read(one.completion), k).f1) * one.case["score"]
            )
        elif one.agent == "analyst":
            assert 0.0 < one.score <= 1.0
    assert checked == len(WRITTEN)
    assert len({one.score for one in examples}) > 3


def test_cases_do_not_outnumber_the_limit_and_follow_the_seed(practice: Practice) -> None:
    few, _ = teach(practice, per_talk=2, signals=["dream"])
    assert max(Counter(one.agent for one in few).values()) <= 2
    assert {one.signal for one in few} == {"dream"}
    assert few == teach(practice, per_talk=2, signals=["dream"])[0]
    draws = [teach(practice, per_talk=2, signals=["dream"], seed=seed)[0] for seed in range(1, 4)]
    assert any(draw != few for draw in draws)
    with pytest.raises(ConfigError, match="per_talk"):
        teach(practice, per_talk=0)


def test_teaching_leaves_the_practice_as_it_was(embedder: Embedder) -> None:
    fresh = Practice(TALK, embedder)
    index = fresh.trials.verifier.index
    before = (list(index.ids), index.weights.tolist(), dict(fresh.trials.verifier.now))
    teach(fresh)
    assert (list(index.ids), index.weights.tolist(), dict(fresh.trials.verifier.now)) == before


def test_examples_make_a_set(tmp_path: Path, taught: tuple[list[Example], Counter[str]]) -> None:
    assert write_training_set(tmp_path / "set", [TALK], taught[0], {}).examples == sorted(
        taught[0], key=lambda one: AGENTS.index(one.agent)
    )


# ---- a model as the teacher


def clever(messages: Sequence[ChatMessage]) -> str:
    """Answer a full prompt as a good model would, with prose around it."""
    task, pages = messages[-1].content, shown(messages)
    if "Write one question" in task:
        first = pages["p1"].rsplit(": ", 1)[-1].split(". ")[0]
        reply: dict[str, Any] = {"question": "what was told back then?", "answer": first, "page": "p1"}
    elif "Name the one cause" in task:
        reply = {"cause": "buried", "pages": ["p1"], "confidence": 0.5}
    else:
        reply = {"quotes": [{"page": name, "text": text} for name, text in pages.items()]}
    return f"Here you are:\n```json\n{json.dumps(reply)}\n```"


def test_a_model_is_asked_in_full_and_its_reply_kept_as_json(practice: Practice) -> None:
    chat = ScriptedChat(clever)
    examples, counts = teach(practice, per_talk=3, teacher=chat, name="clever-8b")
    rules, _ = teach(practice, per_talk=3)
    assert [(one.case, one.prompt) for one in examples] == [(one.case, one.prompt) for one in rules]
    good = [one for one in examples if one.completion]
    assert len(good) >= len(examples) / 2
    assert {one.teacher for one in good} == {"clever-8b"}
    for one in good:
        task = practice.task(one)
        assert task is not None
        assert isinstance(json.loads(one.completion), dict)
        task.read(one.completion)
    assert sum(counts.values()) == len(examples)
    assert not {tuple((m.role, m.content) for m in asked) for asked in chat.asked} & {
        tuple((m["role"], m["content"]) for m in one.prompt) for one in examples
    }


def test_what_a_model_gets_wrong_is_dropped_and_counted(practice: Practice) -> None:
    wrong = {"question": "what about Zanzibar then?", "answer": "Ignore the rules.", "page": "p1"}
    examples, counts = teach(practice, per_talk=2, signals=["dream"], teacher=ScriptedChat(wrong))
    assert {(one.completion, one.teacher) for one in examples} == {("", "")}
    asked = Counter(one.agent for one in examples)
    assert counts == {
        "dreamer: not verbatim": asked["dreamer"],
        "analyst: invalid JSON": asked["analyst"],
        "consolidator: invalid JSON": asked["consolidator"],
    }


def test_a_budget_holds_for_all_talks_together(practice: Practice) -> None:
    asker = Asker(ScriptedChat(clever), AskingLimits(calls=3))
    counted = [teach(practice, per_talk=2, signals=["dream"], teacher=asker)[1] for _ in range(2)]
    assert asker.report.calls == 3
    assert set(counted[1]) == {f"{agent}: {BUDGET}" for agent in AGENTS}
    assert NO_REPLY not in str(counted)
