"""The whole life of a memory, over every place a collection can be and both state databases."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import BankRetriever, ForgettingConfig, MemoryBank
from shared_core.bank import location as location_module
from shared_core.bank.chroma import ChromaContent
from shared_core.errors import (
    BankClosedError,
    BankNotFoundError,
    BankUnreachableError,
    InvalidMemoryError,
    JournalError,
    StateError,
)
from tests.conftest import OpenBank, fill, metadata_list, unit_rows


def test_the_life_of_a_memory(
    open_bank: OpenBank, location: str, state_url: str, rng: np.random.Generator
) -> None:
    bank = open_bank(location, state_url=state_url)
    vectors = unit_rows(rng, 4, 8)
    assert bank.add([], ids=[]) == []
    ids = bank.add(["a", "b", "c"], metadatas=[{"n": 1}, {}, {"n": 3}], embeddings=vectors[:3])
    assert bank.ids() == ids
    assert len(bank) == 3
    assert [m.text for m in bank.get(ids[::-1])] == ["c", "b", "a"]
    assert [m.id for m in bank.page(1, 1)] == [ids[1]]
    assert [m.id for m in bank] == ids
    assert bank.weights(ids).tolist() == [1, 1, 1]

    rewritten = bank.update(ids[0], "A", metadata={"m": metadata_list(1, 2)}, embedding=vectors[3])
    assert (bank.get([ids[0]])[0].text, bank.get([ids[0]])[0].metadata) == ("A", {"m": metadata_list(1, 2)})
    bank.set_weights({ids[1]: 0.25})
    bank.delete([ids[2]])
    bank.state.record_access([ids[0], ids[0]])
    assert bank.weights(ids).tolist() == [1, 0.25, 0]
    bank.feedback(ids[:2], [0.9, 0.1], 0.5)
    report = bank.sweep(ForgettingConfig())
    assert (report.memories, report.skipped) == (2, 1)
    bank.close()

    again = open_bank(location, state_url=state_url, create=False)
    assert again.get(ids)[0].state.retrievals == 2
    assert [run.kind for run in again.runs()][::-1] == [
        "add", "update", "reweight", "delete", "feedback", "sweep",
    ]  # fmt: skip
    assert again.status().deleted == 1
    again.undo(str(report.run_id))
    assert again.weights(ids).tolist() == [1, 0.25, 0]
    again.restore(ids)
    assert again.weights(ids).tolist() == [1, 1, 1]
    again.undo(rewritten.run_id)
    first = again.get([ids[0]])[0]
    assert (first.text, first.metadata) == ("a", {"n": 1})
    assert np.allclose(again.content.get_embeddings([ids[0]])[ids[0]], vectors[0])


@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_every_space_sweeps_alike(open_bank: OpenBank, rng: np.random.Generator, space: str) -> None:
    bank = open_bank(space=space)
    assert bank.content.space == space
    vectors = 7.0 * unit_rows(rng, 50, 16)
    bank.add([f"t{i}" for i in range(50)], embeddings=vectors)
    cosine = open_bank(name=bank.content.name + "-c")
    cosine.add([f"t{i}" for i in range(50)], embeddings=vectors / 7.0)
    reports = bank.sweep(ForgettingConfig()), cosine.sweep(ForgettingConfig())
    assert np.allclose(*(report.activation for report in reports), atol=1e-4)


def test_of_threads_adding_one_id_exactly_one_succeeds(bank: MemoryBank) -> None:
    outcomes: list[str] = []

    def add(i: int) -> None:
        try:
            bank.add([f"text {i}"], ids=["same"], embeddings=np.eye(4)[[i % 4]])
            outcomes.append(f"text {i}")
        except InvalidMemoryError:
            outcomes.append("refused")

    threads = [threading.Thread(target=add, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("refused") == 7
    assert bank.get(["same"])[0].text in outcomes


def test_of_two_banks_adding_one_id_exactly_one_succeeds(
    open_bank: OpenBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    banks = [open_bank(), open_bank()]
    existing = ChromaContent.existing

    def slowly(content: ChromaContent, ids: list[str]) -> list[str]:
        found = existing(content, ids)
        time.sleep(0.2)
        return found

    monkeypatch.setattr(ChromaContent, "existing", slowly)
    outcomes: list[str] = []

    def add(i: int) -> None:
        try:
            banks[i].add([f"text {i}"], ids=["same"], embeddings=np.eye(4)[[i]])
            outcomes.append(f"text {i}")
        except InvalidMemoryError:
            outcomes.append("refused")

    threads = [threading.Thread(target=add, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("refused") == 1
    assert banks[0].get(["same"])[0].text in outcomes


class Slow:
    """An embedder during which another update comes in."""

    def __init__(self, meanwhile: Callable[[], Any]) -> None:
        self.meanwhile: Callable[[], Any] | None = meanwhile

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return [[float(len(text)), *[1.0] * 15] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [1.0] * 16


def test_concurrent_updates_of_text_and_metadata_both_survive(
    open_bank: OpenBank, rng: np.random.Generator
) -> None:
    bank, other = open_bank(), open_bank()
    fill(bank, rng, rows=3)
    runs = []
    bank.embedder = Slow(lambda: runs.append(other.update("m1", metadata={"k": 1})))
    runs.append(bank.update("m1", "new text"))
    memory = bank.get(["m1"])[0]
    assert (memory.text, memory.metadata) == ("new text", {"k": 1})
    with pytest.raises(JournalError, match=f"newest first: {runs[1].run_id}"):
        bank.undo(runs[0].run_id)
    bank.undo(runs[1].run_id)
    memory = bank.get(["m1"])[0]
    assert (memory.text, memory.metadata) == ("memory 1", {"k": 1})
    bank.undo(runs[0].run_id)
    assert bank.get(["m1"])[0].metadata == {}


def test_a_text_that_another_changed_meanwhile_is_embedded(
    open_bank: OpenBank, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, other = open_bank(), open_bank()
    fill(bank, rng, rows=3)
    bank.embedder = Slow(lambda: None)
    update = bank._writer.update

    def late(*arguments: Any) -> Any:
        other.update("m1", "theirs", embedding=np.ones(16))
        return update(*arguments)

    monkeypatch.setattr(bank._writer, "update", late)
    bank.update("m1", "memory 1")
    assert bank.get(["m1"])[0].text == "memory 1"
    stored = bank.content.get_embeddings(["m1"])["m1"]
    assert stored[0] / stored[1] == pytest.approx(8.0), "its own embedding, not that of the other's text"


@pytest.mark.parametrize("folder", ["who?", "50%25", "a#b", "sp ace&x=1", "é"])
def test_the_state_file_lies_beside_any_directory_name(tmp_path: Path, folder: str, name: str) -> None:
    with MemoryBank.open(tmp_path / folder, name, create=True) as bank:
        bank.add(["a"], ids=["a"], embeddings=np.eye(4)[:1])
    assert (tmp_path / folder / "dream_state.sqlite3").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_in_memory_state_lies_in_any_temporary_directory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t?x%2f").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t?x%2f"))
    location_module._memory_state_folder.cache_clear()
    try:
        with MemoryBank.open(":memory:", name, create=True) as bank:
            assert Path(str(bank.state.engine.url.database)).is_file()
    finally:
        location_module._memory_state_folder.cache_clear()


def test_an_id_that_others_removed_starts_afresh(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=3)
    bank.set_weights({"m0": 0.1})
    bank.content.collection.delete(ids=["m0"])
    assert bank.status().orphans == 1
    bank.add(["new"], ids=["m0"], embeddings=unit_rows(rng, 1, 16))
    assert bank.weights(["m0"]).tolist() == [1]
    bank.undo(bank.runs(1)[0].run_id)
    state = bank.get(["m0"])[0].state
    assert (state.weight, state.deleted) == (0.1, True)


def test_nothing_is_created_where_nothing_is(tmp_path: Path, chroma_server: str) -> None:
    with pytest.raises(BankNotFoundError, match="not the directory of a Chroma database"):
        MemoryBank.open(tmp_path / "absent", "x")
    assert not (tmp_path / "absent").exists()
    with pytest.raises(BankUnreachableError, match=r"no Chroma server answers at http://127.0.0.1:9"):
        MemoryBank.open("http://127.0.0.1:9", "x")
    with pytest.raises(BankNotFoundError, match="no collection 'xyz' in http"):
        MemoryBank.open(chroma_server, "xyz")
    (tmp_path / "file").write_text("not a directory")
    for create in (True, False):
        with pytest.raises(BankNotFoundError, match="directory"):
            MemoryBank.open(tmp_path / "file", "xyz", create=create)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "chroma.sqlite3").write_bytes(b"garbage" * 1000)
    with pytest.raises(BankNotFoundError, match="cannot open the Chroma database"):
        MemoryBank.open(broken, "xyz")


def test_an_existing_database_names_its_collections(bank: MemoryBank, tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError, match=f"collections there: {bank.content.name}"):
        MemoryBank.open(tmp_path / "chroma", "absent")


def test_a_server_needs_a_place_for_the_state(
    chroma_server: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_bank: OpenBank
) -> None:
    with pytest.raises(StateError, match=r"pass state_url='sqlite:////path.*DREAM_STATE_URL"):
        MemoryBank.open(chroma_server, name, create=True)
    monkeypatch.setenv("DREAM_STATE_URL", f"sqlite:///{tmp_path / 'env.sqlite3'}")
    open_bank(chroma_server)
    assert (tmp_path / "env.sqlite3").exists()


def test_importing_and_exiting_is_quiet(tmp_path: Path) -> None:
    code = f"""
