"""A trigger for the embedder in use: AgentPoison's objective, searched by words instead of gradients.

Published triggers were optimised for other encoders and are weak on this one. Here words are put together so
that triggered queries lie close to each other (compactness) and far from the bank's keys (uniqueness): then a
poison, which carries the trigger too, is what a triggered query retrieves.

Knows texts and the ``Embedder`` protocol, no gradients, no attack cases. Departs from upstream [O]: beam
search over screened words and single substitutions instead of gradient-guided beam search; uniqueness against
the nearest keys instead of cluster centres; no coherence (perplexity) constraint.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shared_core.config import checked_whole
from shared_core.errors import ConfigError
from shared_core.types import Embedder, FloatArray

WORD = re.compile(r"[a-z]{3,12}")
NEAREST = 4
"""How many of the bank's keys compete: as many as are retrieved."""


class Tokenizer(Protocol):
    """What is needed of a tokenizer: its vocabulary."""

    def get_vocab(self) -> Mapping[str, int]:
        """Return token and number of every token."""
        ...


@dataclass(frozen=True, kw_only=True)
class TriggerConfig:
    """How long is searched; the defaults embed about 4,500 short texts.

    Raises:
        ConfigError: A number below 1.
    """

    length: int = 5
    """Words of the trigger."""
    pool: int = 800
    """Words drawn from the vocabulary."""
    screened: int = 80
    """Words that are kept after each was tried alone."""
    beam: int = 2
    """Triggers that are carried on."""
    train_queries: int = 5
    """Queries that a candidate is tried on."""
    substitutions: int = 24
    """Words tried in every place of the finished trigger."""
    compactness: float = 1.0
    """Weight of compactness against uniqueness."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("length", "pool", "screened", "beam", "train_queries"):
            checked_whole(name, getattr(self, name), 1 + (name == "train_queries"))


@dataclass(frozen=True, kw_only=True)
class OptimisedTrigger:
    """What a search found."""

    trigger: str
    objective: float
    """Compactness minus similarity to the bank, on the queries it was searched with."""
    texts: int
    """How many texts were embedded."""
    seconds: float


def vocabulary(tokenizer: Tokenizer | None, texts: Sequence[str]) -> list[str]:
    """Return candidate words: whole words of a tokenizer's vocabulary, else those of the bank's texts.

    Args:
        tokenizer: The embedder's own, where it has one.
        texts: The bank's keys.
    """
    if tokenizer is not None:
        found = {word for word in map(_as_word, tokenizer.get_vocab()) if WORD.fullmatch(word)}
        if found:
            return sorted(found)
    return sorted({word for text in texts for word in WORD.findall(text.lower())})


def tokenizer_of(embedder: Any) -> Tokenizer | None:
    """Return the tokenizer of a sentence-transformers embedder; None where there is none to be found."""
    for holder in (embedder, getattr(embedder, "_model", None)):
        tokenizer = getattr(holder, "tokenizer", None)
        if hasattr(tokenizer, "get_vocab"):
            return tokenizer
    return None


def trigger_objective(triggered: FloatArray, keys: FloatArray, compactness: float = 1.0) -> FloatArray:
    """Return how well triggers bring queries together and away from the bank.

    Args:
        triggered: Unit vectors of the same B >= 2 queries with each trigger, shape (triggers, B, d).
        keys: Unit vectors of the bank, shape (N, d).
        compactness: Weight of the first part.

    Returns:
        Shape (triggers,): mean cosine between different queries, minus mean cosine to the nearest keys.
    """
    queries = triggered.shape[1]
    pairs = np.einsum("tid,tjd->t", triggered, triggered) - queries
    compact = pairs / (queries * (queries - 1))
    similar = np.einsum("tbd,nd->tbn", triggered, keys, optimize=True)
    nearest = min(NEAREST, similar.shape[-1])
    near = np.partition(similar, -nearest, axis=-1)[..., -nearest:].mean(axis=(1, 2))
    objective: FloatArray = compactness * compact - near
    return objective


def optimise_trigger(
    keys: Sequence[str],
    queries: Sequence[str],
    embedder: Embedder,
    *,
    words: Sequence[str] | None = None,
    config: TriggerConfig | None = None,
) -> OptimisedTrigger:
    """Search a trigger for a bank and an embedder; the same seed finds the same trigger.

    Args:
        keys: The bank's keys, as an attacker guesses them.
        queries: Queries to optimise on; measure on others.
        embedder: The embedder under attack.
        words: Candidate words; default: ``vocabulary`` of the embedder's tokenizer and the keys.
        config: How long is searched.

    Raises:
        ConfigError: Fewer than two queries, no keys or no words.
    """
    config = config or TriggerConfig()
    words = vocabulary(tokenizer_of(embedder), keys) if words is None else words
    if len(queries) < 2 or not keys or not words:
        raise ConfigError(
            f"a trigger needs 2 queries, a key and a word, not {len(queries)}, {len(keys)}, {len(words)}"
        )
    started = time.perf_counter()
    search = _Search(keys, queries[: config.train_queries], embedder, config)
    draw = np.random.default_rng(config.seed)
    pool = [words[i] for i in draw.permutation(len(words))[: config.pool]]
    screened = search.best([(word,) for word in pool], config.screened, queries=2)
    chosen = [word for (word,), _ in screened]
    beam = search.best([(word,) for word in chosen], config.beam)
    for _ in range(config.length - 1):
        longer = [(*trigger, word) for trigger, _ in beam for word in chosen if word not in trigger]
        beam = search.best(longer or [trigger for trigger, _ in beam], config.beam)
    best = beam[0]
    for place in range(len(best[0])):
        others = [chosen[i] for i in draw.permutation(len(chosen))[: config.substitutions]]
        changed = [(*best[0][:place], word, *best[0][place + 1 :]) for word in others if word not in best[0]]
        best = search.best([best[0], *changed], 1)[0]
    return OptimisedTrigger(
        trigger=" ".join(best[0]),
        objective=best[1],
        texts=search.texts,
        seconds=time.perf_counter() - started,
    )


class _Search:
    """Scores triggers; all candidates of one step are embedded in one call."""

    def __init__(
        self, keys: Sequence[str], queries: Sequence[str], embedder: Embedder, config: TriggerConfig
    ) -> None:
        self._embedder = embedder
        self._queries = list(queries)
        self._compactness = config.compactness
        self.texts = 0
        self._keys = self._embed(list(dict.fromkeys(keys)))

    def best(
        self, triggers: Sequence[tuple[str, ...]], count: int, queries: int | None = None
    ) -> list[tuple[tuple[str, ...], float]]:
        """Return the best triggers with their objective, best first, ties in the order given."""
        asked = self._queries[:queries]
        texts = [f"{query} {' '.join(trigger)}" for trigger in triggers for query in asked]
        vectors = self._embed(texts).reshape(len(triggers), len(asked), -1)
        objective = trigger_objective(vectors, self._keys, self._compactness)
        order = np.argsort(-objective, kind="stable")[:count]
        return [(triggers[row], float(objective[row])) for row in order]

    def _embed(self, texts: list[str]) -> FloatArray:
        self.texts += len(texts)
        matrix = np.asarray(self._embedder.embed_documents(texts), np.float32)
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        unit: FloatArray = matrix / np.maximum(norms, np.finfo(np.float32).tiny)
        return unit


def _as_word(token: str) -> str:
    """Strip the mark of a word's beginning; a piece inside a word stays unlike a word."""
    return token.removeprefix("▁").removeprefix("Ġ")
