"""A question to a model ends in a checked answer or in a counted reason, never in an error."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from shared_core.agents import parsing
from shared_core.agents.asking import BUDGET, CONTEXT, FAILED, GAVE_UP, TIMEOUT, Asker, AskingLimits, Task
from shared_core.agents.parsing import DiagnosisReply, known
from shared_core.agents.prompts import ShownPage, quotes_prompt
from shared_core.chat import ChatReply, MeteredChat
from shared_core.errors import ChatContextError, ChatError, ConfigError
from tests.agents.scripted import ScriptedChat

PROMPT = quotes_prompt([ShownPage("id-1", "one page")], {"type": "object"}, all_facts=False)
GOOD = {"cause": "noisy", "pages": ["p1"]}
TASK = Task(
    agent="analyst",
    prompt=PROMPT,
    form=DiagnosisReply,
    check=lambda reply: known(reply.pages, PROMPT.pages),
)


def ask(asker: Asker) -> list[str] | None:
    return asker.ask(TASK)


def test_a_good_answer_costs_one_call_at_temperature_0() -> None:
    chat = ScriptedChat(GOOD)
    asker = Asker(chat, AskingLimits(reply_tokens=77))
    assert ask(asker) == ["id-1"]
    assert chat.options == [{"max_tokens": 77, "temperature": 0.0, "stop": (), "schema": {"type": "object"}}]
    assert (asker.report.answered, asker.report.retried, asker.report.fallbacks) == (1, 0, {})
    assert asker.report.tokens > 0


def test_a_second_try_is_told_what_was_wrong() -> None:
    chat = ScriptedChat({"cause": "noisy", "pages": ["p4"]}, f"I am sorry. {{}} {GOOD}".replace("'", '"'))
    asker = Asker(chat)
    assert ask(asker) == ["id-1"]
    assert "p4 is no page that was shown" in chat.asked[1][-1].content
    assert (asker.report.calls, asker.report.retried, asker.report.answered) == (2, 1, 1)


@pytest.mark.parametrize(
    ("replies", "reason", "calls"),
    [
        (["no json", "still none"], parsing.JSON, 2),
        (["no json", {"cause": "noisy", "pages": ["p2"]}], parsing.PAGE, 2),
        ([ChatContextError("too long")], CONTEXT, 1),
        ([ChatError("boom")], FAILED, 1),
        ([ZeroDivisionError("boom")], FAILED, 1),
        ([TimeoutError("late")], TIMEOUT, 1),
        (["no json", ChatError("boom")], FAILED, 2),
    ],
)
def test_every_failure_has_its_reason(replies: list[Any], reason: str, calls: int) -> None:
    asker = Asker(ScriptedChat(*replies))
    assert ask(asker) is None
    assert asker.report.to_dict()["fallbacks"] == {"analyst": {reason: 1}}
    assert asker.report.calls == calls


def test_a_model_that_never_answers_is_left_behind() -> None:
    release = threading.Event()
    asker = Asker(ScriptedChat(lambda _: release.wait(20) and ""), AskingLimits(seconds=0.05))
    started = time.perf_counter()
    assert ask(asker) is None
    release.set()
    assert time.perf_counter() - started < 5
    assert asker.report.fallbacks["analyst"] == {TIMEOUT: 1}


def test_what_a_model_says_in_an_error_is_logged_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="shared_core.agents.asking")
    hostile = "key sk-123 in {'content': 'Ada is ill'}\nERROR root: the bank is gone\x1b[2J"
    assert ask(Asker(ScriptedChat(ConnectionError(hostile)))) is None
    seen = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [message for level, message in seen if level == "WARNING"] == [
        "the chat model failed: ConnectionError; what it said is logged as DEBUG"
    ]
    (said,) = (message for level, message in seen if level == "DEBUG" and "sk-123" in message)
    assert not set(said) & set("\n\x1b")


def test_a_model_that_keeps_failing_is_given_up() -> None:
    chat = ScriptedChat(ChatError("down"))
    asker = Asker(chat, AskingLimits(failures=2))
    for _ in range(5):
        assert ask(asker) is None
    assert len(chat.asked) == 2
    assert asker.report.fallbacks["analyst"] == {FAILED: 2, GAVE_UP: 3}


@pytest.mark.parametrize("limits", [AskingLimits(calls=1), AskingLimits(tokens=300)])
def test_budgets_hold(limits: AskingLimits) -> None:
    chat = ScriptedChat(GOOD)
    asker = Asker(chat, limits)
    for _ in range(4):
        ask(asker)
    assert len(chat.asked) == 1
    assert asker.report.fallbacks["analyst"] == {BUDGET: 3}
    assert asker.report.tokens <= limits.tokens


def test_tokens_are_the_models_own_where_it_says() -> None:
    class Telling(ScriptedChat):
        def complete(self, messages: Any, **options: Any) -> ChatReply:
            made = super().complete(messages, **options)
            return ChatReply(text=made.text, prompt_tokens=1000, completion_tokens=5)

    metered = MeteredChat(Telling(GOOD))
    asker = Asker(metered)
    ask(asker)
    assert (asker.report.tokens, metered.usage.tokens) == (1005, 1005)
    assert asker.chat is metered


def test_what_is_no_reply_is_a_failure() -> None:
    class Odd:
        def complete(self, *_: Any, **__: Any) -> Any:
            return None

        async def acomplete(self, *_: Any, **__: Any) -> Any:
            return None

    asker = Asker(Odd())
    assert ask(asker) is None
    assert asker.report.fallbacks["analyst"] == {FAILED: 1}


@pytest.mark.parametrize("wrong", [{"calls": 0}, {"tokens": 0}, {"failures": 0}, {"seconds": 0}])
def test_limits_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        AskingLimits(**wrong)
