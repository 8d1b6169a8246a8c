"""The core's models as LlamaIndex wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage as IndexMessage
from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM

from shared_core.chat import ChatMessage, ChatReply, cut_at_stop, with_schema
from shared_core.errors import ChatError, ConfigError

if TYPE_CHECKING:
    from shared_core import Embedder


class CoreEmbedding(BaseEmbedding):
    """Any embedder of the core, such as ``packaged_embedder()``, as a LlamaIndex embedding model.

    Args:
        embedder: An object with ``embed_documents`` and ``embed_query``.
        **options: Fields of ``BaseEmbedding``, such as ``embed_batch_size``.
    """

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: Embedder, **options: Any) -> None:
        super().__init__(**options)
        self._embedder = embedder

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises the class."""
        return "CoreEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return [float(value) for value in self._embedder.embed_query(query)]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [[float(value) for value in row] for row in self._embedder.embed_documents(texts)]

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def as_chat(llm: LLM, *, max_tokens: str | None = None, temperature: str | None = None) -> LlamaIndexChat:
    """Return a LlamaIndex LLM as the core's ``ChatModel``, for ``dream eval agent`` and LLM agents.

    The LLM keeps its own settings unless you say under which names it takes the bound of the reply and the
    temperature: ``as_chat(llm, max_tokens="max_tokens")``.

    Args:
        llm: Any LlamaIndex LLM.
        max_tokens: Name of the argument that bounds the reply.
        temperature: Name of the argument for the temperature.

    Raises:
        ConfigError: ``llm`` is no LlamaIndex LLM.
    """
    return LlamaIndexChat(llm, max_tokens=max_tokens, temperature=temperature)


class LlamaIndexChat:
    """A LlamaIndex LLM behind the core's chat protocol; arguments and errors as in ``as_chat``.

    Stop strings are cut off the reply here, since LlamaIndex has no common name for them.
    """

    def __init__(self, llm: LLM, *, max_tokens: str | None = None, temperature: str | None = None) -> None:
        if not isinstance(llm, LLM):
            raise ConfigError(f"llm is a {type(llm).__name__}, not a LlamaIndex LLM")
        self.llm = llm
        self._max_tokens = max_tokens
        self._temperature = temperature

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Return the LLM's reply; a schema is asked for in words.

        Raises:
            ChatError: The LLM failed; ``__cause__`` says how.
        """
        asked, options = _translate(messages, schema), self._options(max_tokens, temperature)
        try:
            made = self.llm.chat(asked, **options)
        except Exception as error:
            raise self._failed(error) from error
        return _reply(made, stop)

    async def acomplete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """``complete`` through the LLM's own ``achat``."""
        asked, options = _translate(messages, schema), self._options(max_tokens, temperature)
        try:
            made = await self.llm.achat(asked, **options)
        except Exception as error:
            raise self._failed(error) from error
        return _reply(made, stop)

    def _options(self, max_tokens: int, temperature: float) -> dict[str, Any]:
        named = ((self._max_tokens, max_tokens), (self._temperature, temperature))
        return {name: value for name, value in named if name is not None}

    def _failed(self, error: Exception) -> ChatError:
        return ChatError(f"{self.llm.class_name()} failed: {type(error).__name__}: {error}")


def _translate(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None) -> list[IndexMessage]:
    return [
        IndexMessage(role=message.role, content=message.content) for message in with_schema(messages, schema)
    ]


def _reply(made: ChatResponse, stop: Sequence[str]) -> ChatReply:
    # where an integration counts tokens, it does so under these names
    usage = made.additional_kwargs
    return ChatReply(
        text=cut_at_stop(made.message.content or "", stop),
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
    )
