"""What others do to the collection or its weights is seen by the next search, in this process or another."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest

from shared_core import BankRetriever, MemoryBank, RetrievalConfig
from tests.conftest import OpenBank, fill, unit_rows

DIMENSION = 16
SEARCHES: list[dict[str, Any]] = [
    {"search_type": "similarity"},
    {"search_type": "mmr", "fetch_k": 500},
    {"search_type": "hybrid"},
    {"where": {"kind": "a"}},
    {"where_document": {"$contains": "memory"}},
]


def elsewhere(folder: Path, name: str, code: str) -> None:
    """Run code with ``collection`` and ``V(i)``, a unit vector along axis i, in another process."""
    program = f"""
import chromadb, numpy as np
collection = chromadb.PersistentClient({str(folder)!r}).get_collection({name!r}, embedding_function=None)
KIND = {{'kind': 'a'}}
def V(i):
    return np.eye({DIMENSION})[[i]]
{code}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def axis(i: int) -> np.ndarray:
    return np.eye(DIMENSION)[i]


def filled(bank: MemoryBank, rng: np.random.Generator) -> None:
    bank.add(
        [f"memory {i}" for i in range(60)],
        ids=[f"m{i}" for i in range(60)],
        metadatas=[{"kind": "a"}] * 60,
        embeddings=unit_rows(rng, 60, DIMENSION),
    )


def best(retriever: BankRetriever, i: int, **options: Any) -> str:
    return retriever.search_by_vector(axis(i), query="novel", k=3, **options)[0].id


@pytest.mark.parametrize("backend", ["auto", "scan"])
@pytest.mark.parametrize("space", ["cosine", "l2"])
def test_another_process_adds_and_removes(
    open_bank: OpenBank, rng: np.random.Generator, tmp_path: Path, name: str, backend: Any, space: str
) -> None:
    bank = open_bank(space=space)
    filled(bank, rng)
    retriever = BankRetriever(bank, RetrievalConfig(backend=backend))
    for options in SEARCHES:  # the index and the keywords are loaded now
        best(retriever, 0, **options)
    add = "collection.add(ids=['x{0}'], documents=['novel memory'], embeddings=V({0}), metadatas=[KIND])"
    elsewhere(tmp_path / "chroma", name, add.format(0))
    for options in SEARCHES:
        assert best(retriever, 0, **options) == "x0", options
    # a search with too few answers scans; what is added after that must be found too
    assert len(retriever.search_by_vector(axis(1), k=500)) == 61
    elsewhere(tmp_path / "chroma", name, add.format(1) + "\ncollection.delete(ids=['x0', 'm5'])")
    for options in SEARCHES:
        assert best(retriever, 1, **options) == "x1", options
        found = {h.id for h in retriever.search_by_vector(axis(0), query="novel memory", k=500, **options)}
        assert len(found) == 60
        assert not found & {"x0", "m5"}


def test_what_came_before_the_first_search_but_after_the_index_was_loaded(
    open_bank: OpenBank, rng: np.random.Generator, tmp_path: Path, name: str
) -> None:
    bank = open_bank()
    filled(bank, rng)
    bank.content.collection.query(query_embeddings=[axis(0).tolist()])
    elsewhere(
        tmp_path / "chroma",
        name,
        "collection.add(ids=['x'], documents=['memory'], metadatas=[KIND], embeddings=V(0))",
    )
    assert best(BankRetriever(bank), 0) == "x"


def test_refresh_finds_what_another_process_rewrote(
    open_bank: OpenBank, rng: np.random.Generator, tmp_path: Path, name: str
) -> None:
    for backend in ("auto", "scan"):
        bank = open_bank(name=f"{name}-{backend}")
        filled(bank, rng)
        retriever = BankRetriever(bank, RetrievalConfig(backend=backend))  # type: ignore[arg-type]
        best(retriever, 0)
        elsewhere(
            tmp_path / "chroma",
            f"{name}-{backend}",
            "collection.add(ids=['x'], documents=['memory'], metadatas=[KIND], embeddings=V(1))\n"
            "collection.update(ids=['m7'], documents=['a new memory'], embeddings=V(0))",
        )
        assert best(retriever, 1) == "x"
        retriever.refresh()
        hit = retriever.search_by_vector(axis(0), k=1)[0]
        assert (hit.id, hit.text) == ("m7", "a new memory")
        assert hit.similarity == pytest.approx(1.0)
        assert best(retriever, 1) == "x"


