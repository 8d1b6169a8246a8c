"""LangChain's own fake chat models behind the core's protocol: what is sent, what comes back, what fails."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from langchain_dream import as_chat
from shared_core.chat import ChatMessage, ChatModel
from shared_core.errors import ChatError, ConfigError

MESSAGES = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "One?"),
    ChatMessage("assistant", "Two."),
    ChatMessage("user", "Three?"),
]


class Recording(BaseChatModel):
    """Keeps what it is asked, answers with a list of blocks and counted tokens."""

    asked: list[list[BaseMessage]] = Field(default_factory=list)
    options: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "recording"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.asked.append(messages)
        self.options.append({"stop": stop, **kwargs})
        made = AIMessage(
            [{"type": "text", "text": "four\nQuestion: five"}],
            usage_metadata={"input_tokens": 11, "output_tokens": 3, "total_tokens": 14},
        )
        return ChatResult(generations=[ChatGeneration(message=made)])


class Failing(Recording):
    """A provider that is down."""

    def _generate(self, *arguments: Any, **options: Any) -> ChatResult:
        raise TimeoutError("no answer")


async def test_messages_options_tokens_and_stop_are_translated() -> None:
    model = Recording()
    chat = as_chat(model, max_tokens="max_output_tokens")
    assert isinstance(chat, ChatModel)
    reply = chat.complete(MESSAGES, max_tokens=7, temperature=0.5, stop=["\nQuestion:"])
    assert reply == await chat.acomplete(MESSAGES, max_tokens=7, temperature=0.5, stop=["\nQuestion:"])
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("four", 11, 3)
    assert [type(message) for message in model.asked[0]] == [
        SystemMessage,
        HumanMessage,
        AIMessage,
        HumanMessage,
    ]
    assert [message.content for message in model.asked[0]] == [message.content for message in MESSAGES]
    assert model.options == [{"stop": ["\nQuestion:"], "max_output_tokens": 7}] * 2


def test_a_schema_reaches_the_model_in_words() -> None:
    model = Recording()
    as_chat(model).complete(MESSAGES[1:2], schema={"type": "object"})
    assert '{"type": "object"}' in str(model.asked[0][0].content)


def test_a_model_that_counts_nothing_says_so() -> None:
    reply = as_chat(FakeListChatModel(responses=["yes"])).complete(MESSAGES)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("yes", None, None)


async def test_a_failure_names_the_model_and_its_error() -> None:
    chat = as_chat(Failing())
    with pytest.raises(ChatError, match="Failing failed: TimeoutError: no answer") as raised:
        chat.complete(MESSAGES)
    assert isinstance(raised.value.__cause__, TimeoutError)
    with pytest.raises(ChatError, match="TimeoutError"):
        await chat.acomplete(MESSAGES)


def test_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="is a str, not a LangChain chat model"):
        as_chat("gpt")  # type: ignore[arg-type]
