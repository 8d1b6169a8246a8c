"""ResidentVectors and merge against plain numpy."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from shared_core.dynamics.geometry import unit_rows
from shared_core.retrieval.vectors import ResidentVectors, merge


def cosines(matrix: np.ndarray, query: np.ndarray) -> np.ndarray:
    return matrix @ query / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(query))


def held(rng: np.random.Generator, rows: int = 40, dimension: int = 8) -> tuple[ResidentVectors, np.ndarray]:
    matrix = rng.standard_normal((rows, dimension)) * rng.uniform(0.1, 9, (rows, 1))
    vectors = ResidentVectors()
    vectors.load([f"m{i}" for i in range(rows)], matrix)
    return vectors, matrix


@pytest.mark.parametrize("n", [1, 5, 40, 1000])
def test_nearest_is_the_order_of_cosines(rng: np.random.Generator, n: int) -> None:
    vectors, matrix = held(rng)
    query = rng.standard_normal(8) * 7
    ids, similarity = vectors.nearest(query, n)
    expected = np.argsort(-cosines(matrix, query))[:n]
    assert ids == [f"m{i}" for i in expected]
    np.testing.assert_allclose(similarity, cosines(matrix, query)[expected], atol=1e-6)
    assert similarity.dtype == np.float64


def test_nearest_among_allowed_ids(rng: np.random.Generator) -> None:
    vectors, matrix = held(rng)
    query = rng.standard_normal(8)
    ids, _ = vectors.nearest(query, 3, ["m7", "m3", "m30", "m9", "unknown"])
    rows = np.array([7, 3, 30, 9])
    assert ids == [f"m{i}" for i in rows[np.argsort(-cosines(matrix[rows], query))][:3]]
    assert vectors.nearest(query, 3, [])[0] == []


def test_add_replaces_and_remove_passes_over_unknown_ids(rng: np.random.Generator) -> None:
    vectors, _ = held(rng)
    query = rng.standard_normal(8)
    vectors.add({"m5": query, "new": -query})
    assert len(vectors) == 41
    ids, similarity = vectors.nearest(query, 41)
    assert (ids[0], ids[-1]) == ("m5", "new")
    np.testing.assert_allclose(similarity[[0, -1]], [1, -1], atol=1e-6)
    vectors.remove(["m5", "unknown"])
    assert "m5" not in vectors.nearest(query, 41)[0]
    vectors.add({})
    assert len(vectors) == 40


def test_empty_and_emptied(rng: np.random.Generator) -> None:
    vectors = ResidentVectors()
    assert vectors.nearest(np.ones(3), 5)[0] == []
    vectors.add({"a": np.ones(3)})
    vectors.remove(["a"])
    assert vectors.nearest(np.ones(3), 5)[0] == []
    vectors.add({"b": np.ones(4)})
    assert vectors.dimension == 4


def test_zero_vectors_resemble_nothing() -> None:
    vectors = ResidentVectors()
    vectors.add({"zero": np.zeros(3), "one": np.array([1.0, 0, 0])})
    assert vectors.nearest(np.array([1.0, 0, 0]), 2)[1].tolist() == [1.0, 0.0]
    assert vectors.nearest(np.zeros(3), 2)[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_norms_beyond_float32_squares(rng: np.random.Generator, scale: float) -> None:
    matrix = rng.standard_normal((5, 8))
    vectors = ResidentVectors()
    vectors.load(list("abcde"), matrix * scale)
    _, similarity = vectors.nearest(matrix[2] * scale, 1)
    np.testing.assert_allclose(similarity, [1.0], atol=1e-6)


def test_unit_rows_leaves_its_input_alone(rng: np.random.Generator) -> None:
    matrix = rng.standard_normal((4, 3)).astype(np.float32)
    before = matrix.copy()
    assert np.allclose(np.linalg.norm(unit_rows(matrix), axis=1), 1)
    assert np.array_equal(matrix, before)


def test_searches_while_another_thread_writes(rng: np.random.Generator) -> None:
    vectors, _ = held(rng, rows=400)
    query = rng.standard_normal(8)
    failures: list[Exception] = []
    done = threading.Event()

    def search() -> None:
        try:
            while not done.is_set():
                vectors.nearest(query, 300)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(200):
        vectors.remove([f"m{i}" for i in range(turn, turn + 50)])
        vectors.add({f"m{i}": query for i in range(turn, turn + 50)})
    done.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_merge_keeps_the_best_and_prefers_the_second_list() -> None:
    one = (["a", "b", "c"], np.array([0.9, 0.5, 0.1]))
    other = (["b", "d"], np.array([0.95, 0.3]))
    ids, similarity = merge(one, other, 3)
    assert ids == ["b", "a", "d"]
    assert similarity.tolist() == [0.95, 0.9, 0.3]
    assert merge(one, ([], np.empty(0)), 2)[0] == ["a", "b"]
    assert merge(([], np.empty(0)), other, 5)[0] == ["b", "d"]
