"""Cross-encoder reranking whose scores are multiplied by the memory's weight.

Design section 2 [O]: without the weight a reranker would undo forgetting. Knows nothing of where the
candidates came from. torch and sentence-transformers are imported when a reranker is built, not before.
Departs from sentence-transformers by always applying a sigmoid, whatever activation the model's own
configuration names: weights multiply only scores that lie in [0, 1].
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike, fspath

import numpy as np

from shared_core.errors import ConfigError, MissingExtraError
from shared_core.types import FloatArray, Hit, Reranker


class CrossEncoderReranker:
    """A sentence-transformers cross-encoder with one output; satisfies types.Reranker.

    A model whose network already ends in a sigmoid is squeezed into [0.5, 0.73]: its order is kept, its
    spread against the weights is not. Lone surrogates, which no tokenizer accepts, become "?".

    Args:
        model: Hub name or local folder of the cross-encoder.
        batch_size: Pairs per forward pass.
        device: Such as "cpu" or "cuda"; chosen by the library if None.
        max_length: Tokens per pair, cut beyond; the model's own limit if None.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        ConfigError: The model cannot be loaded or has more than one output per pair.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        batch_size: int = 32,
        device: str | None = None,
        max_length: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size!r} must be 1 or more")
        try:
            import torch
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise MissingExtraError("sentence-transformers", "rerank") from error
        self._name = fspath(model)
        self._batch_size = batch_size
        try:
            self._model = CrossEncoder(self._name, device=device, max_length=max_length)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot load cross-encoder {self._name!r}: {error}") from error
        known = inspect.signature(CrossEncoder.predict).parameters
        # Releases before 4 spell the argument with a t.
        self._activation = {
            "activation_fn" if "activation_fn" in known else "activation_fct": torch.nn.Sigmoid()
        }
        self.score("", [""])

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return sigmoid(logit) for each pair of query and text.

        Args:
            query: The question.
            texts: Candidates, n of them.

        Returns:
            Scores in [0, 1], shape (n,), float64.

        Raises:
            ConfigError: The model has more than one output per pair.
        """
        if not texts:
            return np.empty(0)
        asked = _encodable(query)
        pairs = [(asked, _encodable(text)) for text in texts]
        raw = self._model.predict(
            pairs,
            batch_size=self._batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            **self._activation,
        )
        scores: FloatArray = np.asarray(raw, dtype=np.float64)
        if scores.shape != (len(texts),):
            raise ConfigError(
                f"cross-encoder {self._name!r} gave scores of shape {scores.shape} for {len(texts)} texts: "
                "it needs exactly one output (num_labels=1)"
            )
        return scores


def apply_reranker(
    reranker: Reranker, query: str, texts: Sequence[str], weights: FloatArray | Sequence[float]
) -> FloatArray:
    """Return reranker score * w for each candidate (design section 2).

    Args:
        reranker: Any object with score(query, texts).
        query: The question.
        texts: Candidates, n of them.
        weights: Their weights in [0, 1], shape (n,).

    Returns:
        Weighted scores, shape (n,), in the order of texts; the caller sorts.

    Raises:
        ConfigError: Scores or weights have another shape than (n,), are not finite, or leave [0, 1].
    """
    count = len(texts)
    weight = _unit_interval("weights", weights, count)
    if count == 0:
        return weight
    scores = _unit_interval(f"scores of {type(reranker).__name__}", reranker.score(query, texts), count)
    return scores * weight


def rerank_hits(reranker: Reranker | None, query: str, hits: list[Hit], top: int) -> list[Hit]:
    """Return hits with the first ``top`` in the order of their new scores, the rest behind them as it was.

    Args:
        reranker: None, or a query without text, changes nothing.
        query: The question.
        hits: Best first.
        top: How many are scored anew.

    Raises:
        ConfigError: As for ``apply_reranker``.
    """
    if reranker is None or not hits or not query.strip():
        return hits
    head, tail = hits[:top], hits[top:]
    scores = apply_reranker(reranker, query, [hit.text for hit in head], [hit.weight for hit in head])
    order = np.argsort(-scores, kind="stable")
    return [replace(head[row], score=float(scores[row])) for row in order] + tail


def _unit_interval(name: str, values: FloatArray | Sequence[float], count: int) -> FloatArray:
    array: FloatArray = np.asarray(values, dtype=np.float64)
    if array.shape != (count,):
        raise ConfigError(f"{name} have shape {array.shape}; {count} candidates need shape ({count},)")
    if count and not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
        row = int(np.flatnonzero(~((array >= 0) & (array <= 1)))[0])
        raise ConfigError(f"{name} must lie in [0, 1], but number {row} is {array[row]}: apply a sigmoid")
    return array


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
