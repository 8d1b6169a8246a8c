"""LlamaIndex's own mock LLM behind the core's chat protocol."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from llama_index.core.base.llms.types import ChatMessage as IndexMessage
from llama_index.core.base.llms.types import ChatResponse, MessageRole
from llama_index.core.llms.mock import MockLLM

from llamaindex_dream import as_chat
from shared_core.chat import ChatMessage, ChatModel
from shared_core.errors import ChatError, ConfigError

MESSAGES = [ChatMessage("system", "Be brief."), ChatMessage("user", "One?"), ChatMessage("assistant", "Two.")]


class Counting(MockLLM):
    """Counts as hosted LLMs do, and keeps what it is asked."""

    asked: ClassVar[list[Any]] = []

    def chat(self, messages: Any, **options: Any) -> ChatResponse:
        self.asked.append((list(messages), options))
        said = IndexMessage(role=MessageRole.ASSISTANT, content="four <memory>")
        return ChatResponse(message=said, additional_kwargs={"prompt_tokens": 5, "completion_tokens": 2})

    async def achat(self, messages: Any, **options: Any) -> ChatResponse:
        return self.chat(messages, **options)


class Failing(MockLLM):
    """A provider that is down."""

    def chat(self, messages: Any, **options: Any) -> ChatResponse:
        raise TimeoutError("no answer")

    async def achat(self, messages: Any, **options: Any) -> ChatResponse:
        raise TimeoutError("no answer")


async def test_messages_options_tokens_and_stop_are_translated() -> None:
    llm = Counting()
    llm.asked.clear()
    chat = as_chat(llm, temperature="temperature")
    assert isinstance(chat, ChatModel)
    reply = chat.complete(MESSAGES, max_tokens=7, temperature=0.5, stop=["<memory"])
    assert reply == await chat.acomplete(MESSAGES, temperature=0.5, stop=["<memory"])
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("four ", 5, 2)
    messages, options = llm.asked[0]
    assert [message.role.value for message in messages] == ["system", "user", "assistant"]
    assert [message.content for message in messages] == [message.content for message in MESSAGES]
    assert options == {"temperature": 0.5}


async def test_the_mock_llm_answers_without_counting() -> None:
    chat = as_chat(MockLLM(max_tokens=3))
    one, two = chat.complete(MESSAGES), await chat.acomplete(MESSAGES)
    assert one == two
    assert one.text
    assert one.prompt_tokens is None


async def test_a_failure_names_the_model_and_its_error() -> None:
    chat = as_chat(Failing())
    with pytest.raises(ChatError, match="failed: TimeoutError: no answer"):
        chat.complete(MESSAGES)
    with pytest.raises(ChatError, match="TimeoutError"):
        await chat.acomplete(MESSAGES)


def test_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="is a str, not a LlamaIndex LLM"):
        as_chat("gpt")  # type: ignore[arg-type]
