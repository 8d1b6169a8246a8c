"""``auto`` turns to an exact scan between two changes, and nobody sees the difference but in exactness."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from shared_core import BankRetriever, MemoryBank, RetrievalConfig
from shared_core.retrieval import beside, dense
from tests.conftest import OpenBank, fill, unit_rows


def let_settle(bank: MemoryBank) -> None:
    """Make the file look as if it had been written a while ago, as it does after two seconds."""
    file = bank.content.database_file()
    assert file is not None
    past = time.time() - 60.0
    os.utime(file, (past, past))


def search(retriever: BankRetriever, vector: np.ndarray, times: int = 1) -> str:
    for _ in range(times):
        found = retriever.search_by_vector(vector, k=1)[0].id
        reading = retriever._dense._beside._reading
        if reading is not None and reading._thread is not None:
            reading._thread.join()
    return found


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "PAGE", 25)
    monkeypatch.setattr(dense, "BESIDE_AFTER", 2)


@pytest.mark.usefixtures("pages")
def test_reads_pages_beside_searches_and_scans_then(bank: MemoryBank, rng: np.random.Generator) -> None:
    matrix = fill(bank, rng)
    let_settle(bank)
    retriever = BankRetriever(bank)
    held = []
    for row in range(6):
        assert search(retriever, matrix[row]) == f"m{row}"
        held.append(retriever._dense._at_hand)
    # from the second search on three pages, handed over by the next
    assert held == [False, False, False, False, True, True]
    asked = []
    bank.content.neighbours = lambda *a, **_: asked.append(a)  # type: ignore[method-assign, assignment]
    assert search(retriever, matrix[9]) == "m9"
    assert not asked


@pytest.mark.usefixtures("pages")
def test_a_change_ends_it_until_it_pays_again(
    bank: MemoryBank, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "ROWS_PER_SEARCH", 10)
    matrix = fill(bank, rng)
    let_settle(bank)
    retriever = BankRetriever(bank)
    search(retriever, matrix[0], 5)
    assert retriever._dense._at_hand
    other = unit_rows(rng, 2, 16)
    # an addition, and a rewriting beside it of which nobody tells
    collection = bank.content.collection
    collection.add(ids=["x"], documents=["new"], embeddings=other[:1].tolist())
    collection.update(ids=["m3"], documents=["other"], embeddings=other[1:].tolist())
    assert search(retriever, other[0]) == "x"
    assert search(retriever, other[1]) == "m3"
    assert not retriever._dense._at_hand
    assert retriever._dense._resident is None
    let_settle(bank)
    # the time of the file is a change that nobody can tell from another
    search(retriever, matrix[0], 5)
    assert retriever._dense._beside._reading is None
    search(retriever, matrix[0], 5)
    assert retriever._dense._at_hand
    assert [search(retriever, vector) for vector in other] == ["x", "m3"]
    collection.update(ids=["m4"], documents=["other"], embeddings=(-other[:1]).tolist())
    assert search(retriever, -other[0]) == "m4"
    assert not retriever._dense._at_hand


@pytest.mark.usefixtures("pages")
def test_what_is_written_between_two_pages_is_not_missed(bank: MemoryBank, rng: np.random.Generator) -> None:
    matrix = fill(bank, rng)
    let_settle(bank)
    retriever = BankRetriever(bank)
    search(retriever, matrix[0], 3)
    assert retriever._dense._beside._reading is not None
    new = unit_rows(rng, 1, 16)
    bank.content.collection.update(ids=["m1"], documents=["other"], embeddings=new.tolist())
    assert search(retriever, new[0], 9) == "m1"
    assert not retriever._dense._at_hand


@pytest.mark.usefixtures("pages")
def test_not_where_it_is_too_large_or_not_wanted(
    open_bank: OpenBank, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bank = open_bank()
    matrix = fill(bank, rng)
    let_settle(bank)
    retriever = BankRetriever(bank, RetrievalConfig(backend="index"))
    search(retriever, matrix[0], 8)
    assert retriever._dense._resident is None
    monkeypatch.setattr(beside, "HELD_AT_MOST", 60 * 16 * 4 - 1)
    retriever = BankRetriever(bank)
    assert search(retriever, matrix[0], 8) == "m0"
    assert not retriever._dense._at_hand
    in_memory = open_bank(":memory:", name=f"{name}-memory")
    matrix = fill(in_memory, rng)
    retriever = BankRetriever(in_memory)
    assert search(retriever, matrix[0], 8) == "m0"
    assert not retriever._dense._at_hand


@pytest.mark.usefixtures("pages")
def test_a_failed_reading_disturbs_no_search(
    bank: MemoryBank, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = fill(bank, rng)
    let_settle(bank)

    def fails(*_: object) -> None:
        raise OSError("the disk is busy")

    monkeypatch.setattr(bank.content, "embeddings_page", fails)
    retriever = BankRetriever(bank)
    assert search(retriever, matrix[7], 9) == "m7"
    assert not retriever._dense._at_hand
