"""Data that travels between layers, and the small protocols a user's own models satisfy.

Knows nothing of storage, frameworks or numerics beyond array shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.floating[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
Metadata: TypeAlias = Mapping[str, Any]
Where: TypeAlias = Mapping[str, Any]
"""A Chroma metadata filter, such as ``{"user": "ada"}``."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` while long work goes on."""


@dataclass(frozen=True, kw_only=True)
class MemoryState:
    """What the bank knows about one memory beside its text (design 1)."""

    weight: float = 1.0
    """w in [0, 1]; multiplies the similarity at retrieval."""
    suspicion: float = 0.0
    """s in [0, 1]; raised by sweeps that find the memory abnormal."""
    consolidation: float = 1.0
    """c in [0, 1]; an unread memory counts as consolidated, so that it does not fade."""
    retrievals: int = 0
    successes: float = 0.0
    """Sum of the success signals in [0, 1] given as feedback."""
    last_access: float | None = None
    """Unix time, seconds, UTC."""
    deleted: bool = False
    """Softly deleted: kept in the collection, never retrieved."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """One memory: what Chroma holds and what we know about it."""

    id: str
    text: str
    metadata: Metadata = field(default_factory=dict)
    state: MemoryState = field(default_factory=MemoryState)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One retrieved memory with the numbers that ranked it."""

    id: str
    text: str
    metadata: Metadata
    score: float
    """What it was ranked by; larger is better."""
    similarity: float
    """cos(q, v) in [-1, 1]; NaN where the memory was found by keywords only."""
    weight: float
    """w in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that a check-up looked at."""

    name: str
    status: Literal["ok", "warn", "fail", "skip"]
    found: str
    """What is the case."""
    todo: str = ""
    """What to do about it; empty where nothing need be done."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; every LangChain ``Embeddings`` object satisfies it as it is."""

    def embed_documents(self, texts: list[str]) -> Sequence[Sequence[float]] | FloatArray:
        """Return one vector per text."""
        ...

    def embed_query(self, text: str) -> Sequence[float] | FloatArray:
        """Return the vector of one query."""
        ...


@runtime_checkable
class BatchEmbedder(Protocol):
    """An embedder that takes many queries at once; ours do."""

    def embed_queries(self, texts: list[str]) -> Sequence[Sequence[float]] | FloatArray:
        """Return one vector per query."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Scores candidate texts against a query, each in [0, 1], larger is better."""

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return an array of shape (len(texts),)."""
        ...
