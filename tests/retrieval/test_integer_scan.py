"""Integer copies stay within their bounds, and what is found through them is what a full scan finds."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from shared_core.bank.columns import Columns
from shared_core.dynamics.geometry import unit_rows
from shared_core.retrieval import vectors as module
from shared_core.retrieval.integer_scan import BLOCK, IntegerRows
from shared_core.retrieval.topk import top_k, weighted_scores
from shared_core.retrieval.vectors import ResidentVectors


def matrix_of(kind: str, rng: np.random.Generator, rows: int = 300, dimension: int = 33) -> np.ndarray:
    matrix = rng.standard_normal((rows, dimension))
    if kind == "one long axis":
        matrix[:, 0] *= 300
    if kind == "close together":
        matrix = matrix[:1] + 0.01 * matrix
    if kind == "sparse":
        matrix[rng.uniform(size=matrix.shape) < 0.9] = 0.0
    if kind == "copies":
        matrix = matrix[rng.integers(0, 7, rows)]
    return unit_rows(matrix.astype(np.float32))


KINDS = ["normal", "one long axis", "close together", "sparse", "copies"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [1, 33, 384, 3072])
def test_no_cosine_is_further_off_than_its_bound(rng: np.random.Generator, kind: str, dimension: int) -> None:
    matrix = matrix_of(kind, rng, dimension=dimension)
    copy = IntegerRows().extended(matrix[:100]).extended(matrix[100:])
    assert len(copy) == len(matrix)
    queries = unit_rows(np.concatenate([matrix[:5], rng.standard_normal((20, dimension)), -matrix[5:9]]))
    for query in [*queries.astype(float), np.zeros(dimension)]:
        near, error = copy.cosines(query)
        off = np.abs(near - matrix.astype(float) @ query)
        assert (off <= error).all()
        # bounds so wide that everything is compared would be of no use
        assert error.max() < (0.05 if kind == "normal" else 0.5)


def test_more_rows_than_one_block(rng: np.random.Generator) -> None:
    matrix = matrix_of("normal", rng, rows=BLOCK + 5, dimension=3)
    near, error = IntegerRows().extended(matrix).cosines(matrix[-1].astype(float))
    assert (np.abs(near - matrix @ matrix[-1]) <= error).all()
    assert near[-1] == pytest.approx(1.0, abs=0.05)


def columns_of(ids: list[str], weight: np.ndarray) -> Columns:
    given = [(i, w, 0.0, 1.0, 0.0, 0.0) for i, w in zip(ids, weight.tolist(), strict=True) if w < 1.0]
    return Columns().updated(1, given)


def weights_of(kind: str, similarity: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    rank = np.argsort(np.argsort(-similarity))
    return {
        "full": np.ones(len(rank)),
        "none": np.zeros(len(rank)),
        "uniform": rng.uniform(size=len(rank)),
        "nearest suppressed": np.where(rank < 0.9 * len(rank), 0.0, 1.0),
        "few left": np.where(rng.uniform(size=len(rank)) < 0.01, 0.5, 0.0),
        "ties": rng.choice([0.0, 0.5, 1.0], len(rank)),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_through_a_copy_are_the_best(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(module, "LEAST_COPIED", 1)
    monkeypatch.setattr(module, "SCANS_BEFORE_COPY", 1)
    ids = [f"m{i}" for i in range(300)]
    held = ResidentVectors()
    held.load(ids[:250], matrix_of(kind, rng)[:250])
    held.best(np.ones(33), Columns(), 1)
    held.add(dict(zip(ids[250:], matrix_of(kind, rng)[250:], strict=True)))
    matrix = held.matrix.astype(float)
    for query in [*rng.standard_normal((5, 33)), matrix[3], np.zeros(33)]:
        similarity = (matrix * unit_rows(query[None])[0]).sum(axis=1)
        for pattern in ("full", "none", "uniform", "nearest suppressed", "few left", "ties"):
            weight = weights_of(pattern, similarity, rng)
            columns = columns_of(ids, weight)
            for k, least, threshold in [(1, 0.0, None), (4, 0.01, None), (40, 0.3, 0.2), (1000, 0.0, 0.0)]:
                rows = top_k(similarity, weight, k, min_weight=least, threshold=threshold)
                found = held.best(query, columns, k, min_weight=least, threshold=threshold)
                assert found.keys == [ids[row] for row in rows], (pattern, k)
                np.testing.assert_allclose(found.similarity, similarity[rows], atol=1e-12)
                np.testing.assert_array_equal(found.weight, weight[rows])
                np.testing.assert_allclose(
                    found.score, weighted_scores(similarity[rows], weight[rows]), atol=1e-12
                )
    assert held.best(np.ones(33), Columns(), 3).fetched > 0


def test_a_copy_is_made_of_what_is_scanned_often_and_follows_changes(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_COPIED", 50)
    held = ResidentVectors()
    held.load([f"m{i}" for i in range(60)], matrix_of("normal", rng, rows=60))

    def scan(times: int) -> None:
        for _ in range(times):
            held.best(np.ones(33), Columns(), 2)

    scan(module.SCANS_BEFORE_COPY - 1)
    assert len(held._held.integers) == 0
    scan(1)
    assert len(held._held.integers) == 60
    held.add({"new": np.ones(33)})
    assert held.best(np.ones(33), Columns(), 1).keys == ["new"]
    assert len(held._held.integers) == 60
    held.add({f"n{i}": vector for i, vector in enumerate(matrix_of("normal", rng, rows=60))})
    scan(module.SCANS_BEFORE_COPY)
    assert len(held._held.integers) == 121
    held.remove(["new"])
    assert len(held._held.integers) == 0
    assert "new" not in held.best(np.ones(33), Columns(), 200).keys


def test_only_what_is_allowed_and_not_gone(rng: np.random.Generator) -> None:
    held = ResidentVectors()
    matrix = matrix_of("normal", rng, rows=20)
    held.load([f"m{i}" for i in range(20)], matrix)
    order = [f"m{i}" for i in np.argsort(-(matrix @ matrix[4]))]
    allowed = ["m1", "m4", "m9", "unknown"]
    found = held.best(matrix[4], Columns(), 9, allowed=allowed, gone=["m4", "never there"]).keys
    assert found == [i for i in order if i in ("m1", "m9")]
    assert ResidentVectors().best(matrix[4], Columns(), 9).keys == []


def test_scans_while_a_copy_is_made(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCANS_BEFORE_COPY", 3)
    matrix = matrix_of("normal", rng, rows=3000)
    held = ResidentVectors()
    held.load([f"m{i}" for i in range(3000)], matrix)
    wrong: list[int] = []

    def search(start: int) -> None:
        wrong.extend(
            row
            for row in range(start, start + 20)
            if held.best(matrix[row], Columns(), 1).keys != [f"m{row}"]
        )

    threads = [threading.Thread(target=search, args=(20 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(held._held.integers) == 3000
