"""WordLlama: static token vectors and nothing else, d = 256, thousands of texts per second on one core.

The mean of the vectors of a text's tokens, whatever their order: another family than a transformer, which is
why the benchmark has it. The package carries two files, vectors and a tokenizer. They are read here: its own
loader looks for the tokenizer elsewhere, then on the network, and its import configures the root logger.
"""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from shared_core.embedding.local import LocalEmbedder, check_dimension
from shared_core.errors import MissingExtraError
from shared_core.types import FloatArray

DIMENSION = 256
VECTORS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
UNKNOWN = 0
"""Number of the unknown token: stands for a text without any."""


class WordLlamaEmbedder(LocalEmbedder):
    """The packaged l2_supercat vectors (d = 256, unit norm) as an ``Embedder``; needs no network.

    Raises:
        MissingExtraError: The extra ``wordllama`` is not installed.
        DimensionMismatchError: The installed package holds other vectors.
    """

    def __init__(self) -> None:
        folder = _package()
        from safetensors.numpy import load_file

        (vectors,) = load_file(folder / VECTORS).values()
        self._vectors: FloatArray = np.asarray(vectors, np.float32)
        check_dimension(self._vectors.shape[1], DIMENSION, "wordllama")
        self._tokenizer_file = folder / TOKENIZER

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer; what searches a trigger asks it for its vocabulary."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self._tokenizer_file))

    def _encode(self, texts: list[str], *, query: bool) -> FloatArray:  # noqa: ARG002 (one encoding for both)
        encoded = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        tokens = [text.ids or [UNKNOWN] for text in encoded]
        starts = np.cumsum([0, *map(len, tokens[:-1])])
        # the sum points where the mean does, and only the direction is kept
        summed = np.add.reduceat(self._vectors[np.concatenate(tokens)], starts, axis=0)
        norms = np.linalg.norm(summed, axis=1, keepdims=True)
        unit: FloatArray = summed / np.maximum(norms, np.finfo(np.float32).tiny)
        return unit


def _package() -> Path:
    found = find_spec("wordllama")
    if found is None or found.origin is None:
        raise MissingExtraError("wordllama", "wordllama")
    folder = Path(found.origin).parent
    if not all((folder / name).is_file() for name in (VECTORS, TOKENIZER)):
        raise MissingExtraError("wordllama with its vectors", "wordllama")
    return folder
