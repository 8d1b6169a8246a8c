"""Hot records are served from memory, and never once anybody wrote to the collection."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from shared_core import BankRetriever, MemoryBank
from shared_core.bank import hot_records as module
from shared_core.bank.hot_records import HotRecords
from tests.conftest import METADATA_LISTS, OpenBank, fill, unit_rows


class Counting(HotRecords):
    """Hot records that tell how many were read from the collection."""

    def __init__(self, bank: MemoryBank) -> None:
        super().__init__(bank.content)
        self.read: list[str] = []
        read = bank.content.get

        def counted(ids: list[str]) -> object:
            self.read += ids
            return read(ids)

        bank.content.get = counted  # type: ignore[method-assign, assignment]

    def reads(self, *ids: str) -> list[str]:
        """Get ids and return which of them were read for it."""
        self.read.clear()
        self.get(list(ids))
        return list(self.read)


def let_settle(bank: MemoryBank) -> None:
    """Make the file look as if it had been written a while ago, as it does after two seconds."""
    file = bank.content.database_file()
    assert file is not None
    past = time.time() - 60.0
    os.utime(file, (past, past))


def rewrite(bank: MemoryBank, memory_id: str, text: str) -> None:
    """Write a text behind our back, with the embedding that is there."""
    kept = bank.content.get_embeddings([memory_id])[memory_id]
    bank.content.collection.update(ids=[memory_id], documents=[text], embeddings=[kept.tolist()])


@pytest.fixture
def hot(bank: MemoryBank, rng: np.random.Generator) -> Counting:
    fill(bank, rng, rows=10)
    let_settle(bank)
    return Counting(bank)


def test_each_is_read_once_and_is_what_is_stored(bank: MemoryBank, hot: Counting) -> None:
    assert hot.reads("m1", "m2") == ["m1", "m2"]
    assert hot.reads("m2", "m3", "unknown") == ["m3", "unknown"]
    assert hot.reads("m1", "m2", "m3") == []
    assert hot.get(["m3"]) == bank.content.get(["m3"])


def test_nothing_is_held_of_a_file_that_was_written_just_now(bank: MemoryBank, hot: Counting) -> None:
    rewrite(bank, "m1", "a text of now")
    for _ in range(2):
        assert hot.reads("m1") == ["m1"]
    let_settle(bank)
    assert hot.reads("m1") == ["m1"]
    assert hot.reads("m1") == []


def test_every_writing_of_this_process_is_seen(bank: MemoryBank, hot: Counting) -> None:
    collection = bank.content.collection
    hot.get(["m1", "m2"])
    rewrite(bank, "m1", "theirs")
    assert hot.get(["m1"])["m1"].text == "theirs"
    let_settle(bank)
    hot.get(["m1"])
    collection.update(ids=["m1"], metadatas=[{"kind": "other"}])
    assert hot.get(["m1"])["m1"].metadata["kind"] == "other"
    let_settle(bank)
    hot.get(["m1"])
    collection.delete(ids=["m1"])
    assert hot.get(["m1", "m2"]).keys() == {"m2"}


def test_another_process_rewrites(bank: MemoryBank, hot: Counting, tmp_path: Path, name: str) -> None:
    retriever = BankRetriever(bank)
    query = bank.content.get_embeddings(["m1"])["m1"]
    for _ in range(3):
        assert retriever.search_by_vector(query, k=1)[0].text != "theirs"
    code = (
        f"import chromadb; c = chromadb.PersistentClient({str(tmp_path / 'chroma')!r})\n"
        f"c.get_collection({name!r}, embedding_function=None)"
        f".update(ids=['m1'], documents=['theirs'], embeddings={[query.tolist()]})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert hot.get(["m1"])["m1"].text == "theirs"
    assert retriever.search_by_vector(query, k=1)[0].text == "theirs"
    let_settle(bank)
    # one that reads along, through an index that does not know of the other process
    for asked in (BankRetriever(bank), retriever):
        assert [asked.search_by_vector(query, k=1)[0].text for _ in range(3)] == ["theirs"] * 3


@pytest.mark.skipif(not METADATA_LISTS, reason="this Chroma takes no lists as metadata")
def test_what_the_caller_does_with_a_record_stays_with_the_caller(bank: MemoryBank, hot: Counting) -> None:
    bank.content.collection.update(ids=["m1"], metadatas=[{"tags": ["a"]}])
    let_settle(bank)
    for _ in range(3):
        metadata = dict(hot.get(["m1"])["m1"].metadata)
        assert metadata["tags"] == ["a"]
        hot.get(["m1"])["m1"].metadata["tags"].append("b")  # type: ignore[union-attr]
        hot.get(["m1"])["m1"].metadata["own"] = 1  # type: ignore[index]
        assert dict(hot.get(["m1"])["m1"].metadata) == metadata


def test_the_longest_unused_go_first(hot: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOT_CHARACTERS", 3 * (module.OVERHEAD + 20))
    hot.get(["m1", "m2", "m3"])
    hot.get(["m1"])
    assert hot.reads("m4") == ["m4"]
    assert hot.reads("m1", "m3") == []
    assert hot.reads("m2") == ["m2"]


def test_searches_that_read_along_serve_no_stale_text(bank: MemoryBank, rng: np.random.Generator) -> None:
    matrix = fill(bank, rng, rows=60)
    retriever = BankRetriever(bank)
    for turn in range(4):
        let_settle(bank)
        for row in range(3):
            assert retriever.search_by_vector(matrix[row], k=1)[0].text == bank.get([f"m{row}"])[0].text
        rewrite(bank, "m0", f"text {turn}")
        assert retriever.search_by_vector(matrix[0], k=1)[0].text == f"text {turn}"


def test_what_is_asked_for_again_and_again_is_read_ahead(
    bank: MemoryBank, hot: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_AHEAD", 4)
    monkeypatch.setattr(module, "AHEAD_AFTER", 2)

    def asked(memory_id: str) -> list[str]:
        read = hot.reads(memory_id)
        if hot._reading_ahead is not None:
            hot._reading_ahead.join()
        return read

    assert asked("m8") == ["m8"]
    assert hot._reading_ahead is None
    assert asked("m9") == ["m9"]
    assert [asked(f"m{i}") for i in range(4)] == [[]] * 4
    assert asked("m5") == ["m5"]
    assert [asked(f"m{i}") for i in range(10)] == [[]] * 8 + [[], []]
    assert hot.get(["m6"]) == bank.content.get(["m6"])
    rewrite(bank, "m6", "another text")
    assert hot.get(["m6"])["m6"].text == "another text"
    let_settle(bank)
    assert [asked(f"m{i}") for i in range(3)] == [["m0"], ["m1"], []]
    assert asked("m6") == ["m6"]
    assert hot.get(["m6"])["m6"].text == "another text"


def test_reading_ahead_ends_where_there_is_no_room(hot: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AHEAD_AFTER", 1)
    monkeypatch.setattr(module, "HOT_CHARACTERS", 5 * (module.OVERHEAD + 20))
    hot.get(["m9"])
    assert hot._reading_ahead is not None
    hot._reading_ahead.join()
    assert hot.reads("m9", "m0", "m1") == []
    assert hot.reads("m8") == ["m8"]
    assert not hot._more_ahead


def test_a_failed_reading_ahead_disturbs_no_search(
    bank: MemoryBank, hot: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AHEAD_AFTER", 1)

    def fails(*_: object) -> None:
        raise OSError("the disk is busy")

    monkeypatch.setattr(bank.content, "page", fails)
    assert hot.get(["m9"]).keys() == {"m9"}
    assert hot._reading_ahead is not None
    hot._reading_ahead.join()
    assert not hot._more_ahead
    assert hot.get(["m8"]).keys() == {"m8"}


def test_without_a_file_everything_is_read(
    open_bank: OpenBank, chroma_server: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    for location in (":memory:", chroma_server):
        bank = open_bank(location, state_url=f"sqlite:///{tmp_path / 'state.sqlite3'}")
        fill(bank, rng, rows=3)
        hot = Counting(bank)
        for _ in range(2):
            assert hot.reads("m1") == ["m1"]
        assert not hot.mostly_cold


def test_a_tenant_is_served_its_own_only(open_bank: OpenBank, rng: np.random.Generator) -> None:
    ada = open_bank(where={"user": "ada"})
    ada.add(["hers"], ids=["a"], embeddings=unit_rows(rng, 1, 16))
    ada.content.collection.add(ids=["b"], documents=["his"], embeddings=unit_rows(rng, 1, 16))
    let_settle(ada)
    hot = HotRecords(ada.content)
    for _ in range(2):
        assert hot.get(["a", "b"]).keys() == {"a"}
