"""LlamaIndex's models behind the core's protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from llama_index.core.base.llms.types import ChatMessage as IndexMessage
from llama_index.core.base.llms.types import ChatResponse, MessageRole
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms.mock import MockLLM

from llamaindex_dream import CoreEmbedding, as_chat, as_embedder
from llamaindex_dream.models import LlamaIndexEmbedder
from shared_core import Embedder, MemoryBank, SentenceTransformerEmbedder
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


class Shouting(CoreEmbedding):
    """An embedding model that treats queries and texts differently, as many do."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return super()._get_query_embedding(query.upper())


async def test_an_embedding_model_as_the_core_s_embedder(embedder: SentenceTransformerEmbedder) -> None:
    found = LlamaIndexEmbedder(Shouting(embedder, embed_batch_size=2))
    assert isinstance(found, Embedder)
    texts = ["one lamp", "two lamps", "a garden"]
    expected = np.asarray(embedder.embed_documents(texts))
    assert found.embed_documents(texts) == pytest.approx(expected, abs=1e-6)
    shouted = np.asarray(embedder.embed_query("A LAMP"))
    assert found.embed_query("a lamp") == pytest.approx(shouted, abs=1e-6)
    assert await found.aembed_query("a lamp") == pytest.approx(shouted, abs=1e-6)
    assert found.embed_documents(texts).dtype == np.float32


def test_it_serves_a_bank(embedder: SentenceTransformerEmbedder, tmp_path: Path, name: str) -> None:
    model = LlamaIndexEmbedder(CoreEmbedding(embedder))
    with MemoryBank.open(tmp_path, name, create=True, embedder=model) as bank:
        bank.add(["The lamp is in the hall.", "Soup is served at noon."], ids=["lamp", "soup"])
        assert bank.sweep().memories == 2


def test_a_wrapped_embedder_is_given_back(embedder: SentenceTransformerEmbedder) -> None:
    assert as_embedder(CoreEmbedding(embedder)) is embedder
    assert isinstance(as_embedder(Shouting(embedder)), LlamaIndexEmbedder), "it embeds otherwise"
    other = MockEmbedding(embed_dim=3)
    assert isinstance(as_embedder(other), LlamaIndexEmbedder)
    with pytest.raises(ConfigError, match="not a LlamaIndex BaseEmbedding"):
        as_embedder(embedder)  # type: ignore[arg-type]
