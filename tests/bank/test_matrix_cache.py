"""The cached matrix is used only where it is whole and of this very state of the collection."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import BankRetriever, MemoryBank, RetrievalConfig
from shared_core.bank import matrix_cache as module
from shared_core.bank.chroma import ChromaContent
from shared_core.bank.matrix_cache import MatrixCache
from tests.conftest import OpenBank, fill

DIMENSION = 16


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cache banks of 10 memories already; tells of each reading of every embedding."""
    monkeypatch.setattr(module, "LEAST_ROWS", 10)
    told: list[str] = []
    read = ChromaContent.embeddings

    def embeddings(content: ChromaContent) -> Any:
        told.append("read")
        return read(content)

    monkeypatch.setattr(ChromaContent, "embeddings", embeddings)
    return told


def elsewhere(folder: Path, name: str, code: str) -> None:
    """Run code with ``collection`` and ``axis(i)`` in another process."""
    program = f"""
import chromadb, numpy as np
collection = chromadb.PersistentClient({str(folder)!r}).get_collection({name!r}, embedding_function=None)
axis = lambda i: np.eye({DIMENSION})[[i]]
{code}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def axis(i: int) -> np.ndarray:
    return np.eye(DIMENSION)[i]


def cached(bank: MemoryBank) -> Path:
    found = list((bank.content.database_file() or Path()).with_name(module.FOLDER).glob("*"))
    assert len(found) == 1, found
    return found[0]


def scanning(bank: MemoryBank) -> BankRetriever:
    return BankRetriever(bank, RetrievalConfig(backend="scan"))


@pytest.mark.parametrize("search_type", ["similarity", "hybrid"])
def test_a_second_opening_reads_nothing(
    bank: MemoryBank, rng: np.random.Generator, readings: list[str], search_type: Any
) -> None:
    matrix = fill(bank, rng, rows=60, dimension=DIMENSION)
    options: Any = {"k": 5, "query": "memory", "search_type": search_type}
    first = scanning(bank).search_by_vector(matrix[3], **options)
    assert readings == ["read"]
    second = scanning(bank).search_by_vector(matrix[3], **options)
    assert second == first
    assert search_type == "hybrid" or first[0].id == "m3"
    assert readings == ["read"]


def cut(data: bytes) -> bytes:
    return data[:-4]


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def claiming(data: bytes) -> bytes:
    return data.replace(b'"rows": 60', b'"rows": 30', 1)


@pytest.mark.parametrize(
    "damage", [cut, flipped, claiming, lambda _: b"", lambda _: b"\n", lambda _: b"[]\n"]
)
def test_a_damaged_file_is_as_good_as_none(
    bank: MemoryBank, rng: np.random.Generator, readings: list[str], damage: Callable[[bytes], bytes]
) -> None:
    matrix = fill(bank, rng, rows=60, dimension=DIMENSION)
    scanning(bank).search_by_vector(matrix[3], k=1)
    whole = cached(bank).read_bytes()
    cached(bank).write_bytes(damage(whole))
    hits = scanning(bank).search_by_vector(matrix[3], k=60)
    assert [hit.id for hit in hits[:1]] == ["m3"]
    assert len(readings) == 2
    assert cached(bank).read_bytes() == whole, "written anew"


@pytest.mark.parametrize(
    ("code", "best"),
    [
        ("collection.update(ids=['m7'], embeddings=axis(4))", "m7"),
        ("collection.add(ids=['x'], documents=['x'], embeddings=axis(4))", "x"),
        (
            "collection.delete(ids=['m7']); collection.add(ids=['m7'], embeddings=axis(4))",
            "m7",
        ),
    ],
)
def test_a_file_of_another_state_is_not_used(
    bank: MemoryBank,
    rng: np.random.Generator,
    readings: list[str],
    tmp_path: Path,
    name: str,
    code: str,
    best: str,
) -> None:
    fill(bank, rng, rows=60, dimension=DIMENSION)
    scanning(bank).search_by_vector(axis(4), k=1)
    elsewhere(tmp_path / "chroma", name, code)
    for _ in range(2):
        hit = scanning(bank).search_by_vector(axis(4), k=1)[0]
        assert (hit.id, hit.similarity) == (best, pytest.approx(1.0, abs=1e-5))
    assert len(readings) == 2


def test_who_only_opens_the_database_causes_no_reading(
    bank: MemoryBank, rng: np.random.Generator, readings: list[str], tmp_path: Path, name: str
) -> None:
    fill(bank, rng, rows=60, dimension=DIMENSION)
    retriever = scanning(bank)
    retriever.search_by_vector(axis(4), k=1)
    elsewhere(tmp_path / "chroma", name, "collection.count()")
    retriever.search_by_vector(axis(4), k=1)
    assert readings == ["read"]
    elsewhere(tmp_path / "chroma", name, "collection.update(ids=['m7'], embeddings=axis(4))")
    assert retriever.search_by_vector(axis(4), k=1)[0].id == "m7"
    bank.add(["x"], ids=["x"], embeddings=axis(5)[None])
    assert retriever.search_by_vector(axis(5), k=1)[0].id == "x"
    elsewhere(tmp_path / "chroma", name, "collection.update(ids=['m8'], embeddings=axis(6))")
    assert retriever.search_by_vector(axis(6), k=1)[0].id == "m8"


def test_where_the_last_write_cannot_be_told_nothing_is_cached(
    bank: MemoryBank, rng: np.random.Generator, readings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = fill(bank, rng, rows=60, dimension=DIMENSION)
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")  # type: ignore[attr-defined]
    for _ in range(2):
        assert scanning(bank).search_by_vector(matrix[3], k=1)[0].id == "m3"
    assert len(readings) == 2
    assert not (bank.content.database_file() or Path()).with_name(module.FOLDER).exists()


def test_a_folder_that_cannot_be_written_costs_time_only(
    bank: MemoryBank, rng: np.random.Generator, readings: list[str]
) -> None:
    matrix = fill(bank, rng, rows=60, dimension=DIMENSION)
    (bank.content.database_file() or Path()).with_name(module.FOLDER).write_text("a file")
    for _ in range(2):
        assert scanning(bank).search_by_vector(matrix[3], k=1)[0].id == "m3"
    assert len(readings) == 2


def test_small_banks_tenants_and_servers_are_not_cached(
    open_bank: OpenBank, rng: np.random.Generator, readings: list[str], chroma_server: str, tmp_path: Path
) -> None:
    bank = open_bank()
    fill(bank, rng, rows=60, dimension=DIMENSION)
    assert not MatrixCache(bank.content).covers(9)
    assert MatrixCache(bank.content).covers(10)
    assert not MatrixCache(open_bank(where={"user": "ada"}).content).covers(10)
    served = open_bank(chroma_server, state_url=f"sqlite:///{tmp_path / 's.sqlite3'}")
    fill(served, rng, rows=60, dimension=DIMENSION)
    assert MatrixCache(served.content).version() is None
    assert scanning(served).search_by_vector(axis(4), k=1)
    assert readings == ["read"]
