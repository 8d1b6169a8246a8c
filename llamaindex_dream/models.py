"""Models of the core as LlamaIndex wants them, and LlamaIndex's as the core wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage as IndexMessage
from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM

from shared_core.chat import AdaptedChat, ChatMessage, ChatReply, cut_at_stop
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core import Embedder
    from shared_core.types import FloatArray


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

    @property
    def embedder(self) -> Embedder:
        """The embedder of the core."""
        return self._embedder

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


def as_embedder(embed_model: BaseEmbedding) -> Embedder:
    """Return a LlamaIndex embedding model as the core's ``Embedder``, for a memory bank.

    ::

        bank = MemoryBank.from_collection(collection, embedder=as_embedder(Settings.embed_model))

    Args:
        embed_model: Any ``BaseEmbedding``; a ``CoreEmbedding`` gives back the embedder that it wraps.

    Raises:
        ConfigError: It is no LlamaIndex embedding model.
    """
    # a subclass may embed otherwise than what it wraps
    if type(embed_model) is CoreEmbedding:
        return embed_model.embedder
    if not isinstance(embed_model, BaseEmbedding):
        raise ConfigError(f"embed_model is a {type(embed_model).__name__}, not a LlamaIndex BaseEmbedding")
    return LlamaIndexEmbedder(embed_model)


class LlamaIndexEmbedder:
    """A LlamaIndex embedding model behind the core's protocol; made by ``as_embedder``.

    Callbacks and instrumentation of the model fire as they do in LlamaIndex.
    """

    def __init__(self, embed_model: BaseEmbedding) -> None:
        self.embed_model = embed_model

    def embed_documents(self, texts: list[str]) -> FloatArray:
        """Return one vector per text, shape (len(texts), d)."""
        return np.asarray(self.embed_model.get_text_embedding_batch(list(texts)), np.float32)

    def embed_query(self, text: str) -> FloatArray:
        """Return the vector of one query, shape (d,)."""
        return np.asarray(self.embed_model.get_query_embedding(text), np.float32)

    async def aembed_query(self, text: str) -> FloatArray:
        """``embed_query`` with the model's own coroutine."""
        return np.asarray(await self.embed_model.aget_query_embedding(text), np.float32)


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


class LlamaIndexChat(AdaptedChat):
    """A LlamaIndex LLM behind the core's chat protocol; arguments and errors as in ``as_chat``.

    Stop strings are cut off the reply here, since LlamaIndex has no common name for them.
    """

    def __init__(self, llm: LLM, *, max_tokens: str | None = None, temperature: str | None = None) -> None:
        if not isinstance(llm, LLM):
            raise ConfigError(f"llm is a {type(llm).__name__}, not a LlamaIndex LLM")
        super().__init__(max_tokens=max_tokens, temperature=temperature)
        self.llm = llm

    def _translate(self, messages: Sequence[ChatMessage]) -> list[IndexMessage]:
        return [IndexMessage(role=message.role, content=message.content) for message in messages]

    def _ask(self, messages: list[Any], _stop: Sequence[str], options: dict[str, Any]) -> ChatResponse:
        return self.llm.chat(messages, **options)

    async def _aask(self, messages: list[Any], _stop: Sequence[str], options: dict[str, Any]) -> ChatResponse:
        return await self.llm.achat(messages, **options)

    def _reply(self, made: ChatResponse, stop: Sequence[str]) -> ChatReply:
        # where an integration counts tokens, it does so under these names
        usage = made.additional_kwargs
        return ChatReply(
            text=cut_at_stop(made.message.content or "", stop),
            prompt_tokens=usage.get("prompt_tokens"),
            completion_tokens=usage.get("completion_tokens"),
        )

    def _name(self) -> str:
        return self.llm.class_name()
