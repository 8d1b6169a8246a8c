"""BankRetriever against brute force, over every kind of collection, embedding, weight and filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shared_core import BankRetriever, ForgettingConfig, MemoryBank, RetrievalConfig
from shared_core.errors import ConfigError, DimensionMismatchError, InvalidMemoryError
from tests.conftest import OpenBank, fill, unit_rows

ROWS, DIMENSION = 150, 12
Weigh = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def cosines(matrix: np.ndarray, query: np.ndarray) -> np.ndarray:
    return matrix @ query / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(query))


def brute_force(similarity: np.ndarray, weight: np.ndarray, k: int, min_weight: float = 0.01) -> list[str]:
    score = weight * np.maximum(similarity, 0)
    order = np.lexsort((np.arange(len(score)), -similarity, -score))
    return [f"m{row}" for row in order if weight[row] >= min_weight][:k]


WEIGHTS: dict[str, Weigh] = {
    "all one": lambda sim, _: np.ones(len(sim)),
    "all zero": lambda sim, _: np.zeros(len(sim)),
    "nearest 90 suppressed": lambda sim, _: np.where(np.argsort(np.argsort(-sim)) < 90, 0.0, 1.0),
    "nearest 100 faint": lambda sim, _: np.where(np.argsort(np.argsort(-sim)) < 100, 0.02, 1.0),
    "geometric": lambda sim, _: 0.97 ** np.argsort(np.argsort(sim)),
    "ties": lambda sim, rng: rng.choice([0.0, 0.5, 1.0], len(sim)),
    "random": lambda sim, rng: rng.uniform(0, 1, len(sim)),
}


def embeddings(kind: str, rng: np.random.Generator) -> np.ndarray:
    matrix = unit_rows(rng, ROWS, DIMENSION)
    if kind == "scaled":
        return matrix * rng.uniform(0.2, 12, (ROWS, 1)).astype(np.float32)
    if kind == "few long":  # far from every query in l2, however similar: an index never shows them
        matrix[::40] *= 50
    return matrix


@pytest.mark.parametrize("backend", ["auto", "scan"])
@pytest.mark.parametrize("kind", ["unit", "scaled", "few long"])
@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_exact_under_adversarial_weights(
    open_bank: OpenBank, rng: np.random.Generator, space: str, kind: str, backend: Any
) -> None:
    bank = open_bank(":memory:", space=space)
    matrix = embeddings(kind, rng)
    bank.add(["text"] * ROWS, ids=[f"m{i}" for i in range(ROWS)], embeddings=matrix)
    retriever = BankRetriever(bank, RetrievalConfig(backend=backend))
    for weigh in WEIGHTS.values():
        query = rng.standard_normal(DIMENSION) * 3
        similarity = cosines(matrix.astype(float), query)
        weight = weigh(similarity, rng)
        bank.set_weights({f"m{i}": float(w) for i, w in enumerate(weight)})
        for k in (1, 4, 40, 1000):
            hits = retriever.search_by_vector(query, k=k)
            assert [hit.id for hit in hits] == brute_force(similarity, weight, k)
            for hit in hits:
                row = int(hit.id[1:])
                assert hit.similarity == pytest.approx(similarity[row], abs=1e-5)
                assert hit.weight == weight[row]
                assert hit.score == pytest.approx(weight[row] * max(0, similarity[row]), abs=1e-5)
                assert type(hit.score) is type(hit.similarity) is type(hit.weight) is float


@pytest.mark.parametrize("space", ["cosine", "l2"])
def test_the_index_alone_is_widened(open_bank: OpenBank, rng: np.random.Generator, space: str) -> None:
    bank = open_bank(":memory:", space=space)
    matrix = fill(bank, rng, 300, DIMENSION).astype(float)
    retriever = BankRetriever(bank, RetrievalConfig(backend="index"))
    query = matrix[3]
    weight = np.where(np.argsort(np.argsort(-(matrix @ query))) < 200, 0.0, 1.0)
    bank.set_weights({f"m{i}": float(w) for i, w in enumerate(weight)})
    found = [hit.id for hit in retriever.search_by_vector(query, k=5)]
    assert found == brute_force(matrix @ query, weight, 5)


def test_filters_and_tenants(open_bank: OpenBank, rng: np.random.Generator, name: str) -> None:
    whole = open_bank(name=name)
    matrix = unit_rows(rng, ROWS, DIMENSION)
    metadata = [{"user": "ada" if i % 3 else "bob", "year": 2000 + i % 7} for i in range(ROWS)]
    texts = ["apple" if i % 2 else "pear" for i in range(ROWS)]
    whole.add(texts, ids=[f"m{i}" for i in range(ROWS)], metadatas=metadata, embeddings=matrix)
    weight = rng.uniform(0, 1, ROWS)
    weight[::5] = 0
    whole.set_weights({f"m{i}": float(w) for i, w in enumerate(weight)})
    ada = open_bank(name=name, where={"user": "ada"}, create=False)
    rows = np.arange(ROWS)
    cases = [
        (whole, {"where": {"year": 2003}}, rows % 7 == 3),
        (whole, {"where_document": {"$contains": "apple"}}, rows % 2 == 1),
        (ada, {}, rows % 3 > 0),
        (ada, {"where": {"year": {"$gte": 2004}}}, (rows % 3 > 0) & (rows % 7 >= 4)),
        (
            ada,
            {"where": {"year": 2001}, "where_document": {"$contains": "pear"}},
            (rows % 3 > 0) & (rows % 7 == 1) & (rows % 2 == 0),
        ),
        (ada, {"where": {"user": "bob"}}, rows < 0),
    ]
    for backend in ("auto", "scan"):
        for bank, filters, allowed in cases:
            query = rng.standard_normal(DIMENSION)
            mine = cosines(matrix.astype(float), query)
            retriever = BankRetriever(bank, RetrievalConfig(backend=backend))  # type: ignore[arg-type]
            for k in (3, 500):
                found = [hit.id for hit in retriever.search_by_vector(query, k=k, **filters)]
                assert found == brute_force(mine, np.where(allowed, weight, 0), k), (backend, filters)


def test_deleted_and_forgotten_memories_never_appear(bank: MemoryBank, rng: np.random.Generator) -> None:
    matrix = fill(bank, rng)
    retriever = BankRetriever(bank)
    bank.delete(["m0"])
    bank.set_weights({"m1": 0.009, "m2": 0.011})
    for search_type in ("similarity", "mmr", "hybrid"):
        found = {
            hit.id
            for hit in retriever.search_by_vector(
                matrix[0], query="memory", k=60, fetch_k=60, search_type=search_type
            )
        }
        assert "m2" in found
        assert not found & {"m0", "m1"}
    assert len(retriever.search_by_vector(matrix[0], k=99, min_weight=0.0)) == 59
    bank.restore(["m0", "m1"])
    assert retriever.search_by_vector(matrix[0], k=1)[0].id == "m0"


def test_score_threshold(bank: MemoryBank, rng: np.random.Generator) -> None:
    matrix = fill(bank, rng).astype(float)
    bank.set_weights({"m0": 0.5})
    retriever = BankRetriever(bank)
    hits = retriever.search_by_vector(matrix[0], k=60, score_threshold=0.4)
    score = matrix @ matrix[0]
    score[0] *= 0.5
    assert {hit.id for hit in hits} == {f"m{i}" for i in np.flatnonzero(score >= 0.4)}
    assert retriever.search_by_vector(-matrix[0], k=60, score_threshold=0.99) == []


def test_degenerate_vectors(open_bank: OpenBank, rng: np.random.Generator) -> None:
    for space in ("cosine", "l2", "ip"):
        bank = open_bank(":memory:", name=f"zero-{space}", space=space)
        bank.add(
            ["zero", "one"], ids=["zero", "one"], embeddings=np.array([[0, 0, 0], [1, 0, 0]], np.float32)
        )
        retriever = BankRetriever(bank)
        assert [h.id for h in retriever.search_by_vector([2, 0, 0])] == ["one", "zero"]
        assert {h.id for h in retriever.search_by_vector([0, 0, 0])} == {"one", "zero"}
        with pytest.raises(DimensionMismatchError):
            retriever.search_by_vector([1, 0])
    for bad in ([np.nan, 0, 0], [np.inf, 0, 0], [[1, 0, 0]]):
        with pytest.raises(InvalidMemoryError, match="finite"):
            retriever.search_by_vector(bad)


def test_empty_bank_and_empty_query(bank: MemoryBank, rng: np.random.Generator) -> None:
    retriever = BankRetriever(bank)
    for search_type in ("similarity", "mmr", "hybrid"):
        assert retriever.search_by_vector([1, 0], query="x", search_type=search_type) == []
    assert retriever.search("   ") == []
    assert retriever.search_batch(["", "\n"]) == [[], []]
    fill(bank, rng)
    assert retriever.search_by_vector(rng.standard_normal(16), k=1000).__len__() == 60


def test_duplicate_texts_are_memories_of_their_own(bank: MemoryBank) -> None:
    bank.add(["same"] * 5, ids=list("abcde"), embeddings=np.ones((5, 3), np.float32))
    bank.set_weights({"a": 0.1, "b": 0.0})
    for search_type in ("similarity", "hybrid"):
        hits = BankRetriever(bank).search_by_vector([1, 1, 1], query="same", k=9, search_type=search_type)
        assert sorted(hit.id for hit in hits) == list("acde")
        assert hits[-1].id == "a"


def test_texts_of_any_kind(bank: MemoryBank, embedder: Any) -> None:
    texts = ["naïve café ☕", "日本語の記憶", "مرحبا", "word " * 200_000, "x" * 1_000_000, "plain"]
    bank.embedder = embedder
    bank.add(texts, ids=[str(i) for i in range(len(texts))])
    retriever = BankRetriever(bank)
    for search_type in ("similarity", "hybrid"):
        for row in (0, 1, 2, 5):
            assert retriever.search(texts[row], k=1, search_type=search_type)[0].id == str(row)
        assert retriever.search("word " * 200_000, k=1, search_type=search_type)[0].text == texts[3]
        assert len(retriever.search("lone \ud800 surrogate \x00", k=9, search_type=search_type)) == 6


async def test_async_and_batch_agree_with_sync(bank: MemoryBank, embedder: Any) -> None:
    bank.embedder = embedder
    bank.add([f"room {i}" for i in range(20)])
    retriever = BankRetriever(bank)
    queries = ["room 3", "", "room 11"]
    expected = [retriever.search(query, k=3) for query in queries]
    assert retriever.search_batch(queries, k=3) == expected
    assert await retriever.asearch_batch(queries, k=3) == expected
    assert await retriever.asearch("room 3", k=3) == expected[0]


def test_options_are_checked(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng)
    retriever = BankRetriever(bank)
    with pytest.raises(ConfigError, match=r"unknown search option fetchk; known: .*fetch_k.*rrf_k"):
        retriever.search_by_vector(np.ones(16), fetchk=3)
    for bad in ({"k": 0}, {"k": True}, {"search_type": "best"}, {"min_weight": 2}, {"backend": "scan"}):
        with pytest.raises(ConfigError):
            retriever.search_by_vector(np.ones(16), **bad)
    with pytest.raises(ConfigError, match="embedder"):
        retriever.search("no embedder")
    with pytest.raises(ConfigError):
        retriever.search_by_vector(np.ones(16), where={"n": {"$nonsense": 1}})


def test_access_is_counted_unless_told_not_to(bank: MemoryBank, rng: np.random.Generator) -> None:
    matrix = fill(bank, rng)
    BankRetriever(bank).search_by_vector(matrix[0], k=1)
    BankRetriever(bank, track_access=False).search_by_vector(matrix[0], k=1)
    assert bank.get(["m0"])[0].state.retrievals == 1


def test_senseless_arguments_are_refused_as_ours(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng)
    retriever = BankRetriever(bank)
    for bad in ("abc", [1, "a"], [1j] * 16, np.full(16, 1j), [], None, [[1], [1, 2]]):
        with pytest.raises(InvalidMemoryError, match=r"shape \(d,\)"):
            retriever.search_by_vector(bad)  # type: ignore[arg-type]
    for large in (1e300, 1e30):
        with pytest.raises(InvalidMemoryError, match="too large"):
            retriever.search_by_vector(np.full(16, large))
    for query in (None, 5):
        with pytest.raises(ConfigError, match="a query is text"):
            retriever.search(query)  # type: ignore[arg-type]
    for name in ("where", "where_document"):
        for value in ("x", 5, ["x"]):
            with pytest.raises(ConfigError, match=f"{name}=.*filter"):
                retriever.search_by_vector(np.ones(16), **{name: value})
    for arms in (None, 5, ("a", "b"), (float("nan"), 1.0), "ab", (0, 0), (-1, 2), (1,)):
        with pytest.raises(ConfigError, match="rrf_weights"):
            retriever.search_by_vector(np.ones(16), rrf_weights=arms)
    for terms in (None, 5, "geometric", (), [["geometric"]], ("geometric", "geometric")):
        with pytest.raises(ConfigError, match="terms"):
            ForgettingConfig(terms=terms)  # type: ignore[arg-type]
