"""A sweep reads from Chroma only what was written since the cache, and computes what it would without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import BankRetriever, ForgettingConfig, MemoryBank, RetrievalConfig
from shared_core.bank import matrix_cache as module
from shared_core.bank.chroma import ChromaContent
from shared_core.bank.matrix_cache import MatrixCache
from shared_core.bank.matrix_file import RowMarks, marks_of
from shared_core.bank.stored_vectors import read_vectors
from shared_core.dynamics.running_moments import Moments
from tests.bank.test_matrix_cache import DIMENSION, cached, cut, elsewhere, flipped
from tests.conftest import OpenBank, unit_rows

ROWS = 60
SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5)
SIGMA = ForgettingConfig(eta=0.3, noise_ratio=None, sigma=0.1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cache banks of 10 memories already; tells how many embeddings were read each time, -1 for all."""
    monkeypatch.setattr(module, "LEAST_ROWS", 10)
    told: list[int] = []
    read_all, read_some = ChromaContent.embeddings, ChromaContent.get_embeddings

    def every(content: ChromaContent) -> Any:
        told.append(-1)
        return read_all(content)

    def some(content: ChromaContent, ids: Any) -> Any:
        told.append(len(ids))
        return read_some(content, ids)

    monkeypatch.setattr(ChromaContent, "embeddings", every)
    monkeypatch.setattr(ChromaContent, "get_embeddings", some)
    return told


@pytest.fixture
def long_bank(open_bank: OpenBank, rng: np.random.Generator, reads: list[int]) -> MemoryBank:
    """A bank whose embeddings differ in length."""
    bank = open_bank(space="l2")
    matrix = unit_rows(rng, ROWS, DIMENSION) * rng.uniform(0.5, 20, (ROWS, 1))
    bank.add([f"memory {i}" for i in range(ROWS)], ids=[f"m{i}" for i in range(ROWS)], embeddings=matrix)
    return bank


def swept(bank: MemoryBank, config: ForgettingConfig = SWEEP) -> dict[str, Any]:
    report = bank.sweep(config, dry_run=True)
    return {
        "ids": report.ids,
        "skipped": report.skipped,
        "activation": report.activation.tolist(),
        "suspects": [(s.id, s.weight, s.abnormal) for s in report.suspects],
    }


def swept_without_cache(bank: MemoryBank, config: ForgettingConfig = SWEEP) -> dict[str, Any]:
    cached(bank).unlink()
    return swept(bank, config)


@pytest.mark.parametrize("config", [SWEEP, SIGMA, ForgettingConfig(noise="anisotropic", noise_ratio=0.5)])
def test_a_second_sweep_reads_nothing_and_computes_the_same(
    long_bank: MemoryBank, reads: list[int], config: ForgettingConfig
) -> None:
    first = swept(long_bank, config)
    assert reads == [-1]
    assert swept(long_bank, config) == first
    assert reads == [-1]
    assert swept_without_cache(long_bank, config) == first


@pytest.mark.parametrize("config", [SWEEP, SIGMA])
def test_what_is_cached_gives_the_sweep_of_what_is_stored(
    long_bank: MemoryBank, reads: list[int], monkeypatch: pytest.MonkeyPatch, config: ForgettingConfig
) -> None:
    cached_sweep = long_bank.sweep(config, dry_run=True)
    monkeypatch.setattr(module, "LEAST_ROWS", ROWS + 1)
    stored = long_bank.sweep(config, dry_run=True)
    np.testing.assert_allclose(cached_sweep.activation, stored.activation, atol=1e-5)
    assert [s.id for s in cached_sweep.suspects] == [s.id for s in stored.suspects]


def test_only_what_was_added_is_read(
    long_bank: MemoryBank, reads: list[int], rng: np.random.Generator
) -> None:
    swept(long_bank)
    long_bank.add(["x", "y"], ids=["x", "y"], embeddings=3 * unit_rows(rng, 2, DIMENSION))
    reads.clear()
    after = swept(long_bank)
    assert reads == [2]
    assert after["ids"][-2:] == ["x", "y"]
    assert swept(long_bank) == after
    assert reads == [2]
    assert swept_without_cache(long_bank) == after
    assert reads == [2, -1]


REWRITE = "collection.update(ids=['m7'], embeddings=5 * axis(4))"
READD = "collection.delete(ids=['m7']); collection.add(ids=['m7'], embeddings=5 * axis(4))"
REMOVE = "collection.delete(ids=['m7', 'm0'])"
ALL = f"{REMOVE}; collection.add(ids=['x'], embeddings=axis(4)); {REWRITE.replace('m7', 'm8')}"


