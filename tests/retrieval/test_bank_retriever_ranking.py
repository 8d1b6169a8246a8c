"""Hybrid fusion, reranking and diversity through BankRetriever, against their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shared_core import BankRetriever, MemoryBank, RetrievalConfig
from shared_core.errors import ConfigError
from shared_core.retrieval import Bm25Index, mmr
from tests.conftest import fill, unit_rows

ROWS = 200
WORDS = ["apple", "pear", "plum", "fig", "kiwi", "lime", "date", "sloe"]


@pytest.fixture
def filled(
    bank: MemoryBank, rng: np.random.Generator
) -> tuple[MemoryBank, np.ndarray, list[str], np.ndarray]:
    matrix = unit_rows(rng, ROWS, 12)
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(ROWS)]
    weight = rng.choice([0.0, 0.005, 0.3, 1.0], ROWS, p=[0.1, 0.1, 0.3, 0.5])
    bank.add(texts, ids=ids(range(ROWS)), metadatas=[{"even": i % 2 == 0} for i in range(ROWS)],
             embeddings=matrix)  # fmt: skip
    bank.set_weights(dict(zip(ids(range(ROWS)), weight.tolist(), strict=True)))
    return bank, matrix.astype(float), texts, weight


def ids(rows: Sequence[int] | np.ndarray | range) -> list[str]:
    return [f"m{row:03}" for row in rows]


def literal_rrf(
    cosine: np.ndarray, words: list[str], weight: np.ndarray, rows: np.ndarray, arms: tuple[float, float]
) -> list[str]:
    """Design section 2, word by word: ranks among the rows that pass the filter, all of them ranked."""
    dense = ids(rows[np.argsort(-cosine[rows], kind="stable")])
    allowed = set(dense)
    lexical = [key for key in words if key in allowed]
    scored = []
    for key in dense:
        w = weight[int(key[1:])]
        fused = arms[0] / (60 + dense.index(key) + 1)
        if key in lexical:
            fused += arms[1] / (60 + lexical.index(key) + 1)
        if w >= 0.01 and fused > 0:
            scored.append((-fused * w, -fused, dense.index(key), key))
    return [key for *_, key in sorted(scored)]


@pytest.mark.parametrize("arms", [(1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.2, 3.0)])
@pytest.mark.parametrize("filtered", [False, True])
def test_hybrid_is_weighted_rrf(
    filled: Any, rng: np.random.Generator, arms: tuple[float, float], filtered: bool
) -> None:
    bank, matrix, texts, weight = filled
    keywords = Bm25Index()
    keywords.add(ids(range(ROWS)), texts)
    retriever = BankRetriever(bank, RetrievalConfig(search_type="hybrid", rrf_weights=arms))
    rows = np.arange(0, ROWS, 2) if filtered else np.arange(ROWS)
    for text in ("kiwi apple", "sloe", "banana"):
        query = rng.standard_normal(12)
        words = keywords.search(text, ROWS)[0]
        expected = literal_rrf(matrix @ query, words, weight, rows, arms)
        for k in (1, 7, 30, 1000):
            hits = retriever.search_by_vector(
                query, query=text, k=k, where={"even": True} if filtered else None
            )
            assert [hit.id for hit in hits] == expected[:k]
        for hit in hits:
            row = int(hit.id[1:])
            assert hit.similarity == pytest.approx(matrix[row] @ query / np.linalg.norm(query), abs=1e-5)
            assert hit.weight == weight[row]


def test_hybrid_threshold_is_on_weighted_cosine(filled: Any, rng: np.random.Generator) -> None:
    bank, matrix, _, weight = filled
    query = rng.standard_normal(12)
    score = weight * np.maximum(matrix @ query / np.linalg.norm(query), 0)
    hits = BankRetriever(bank).search_by_vector(
        query, query="fig", k=ROWS, search_type="hybrid", score_threshold=0.2
    )
    assert {hit.id for hit in hits} == set(ids(np.flatnonzero(score >= 0.2)))


class LengthReranker:
    """Likes long texts; remembers how many it saw."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def score(self, query: str, texts: Sequence[str]) -> np.ndarray:
        self.seen.append(len(texts))
        return np.array([len(text) for text in texts]) / 100


@pytest.mark.parametrize("search_type", ["similarity", "hybrid", "mmr"])
def test_a_reranker_is_weighted_and_revives_nobody(
    filled: Any, rng: np.random.Generator, search_type: Any
) -> None:
    bank, _, texts, weight = filled
    reranker = LengthReranker()
    retriever = BankRetriever(bank, reranker=reranker)
    options = {"search_type": search_type, "fetch_k": 50, "rerank_top": 50}
    hits = retriever.search_by_vector(rng.standard_normal(12), query="fig", k=10, **options)
    assert reranker.seen == [50]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        row = int(hit.id[1:])
        assert weight[row] >= 0.01
        assert hit.score == pytest.approx(weight[row] * len(texts[row]) / 100)
    # without a text there is nothing to rerank by
    assert retriever.search_by_vector(rng.standard_normal(12), k=3)
    assert reranker.seen == [50]


def test_a_reranker_out_of_range_is_refused(filled: Any, rng: np.random.Generator) -> None:
    class Logits:
        def score(self, query: str, texts: Sequence[str]) -> np.ndarray:
            return np.full(len(texts), 7.5)

    with pytest.raises(ConfigError, match="sigmoid"):
        BankRetriever(filled[0], reranker=Logits()).search_by_vector(rng.standard_normal(12), query="fig")


@pytest.mark.parametrize("lambda_mult", [0.0, 0.5, 1.0])
def test_mmr_picks_from_the_best_candidates(
    filled: Any, rng: np.random.Generator, lambda_mult: float
) -> None:
    bank, matrix, _, weight = filled
    query = rng.standard_normal(12)
    query /= np.linalg.norm(query)
    score = np.where(weight >= 0.01, weight * np.maximum(matrix @ query, 0), -1)
    rows = np.argsort(-score)[:20]
    chosen = rows[mmr(score[rows], matrix[rows], 6, lambda_mult)]
    hits = BankRetriever(bank).search_by_vector(query, k=6, search_type="mmr", lambda_mult=lambda_mult)
    assert [hit.id for hit in hits] == ids(chosen)


def test_mmr_with_k_above_fetch_k(filled: Any, rng: np.random.Generator) -> None:
    hits = BankRetriever(filled[0]).search_by_vector(
        rng.standard_normal(12), k=30, search_type="mmr", fetch_k=5
    )
    assert len(hits) == 30


def test_mmr_leaves_out_what_has_no_direction(
    bank: MemoryBank, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = fill(bank, rng)
    content, stored = bank.content, bank.content.get_embeddings

    def broken(ids: Sequence[str]) -> Any:
        spoilt = {"m0": np.full(16, np.nan), "m1": np.zeros(16), "m2": np.full(16, np.inf)}
        return {**stored(ids), **{key: value for key, value in spoilt.items() if key in ids}}

    monkeypatch.setattr(content, "get_embeddings", broken)
    hits = BankRetriever(bank).search_by_vector(matrix[0], k=60, search_type="mmr", fetch_k=60)
    assert len(hits) == 57
    assert not {hit.id for hit in hits} & {"m0", "m1", "m2"}
