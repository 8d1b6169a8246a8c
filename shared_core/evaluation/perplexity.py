"""Perplexity of texts under a small language model that an installed package carries: SmolLM2-135M, offline.

llama.cpp is loaded when a model is made, not on import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shared_core.chat.packaged import load_llama
from shared_core.types import FloatArray

CONTEXT = 512
"""Tokens of a text that are read."""
UNSCORABLE = 1e12
"""Of a text without a token."""
BEGIN = "<|endoftext|>"
"""Stands before every text, so that its first token is scored too."""


class SmolLM2Perplexity:
    """Scores texts with SmolLM2-135M-Instruct; every distinct text once.

    Args:
        threads: CPU threads.
        context: Tokens of a text that are read; what lies beyond is cut off.

    Raises:
        MissingExtraError: The extra ``lm`` is not installed.
    """

    def __init__(self, *, threads: int = 1, context: int = CONTEXT) -> None:
        self._context = context
        self._model: Any = load_llama(context=context, threads=threads, n_batch=context, logits_all=True)
        self._known: dict[str, float] = {}

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """Return the perplexity of each text, shape (len(texts),)."""
        for text in dict.fromkeys(texts):
            if text not in self._known:
                self._known[text] = self._perplexity(text)
        return np.array([self._known[text] for text in texts], float)

    def _perplexity(self, text: str) -> float:
        begin = self._model.tokenize(BEGIN.encode(), add_bos=False, special=True)
        tokens = self._model.tokenize(text.encode("utf-8", "replace"), add_bos=False, special=False)
        tokens = tokens[: self._context - len(begin)]
        if not tokens:
            return UNSCORABLE
        self._model.reset()
        self._model.eval([*begin, *tokens])
        first = len(begin) - 1
        return perplexity_of(self._model.scores[first : first + len(tokens)], tokens)


def perplexity_of(logits: FloatArray, tokens: Sequence[int]) -> float:
    """Return exp of the mean negative log likelihood.

    Args:
        logits: Of the token that follows, shape (tokens, vocabulary).
        tokens: The tokens that did follow.
    """
    rows = np.asarray(logits, np.float64)
    top = rows.max(axis=1)
    normaliser = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
    return float(np.exp(np.mean(normaliser - rows[np.arange(len(rows)), list(tokens)])))