@pytest.mark.parametrize(
    ("code", "read"), [(REWRITE, [1]), (READD, [1]), (REMOVE, []), (ALL, [2])], ids="abcd"
)
def test_what_others_wrote_is_taken_up(
    long_bank: MemoryBank, reads: list[int], tmp_path: Path, name: str, code: str, read: list[int]
) -> None:
    before = swept(long_bank)
    reads.clear()
    elsewhere(tmp_path / "chroma", name, code)
    after = swept(long_bank)
    assert reads == read
    assert after != before
    assert after["ids"] == long_bank.ids()
    assert swept_without_cache(long_bank) == after
    vectors = read_vectors(long_bank.content)
    fresh = Moments.of(vectors.rows)
    assert vectors.moments is not None
    np.testing.assert_allclose(vectors.moments.mean, fresh.mean, atol=1e-12)
    np.testing.assert_allclose(vectors.moments.scatter, fresh.scatter, rtol=1e-9)


def test_rows_beyond_a_quarter_are_read_with_the_whole(
    long_bank: MemoryBank, reads: list[int], rng: np.random.Generator
) -> None:
    swept(long_bank)
    reads.clear()
    long_bank.add([f"n{i}" for i in range(40)], embeddings=unit_rows(rng, 40, DIMENSION))
    reads.clear()
    swept(long_bank)
    assert reads == [-1]


@pytest.mark.parametrize(
    "damage", [cut, flipped, lambda data: data.replace(b'"directed": 60', b'"directed": 59')]
)
def test_a_damaged_file_is_as_good_as_none(
    long_bank: MemoryBank, reads: list[int], rng: np.random.Generator, damage: Callable[[bytes], bytes]
) -> None:
    first = swept(long_bank)
    whole = cached(long_bank).read_bytes()
    assert damage(whole) != whole
    cached(long_bank).write_bytes(damage(whole))
    assert swept(long_bank) == first
    assert reads == [-1, -1]
    cached(long_bank).write_bytes(damage(whole))
    long_bank.add(["x"], ids=["x"], embeddings=unit_rows(rng, 1, DIMENSION))
    reads.clear()
    swept(long_bank)
    assert reads == [-1]


def test_a_database_put_back_from_a_copy_is_read_where_it_differs(
    long_bank: MemoryBank, reads: list[int]
) -> None:
    """The numbers of writes come again then; what was created at another time is told apart."""
    swept(long_bank)
    cache = MatrixCache(long_bank.content)
    held = cache._read()
    assert held is not None
    _, written = cache._ask(rows=True)
    assert written is not None
    marks = written.marks.copy()
    marks[written.ids.index("m3"), 2] += 1
    found = cache._extended(held, long_bank.ids(), RowMarks(written.ids, marks))
    assert found is not None
    assert reads == [-1, 1]


def test_marks_are_found_by_id_whatever_the_order() -> None:
    written = RowMarks.read(["a", "b", "c"], np.arange(9).tobytes())
    assert marks_of(["a", "b", "c"], written).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert marks_of(["c", "new", "a"], written).tolist() == [[6, 7, 8], [-1, -1, -1], [0, 1, 2]]
    assert marks_of(["a", "b"], RowMarks()).tolist() == [[-1, -1, -1]] * 2
    with pytest.raises(ValueError, match="reshape"):
        RowMarks.read(["a", "b"], np.arange(3).tobytes())


def test_memories_that_take_no_part_leave_the_moments(
    long_bank: MemoryBank, reads: list[int], rng: np.random.Generator
) -> None:
    long_bank.content.collection.add(ids=["zero", "huge"], embeddings=np.eye(DIMENSION)[:2] * [[0.0], [1e18]])
    long_bank.delete(["m5", "m6"])
    report = swept(long_bank)
    assert (report["skipped"], len(report["ids"])) == (4, ROWS - 2)
    vectors = read_vectors(long_bank.content)
    part = vectors.only(np.array([i in report["ids"] for i in vectors.ids]))
    assert part.moments is not None
    np.testing.assert_allclose(part.moments.mean, part.rows.mean(axis=0, dtype=float), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(part.as_stored(), axis=1), part.norms, rtol=1e-6)


def test_the_retrievers_cache_serves_the_sweep_and_the_other_way_round(
    long_bank: MemoryBank, reads: list[int]
) -> None:
    retriever = BankRetriever(long_bank, RetrievalConfig(backend="scan"))
    first = retriever.search_by_vector(np.eye(DIMENSION)[0], k=3)
    assert reads.count(-1) == 1
    one = swept(long_bank, SIGMA)
    assert reads.count(-1) == 1
    assert swept_without_cache(long_bank, SIGMA) == one
    again = BankRetriever(long_bank, RetrievalConfig(backend="scan"))
    assert again.search_by_vector(np.eye(DIMENSION)[0], k=3) == first
    assert reads.count(-1) == 2


def test_small_banks_are_read_as_they_are_stored(
    long_bank: MemoryBank, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_ROWS", ROWS + 1)
    vectors = read_vectors(long_bank.content)
    assert vectors.norms is None
    np.testing.assert_array_equal(vectors.as_stored(), long_bank.content.embeddings()[1])
    assert vectors.directed.all()