@pytest.mark.parametrize("backend", ["auto", "scan"])
def test_this_process_writes_behind_our_back(
    location: str, name: str, rng: np.random.Generator, tmp_path: Path, backend: Any
) -> None:
    state_url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    with MemoryBank.open(location, name, create=True, state_url=state_url) as bank:
        fill(bank, rng, 60, DIMENSION)
        retriever = BankRetriever(bank, RetrievalConfig(backend=backend))
        best(retriever, 0)
        collection = bank.content.collection
        collection.add(ids=["x"], documents=["novel memory"], embeddings=[axis(0).tolist()])
        assert best(retriever, 0) == "x"
        assert best(retriever, 0, search_type="hybrid") == "x"
        collection.delete(ids=["x"])
        assert best(retriever, 0) != "x"
        assert best(retriever, 0, search_type="hybrid") != "x"
        collection.update(ids=["m3"], documents=["memory three"], embeddings=[axis(2).tolist()])
        if backend == "scan":
            retriever.refresh()
        assert best(retriever, 2) == "m3"


def test_two_clients_of_a_server(
    chroma_server: str, name: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    state_url = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    with MemoryBank.open(chroma_server, name, create=True, state_url=state_url) as bank:
        fill(bank, rng, 60, DIMENSION)
        retriever = BankRetriever(bank)
        best(retriever, 0)
        host, port = chroma_server.removeprefix("http://").split(":")
        other = chromadb.HttpClient(host=host, port=int(port)).get_collection(name, embedding_function=None)
        other.add(ids=["x"], documents=["novel memory"], embeddings=[axis(0).tolist()])
        assert best(retriever, 0) == "x"
        assert best(retriever, 0, search_type="hybrid") == "x"


def test_weights_changed_by_another_process(
    open_bank: OpenBank, rng: np.random.Generator, tmp_path: Path, name: str
) -> None:
    bank = open_bank()
    matrix = fill(bank, rng)
    retriever = BankRetriever(bank)
    assert retriever.search_by_vector(matrix[0], k=1)[0].id == "m0"
    program = (
        "import sys; from shared_core import MemoryBank; bank = MemoryBank.open(sys.argv[1], sys.argv[2]);"
        "bank.set_weights({'m0': 0.25}); bank.delete(['m1'])"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "chroma"), name], check=True, timeout=60)
    hits = {hit.id: hit for hit in retriever.search_by_vector(matrix[0], k=60)}
    assert hits["m0"].weight == 0.25
    assert hits["m0"].score == pytest.approx(0.25, abs=1e-5)
    assert "m1" not in hits


def test_searches_while_others_add_and_remove(bank: MemoryBank, rng: np.random.Generator) -> None:
    matrix = fill(bank, rng)
    retriever = BankRetriever(bank)
    failures: list[BaseException] = []
    done = threading.Event()

    def search() -> None:
        try:
            while not done.is_set():
                for search_type in ("similarity", "hybrid"):
                    hits = retriever.search_by_vector(matrix[0], query="memory", search_type=search_type)
                    assert hits[0].id == "m0"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(15):
        bank.add(["new"], ids=[f"n{turn}"], embeddings=-matrix[:1])
        bank.content.collection.delete(ids=[f"n{turn}"])
        bank.set_weights({"m5": turn / 20})
    done.set()
    for thread in threads:
        thread.join()
    assert not failures


MODES: list[tuple[Any, Any]] = [("auto", "similarity"), ("scan", "similarity"), ("auto", "hybrid")]


