"""The core's models as LlamaIndex wants them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

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
