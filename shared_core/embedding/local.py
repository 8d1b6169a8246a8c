"""What every embedder of this package shares: the two protocols it satisfies, around one numeric method."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import numpy as np

from shared_core.errors import DimensionMismatchError
from shared_core.types import FloatArray


class LocalEmbedder(ABC):
    """An ``Embedder``; also fits where LangChain wants ``Embeddings``."""

    @abstractmethod
    def _encode(self, texts: list[str], *, query: bool) -> FloatArray:
        """Return one row per text, shape (len(texts), d); there is at least one text."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text; a text given twice is embedded once."""
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        matrix = self._rows(list(distinct), query=False)
        return [matrix[distinct[text]].tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one query."""
        vector: list[float] = self._rows([text], query=True)[0].tolist()
        return vector

    def embed_queries(self, texts: list[str]) -> FloatArray:
        """Return one row per query, shape (len(texts), d)."""
        return self._rows(texts, query=True)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """``embed_documents`` in a thread."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """``embed_query`` in a thread."""
        return await asyncio.to_thread(self.embed_query, text)

    def _rows(self, texts: list[str], *, query: bool) -> FloatArray:
        if not texts:
            return np.empty((0, 0), np.float32)
        # no tokenizer accepts lone surrogates
        encodable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        return np.asarray(self._encode(encodable, query=query), np.float32)


def check_dimension(found: int, expected: int, model: str) -> None:
    """Refuse a model whose vectors are not as long as the ones this class was written for.

    Raises:
        DimensionMismatchError: The installed package holds another model.
    """
    if found != expected:
        raise DimensionMismatchError(
            f"{model} gives vectors of dimension {found}, not {expected}: the installed package holds "
            "another model; install the version that constraints.txt pins"
        )
