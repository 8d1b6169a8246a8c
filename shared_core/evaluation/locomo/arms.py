"""The plain arms of the LoCoMo evaluation: dense, bm25, and both fused, one turn a page.

They are what a user has without this package: pages stored as ``(date) speaker: text``, cosine for dense,
``retrieval.bm25`` for keywords, and reciprocal rank fusion with k = 60 for hybrid. Arms that read a memory
bank satisfy the same protocol. No arm sees a question before it is asked, nor any answer or evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from shared_core.errors import ConfigError
from shared_core.evaluation.locomo.loader import Conversation
from shared_core.retrieval.bm25 import Bm25Index
from shared_core.retrieval.fusion import fuse_weighted
from shared_core.types import Embedder, FloatArray

RRF_K = 60.0


@dataclass(frozen=True)
class ContextEntry:
    """One piece of context, as a reader would see it."""

    text: str
    sources: tuple[str, ...]
    """Ids of the turns it comes from. Evidence counts only where ``text`` also quotes the turn verbatim."""


class Arm(Protocol):
    """A memory that was filled with one conversation and can be asked."""

    @property
    def name(self) -> str:
        """What the rows call it."""

    def search(self, question: str, limit: int) -> Sequence[ContextEntry]:
        """Return at most ``limit`` entries, best first."""


@runtime_checkable
class ReadingArm(Protocol):
    """An arm that puts what it found in an order of its own before a reader."""

    def context(self, question: str, budget_tokens: int, count_tokens: Callable[[str], int]) -> str:
        """Return at most that many tokens of context."""


class DenseArm:
    """Turns by cosine; ties by the order they were said.

    Args:
        conversation: Its turns become the pages.
        embedder: Embeds the pages now and each question when it is asked.
    """

    name = "dense"

    def __init__(self, conversation: Conversation, embedder: Embedder) -> None:
        self._pages = _pages(conversation)
        self._ids = list(self._pages)
        self._embedder = embedder
        texts = [page.text for page in self._pages.values()]
        self._matrix = _unit(np.asarray(embedder.embed_documents(texts), dtype=np.float32))

    def ranking(self, question: str) -> list[str]:
        """Return the ids of all turns, best first."""
        vector = _unit(np.asarray(self._embedder.embed_query(question), dtype=np.float32)[None, :])[0]
        return [self._ids[row] for row in np.argsort(-(self._matrix @ vector), kind="stable")]

    def search(self, question: str, limit: int) -> list[ContextEntry]:
        """Return the ``limit`` most similar turns."""
        return [self._pages[key] for key in self.ranking(question)[:limit]]


class Bm25Arm:
    """Turns by keywords; a turn that shares no word with the question is not returned."""

    name = "bm25"

    def __init__(self, conversation: Conversation) -> None:
        self._pages = _pages(conversation)
        self._index = Bm25Index()
        self._index.add(list(self._pages), [page.text for page in self._pages.values()])

    def ranking(self, question: str) -> list[str]:
        """Return the ids of the turns that share a word with the question, best first."""
        return self._index.search(question, len(self._pages))[0]

    def search(self, question: str, limit: int) -> list[ContextEntry]:
        """Return the ``limit`` best turns."""
        return [self._pages[key] for key in self.ranking(question)[:limit]]


class HybridArm:
    """Turns by reciprocal rank fusion of the two arms above, all weights 1."""

    name = "hybrid"

    def __init__(self, conversation: Conversation, embedder: Embedder) -> None:
        self._pages = _pages(conversation)
        self._dense = DenseArm(conversation, embedder)
        self._bm25 = Bm25Arm(conversation)

    def search(self, question: str, limit: int) -> list[ContextEntry]:
        """Return the ``limit`` best turns."""
        rankings = [self._dense.ranking(question), self._bm25.ranking(question)]
        fused = fuse_weighted(rankings, {}, k=RRF_K)
        return [self._pages[key] for key, _ in fused[:limit]]


PLAIN_ARMS: Mapping[str, Callable[[Conversation, Embedder], Arm]] = {
    "dense": DenseArm,
    "bm25": lambda conversation, _: Bm25Arm(conversation),
    "hybrid": HybridArm,
}


def plain_arm(name: str, conversation: Conversation, embedder: Embedder) -> Arm:
    """Fill a plain arm with a conversation.

    Raises:
        ConfigError: There is no such arm.
    """
    if name not in PLAIN_ARMS:
        raise ConfigError(f"arm {name!r} must be one of {sorted(PLAIN_ARMS)}")
    return PLAIN_ARMS[name](conversation, embedder)


def _pages(conversation: Conversation) -> dict[str, ContextEntry]:
    return {turn.id: ContextEntry(turn.page, (turn.id,)) for turn in conversation.turns}


def _unit(rows: FloatArray) -> Any:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