@pytest.mark.parametrize(("backend", "search_type"), MODES)
def test_rewriting_is_seen_by_an_open_retriever(
    bank: MemoryBank, rng: np.random.Generator, backend: Any, search_type: Any
) -> None:
    filled(bank, rng)
    retriever = BankRetriever(bank, RetrievalConfig(backend=backend, search_type=search_type))
    best(retriever, 0)
    bank.add(["late"], ids=["late"], embeddings=axis(3)[None])
    assert best(retriever, 3) == "late"
    collection = bank.content.collection
    for turn, memory_id in enumerate(("m7", "late")):
        first = 4 + 3 * turn
        bank.update(memory_id, f"novel {turn}", embedding=axis(first))
        assert best(retriever, first) == memory_id
        collection.update(ids=[memory_id], documents=["novel again"], embeddings=axis(first + 1)[None])
        assert best(retriever, first + 1) == memory_id
        collection.delete(ids=[memory_id])
        collection.add(ids=[memory_id], documents=["novel still"], embeddings=axis(first + 2)[None])
        hit = retriever.search_by_vector(axis(first + 2), query="novel", k=1)[0]
        assert (hit.id, hit.similarity) == (memory_id, pytest.approx(1.0, abs=1e-5))


@pytest.mark.parametrize(("backend", "search_type"), MODES)
def test_our_own_rewriting_without_a_file_to_watch(
    open_bank: OpenBank, rng: np.random.Generator, backend: Any, search_type: Any
) -> None:
    bank = open_bank(":memory:")
    filled(bank, rng)
    retriever = BankRetriever(bank, RetrievalConfig(backend=backend, search_type=search_type))
    best(retriever, 0)
    run = bank.update("m7", "novel", embedding=axis(4))
    assert best(retriever, 4) == "m7"
    bank.undo(run.run_id)
    assert best(retriever, 4, min_weight=0.0) != "m7"


@pytest.mark.parametrize(("backend", "search_type"), MODES)
def test_another_process_rewrites(
    bank: MemoryBank, rng: np.random.Generator, tmp_path: Path, name: str, backend: Any, search_type: Any
) -> None:
    filled(bank, rng)
    retriever = BankRetriever(bank, RetrievalConfig(backend=backend, search_type=search_type))
    best(retriever, 0)
    elsewhere(
        tmp_path / "chroma", name, "collection.update(ids=['m7'], documents=['novel'], embeddings=V(4))"
    )
    if retriever.config.backend == "auto" and search_type == "similarity":
        retriever.refresh()  # the index itself does not learn of it
    assert best(retriever, 4) == "m7"
    # what reopened the collection must not be taken for a writing of others, over and over
    mark = retriever._watch._mark
    assert best(retriever, 4) == "m7"
    assert retriever._watch._mark == mark


def test_our_own_rewriting_by_another_process(
    bank: MemoryBank, rng: np.random.Generator, tmp_path: Path, name: str
) -> None:
    filled(bank, rng)
    retriever = BankRetriever(bank)
    best(retriever, 0)
    program = (
        "import sys, numpy as np; from shared_core import MemoryBank;"
        "MemoryBank.open(sys.argv[1], sys.argv[2]).update('m7', 'novel', embedding=np.eye(16)[4])"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "chroma"), name], check=True, timeout=60)
    assert best(retriever, 4) == "m7"


@pytest.mark.parametrize(("backend", "search_type"), MODES)
def test_a_failed_taking_up_loses_no_change(
    bank: MemoryBank,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    backend: Any,
    search_type: Any,
) -> None:
    filled(bank, rng)
    retriever = BankRetriever(bank, RetrievalConfig(backend=backend, search_type=search_type))
    best(retriever, 0)
    bank.add(["novel"], ids=["x"], embeddings=axis(3)[None])

    def fails(*_: object) -> None:
        raise OSError("the disk is busy")

    with monkeypatch.context() as broken:
        broken.setattr(retriever._dense, "update", fails)
        with pytest.raises(OSError, match="busy"):
            best(retriever, 3)
    assert best(retriever, 3) == "x"
