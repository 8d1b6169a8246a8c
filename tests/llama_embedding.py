"""An embedder of the core as LlamaIndex wants it."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding


class CoreEmbedding(BaseEmbedding):
    core: Any

    def _get_query_embedding(self, query: str) -> list[float]:
        return list(self.core.embed_query(query))

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return list(self.core.embed_documents([text])[0])
