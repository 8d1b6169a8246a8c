"""The embedding of a query, by whichever model there is: LlamaIndex's, the core's, or none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle

from shared_core.errors import ConfigError, InvalidMemoryError

if TYPE_CHECKING:
    from shared_core import Embedder
    from shared_core.types import FloatArray


class QueryEmbedder:
    """Embeds query bundles, and never writes to them.

    LlamaIndex's own retriever leaves a query's embedding in the bundle when it works synchronously, and not
    when it works asynchronously; both must rank alike.

    Args:
        model: Embeds what a bundle has no embedding for; None: such a bundle has none.

    Raises:
        ConfigError: ``model`` is neither a LlamaIndex embedding model nor an embedder of the core.
    """

    def __init__(self, model: BaseEmbedding | Embedder | None) -> None:
        known = isinstance(model, BaseEmbedding) or hasattr(model, "embed_query")
        if model is not None and not known:
            raise ConfigError(
                f"embed_model is a {type(model).__name__}: give a LlamaIndex BaseEmbedding, or an "
                "object with embed_documents and embed_query"
            )
        self.model = model

    def embed(self, query: QueryBundle | None) -> FloatArray | None:
        """Return the query's embedding, shape (d,), float64; None without a query, text or model.

        Several ``custom_embedding_strs`` (as of HyDE) give the mean of their embeddings, as in LlamaIndex.

        Raises:
            InvalidMemoryError: The bundle holds what is no vector of finite numbers.
        """
        if (given := _given(query)) is not None:
            return given
        model, texts = self.model, _texts(query)
        if model is None or not texts:
            return None
        if isinstance(model, BaseEmbedding):
            return _vector(model.get_agg_embedding_from_queries(texts))
        return _mean([model.embed_query(text) for text in texts])

    async def aembed(self, query: QueryBundle | None) -> FloatArray | None:
        """``embed`` with the model's own coroutine where it has one, else in a thread."""
        model, texts = self.model, _texts(query)
        if _given(query) is not None or model is None or not texts:
            return self.embed(query)
        if isinstance(model, BaseEmbedding):
            return _vector(await model.aget_agg_embedding_from_queries(texts))
        if (embed := getattr(model, "aembed_query", None)) is not None:
            return _mean([await embed(text) for text in texts])
        return await asyncio.to_thread(self.embed, query)

    def embed_texts(self, texts: list[str]) -> FloatArray | None:
        """Return the embeddings of texts, shape (n, d); None without a model."""
        if self.model is None:
            return None
        if isinstance(self.model, BaseEmbedding):
            return np.asarray(self.model.get_text_embedding_batch(texts), float)
        return np.asarray(self.model.embed_documents(texts), float)


def with_embedding(query: QueryBundle, vector: FloatArray | None) -> QueryBundle:
    """Return a copy of a query that carries its embedding."""
    return replace(query, embedding=query.embedding if vector is None else vector.tolist())


def _texts(query: QueryBundle | None) -> list[str]:
    return [] if query is None else [text for text in query.embedding_strs if text.strip()]


def _given(query: QueryBundle | None) -> FloatArray | None:
    return None if query is None or query.embedding is None else _vector(query.embedding)


def _mean(vectors: list[Any]) -> FloatArray:
    return _vector(np.mean([np.asarray(vector, float) for vector in vectors], axis=0))


def _vector(found: Any) -> FloatArray:
    vector = np.asarray(found, float)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise InvalidMemoryError(
            f"a query's embedding needs shape (d,) and finite numbers, not shape {vector.shape}"
        )
    return vector
