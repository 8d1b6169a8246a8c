"""Options of searches: how memories are found and ranked ([O]: ours)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from shared_core.config.checks import checked_choice, checked_positive, checked_range, checked_whole
from shared_core.errors import ConfigError

SearchType = Literal["similarity", "similarity_score_threshold", "mmr", "hybrid", "associative"]
SearchBackend = Literal["auto", "index", "scan"]


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """How memories are searched and ranked (design section 2).

    Raises:
        ConfigError: A value is outside its range.
    """

    k: int = 4
    """How many memories are returned at most."""
    search_type: SearchType = "similarity"
    """``associative`` ranks as ``AssociativeRetriever`` does, by what dreams wrote too; of the options below
    only ``k``, ``min_weight`` and ``rerank_top`` count there."""
    backend: SearchBackend = "auto"
    """``index``: the collection's own index, widened until exact; ``scan``: every embedding, read; ``auto``:
    the index, and scans once a bank that fits in memory is searched often enough between two changes."""
    min_weight: float = 0.01
    """A memory below this weight is forgotten: it is not returned however large k is [O]."""
    score_threshold: float | None = None
    """Smallest weighted score w * cos that is returned."""
    fetch_k: int = 20
    """Candidates of MMR, and the first depth of each hybrid arm."""
    lambda_mult: float = 0.5
    """MMR: 1 is relevance only, 0 is diversity only."""
    rrf_k: float = 60.0
    """Constant of reciprocal rank fusion [O, 60]."""
    rrf_weights: tuple[float, float] = (1.0, 1.0)
    """Weights of the dense and the BM25 arm in the fusion."""
    rerank_top: int = 20
    """How many candidates a reranker sees."""

    def __post_init__(self) -> None:
        for name in ("k", "fetch_k", "rerank_top"):
            checked_whole(name, getattr(self, name))
        checked_choice("search_type", self.search_type, get_args(SearchType))
        checked_choice("backend", self.backend, get_args(SearchBackend))
        checked_range("min_weight", self.min_weight, 0, 1)
        checked_range("lambda_mult", self.lambda_mult, 0, 1)
        checked_positive("rrf_k", self.rrf_k)
        if self.score_threshold is not None:
            if self.search_type == "associative":
                raise ConfigError("score_threshold is for cosines: search_type='associative' has none")
            checked_range("score_threshold", self.score_threshold, -1, 1)
        arms = self.rrf_weights if isinstance(self.rrf_weights, (tuple, list)) else ()
        if len(arms) != 2 or not any(arms):
            raise ConfigError(f"rrf_weights={self.rrf_weights!r} must be two numbers, 0 or more, not both 0")
        for arm in arms:
            checked_range("rrf_weights", arm, 0, 1e6)


@dataclass(frozen=True, kw_only=True)
class AssociativeConfig:
    """Retrieval over conversations by several families of keys; all of it is ours [O], tuned on LoCoMo.

    Raises:
        ConfigError: A value is outside its range.
    """

    k: int = 10
    """How many memories are returned at most."""
    min_weight: float = 0.01
    """A memory below this weight is forgotten: it is not returned however large k is."""
    rrf_k: float = 20.0
    """Constant of reciprocal rank fusion; 60 measured 0.8 points worse."""
    speaker_bonus: float = 0.3
    """Added to the factor of a page whose speaker is the only one that the query names."""
    bridge_share: float = 0.3
    """What a page gets of the mean score of the pages that bridges link it with."""
    rerank_top: int = 20
    """How many candidates a reranker sees."""

    def __post_init__(self) -> None:
        for name in ("k", "rerank_top"):
            checked_whole(name, getattr(self, name))
        checked_range("min_weight", self.min_weight, 0, 1)
        checked_positive("rrf_k", self.rrf_k)
        checked_range("speaker_bonus", self.speaker_bonus, 0, 10)
        checked_range("bridge_share", self.bridge_share, 0, 1)