import logging, threading
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("chromadb").setLevel(logging.ERROR)
import shared_core.bank
bank = shared_core.bank.MemoryBank.open({str(tmp_path)!r}, "quiet", create=True)
bank.add(["a"], ids=["a"], embeddings=[[1.0, 0.0]])
bank.state.record_access(["a"])
with bank.state.lock("test"):
    names = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    assert not names, names
    raise SystemExit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "shared_core" not in done.stderr
    bank = MemoryBank.open(tmp_path, "quiet")
    assert bank.get(["a"])[0].state.retrievals == 1, "counts are written at interpreter exit"
    bank.close()


def test_four_processes_open_a_new_bank_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.sqlite3'}"
    code = f"from shared_core import BankState; BankState({url!r}, collection='c', name='n').version()"
    started = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(4)]
    for process in started:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error.decode()


CALLS: dict[str, tuple[object, ...]] = {
    "add": (["x"],),
    "update": ("m0", "x"),
    "delete": (["m0"],),
    "get": (["m0"],),
    "weights": (["m0"],),
    "set_weights": ({"m0": 0.5},),
    "restore": (["m0"],),
    "distrust": (["m0"],),
    "explain": ("m0",),
    "aexplain": ("m0",),
    "feedback": (["m0"], [1.0], 1.0),
    "undo": ("run",),
}
STAY = {"before_close", "open", "from_collection", "close", "closed", "content", "state"}


def _ask(bank: MemoryBank, name: str) -> None:
    found = getattr(bank, name)(*CALLS.get(name, ()))
    if inspect.isawaitable(found):
        asyncio.run(found)
    list(found)


def test_a_closed_bank_says_so_whatever_it_is_asked(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng)
    retriever = BankRetriever(bank)
    assert not bank.closed
    bank.close()
    bank.close()
    assert bank.closed
    assert repr(bank).endswith("where=None, closed)")
    public = {name for name in dir(MemoryBank) if not name.startswith("_")} - STAY
    assert len(public) > 18
    for name in sorted(public | {"__len__", "__iter__"}):
        with pytest.raises(BankClosedError, match=r"the bank 'test-.*' was closed: open it again"):
            _ask(bank, name)
    for name in ("content", "state"):
        with pytest.raises(StateError, match="was closed"):
            getattr(bank, name)
    with pytest.raises(BankClosedError, match="was closed"):
        retriever.search_by_vector(np.ones(16))
    with pytest.raises(BankClosedError, match="was closed"), bank:
        bank.ids()
