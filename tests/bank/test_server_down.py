"""The Chroma server or PostgreSQL goes away in the middle, and comes back."""

from __future__ import annotations

import gc
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from shared_core import BankState, ForgettingConfig, MemoryBank
from shared_core.bank import chroma_client
from shared_core.bank.chroma import ChromaContent
from shared_core.bank.lock import BankLock
from shared_core.errors import BankUnreachableError, StateError
from shared_core.retrieval import BankRetriever
from tests.conftest import fill, wait_for_server

SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5)
OURS = "FROM pg_stat_activity WHERE application_name = :name"
DOWN = "the Chroma server of collection .* does not answer"


class Server:
    """A Chroma server that can be stopped and started again, on the same port and folder."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        command = [Path(sys.executable).with_name("chroma"), "run", "--host", "127.0.0.1"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), "--path", str(self.folder)], stdout=log, stderr=log
            )
        wait_for_server(self._process, self.port, self.folder / "log")

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(10)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.end()


@pytest.fixture
def server(one_server: Server) -> Server:
    """A server that runs, whatever the test before did to it."""
    if not one_server.is_running:
        one_server.start()
    return one_server


@pytest.fixture
def bank(server: Server, name: str, postgres_url: str, rng: np.random.Generator) -> Iterator[MemoryBank]:
    with MemoryBank.open(server.url, name, state_url=postgres_url, create=True) as bank:
        fill(bank, rng, rows=40)
        yield bank


def contents(bank: MemoryBank) -> list[Any]:
    return [(memory.id, memory.text, memory.metadata, memory.state) for memory in bank]


def test_a_server_that_is_down_is_said_and_works_again(
    server: Server, bank: MemoryBank, name: str, postgres_url: str, rng: np.random.Generator
) -> None:
    retriever = BankRetriever(bank, track_access=False)
    query = rng.standard_normal(16)
    found = [hit.id for hit in retriever.search_by_vector(query, k=5)]
    before, journal = contents(bank), bank.runs()

    server.stop()
    calls: list[Callable[[], Any]] = [
        lambda: retriever.search_by_vector(query, k=5),
        lambda: bank.add(["new"], ids=["new"], embeddings=np.ones((1, 16))),
        lambda: bank.sweep(SWEEP),
        lambda: bank.update("m1", "rewritten", embedding=np.ones(16)),
        lambda: bank.feedback(["m1"], [1.0], 1.0),
        lambda: bank.delete(["m1"]),
        lambda: list(bank),
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(BankUnreachableError, match=DOWN):
            call()
        assert time.monotonic() - began < 5.0
    with pytest.raises(BankUnreachableError, match="no Chroma server answers at"):
        MemoryBank.open(server.url, name, state_url=postgres_url)
    assert bank.runs() == journal  # no half of a run
    assert bank.state.lock_holder() is None

    server.start()
    assert contents(bank) == before
    assert [hit.id for hit in retriever.search_by_vector(query, k=5)] == found
    bank.add(["new"], ids=["new"], embeddings=query[None])
    assert retriever.search_by_vector(query, k=1)[0].id == "new"
    report = bank.sweep(SWEEP)
    assert report.memories == 41
    bank.undo(str(report.run_id))
    bank.update("m1", "rewritten", embedding=np.ones(16))
    assert bank.get(["m1"])[0].text == "rewritten"


def test_a_server_that_stands_still_is_not_waited_for_without_end(
    server: Server, name: str, postgres_url: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chroma_client, "ANSWER_SECONDS", 1.0)
    with MemoryBank.open(server.url, name, state_url=postgres_url, create=True) as bank:
        fill(bank, rng, rows=5)
        server.signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(BankUnreachableError, match=f"{DOWN}.*timed out"):
            bank.sweep(SWEEP)
        assert time.monotonic() - began < 5.0
        server.signal(signal.SIGCONT)
        assert bank.sweep(SWEEP).memories == 5


@pytest.mark.parametrize("written", [False, True])
def test_a_server_that_dies_while_a_text_is_rewritten(
    server: Server,
    bank: MemoryBank,
    name: str,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    written: bool,
) -> None:
    before = contents(bank)
    replace = ChromaContent.replace

    def dying(content: ChromaContent, *change: Any) -> None:
        if written:
            replace(content, *change)
        server.stop()
        replace(content, *change)

    with monkeypatch.context() as patched:
        patched.setattr(ChromaContent, "replace", dying)
        with pytest.raises(BankUnreachableError, match=DOWN):
            bank.update("m1", "rewritten", embedding=np.ones(16))
    assert [run.status for run in bank.runs() if run.kind == "update"] == ["pending"]
    assert bank.state.lock_holder() is None

    server.start()
    assert (bank.get(["m1"])[0].text == "rewritten") == written
    with MemoryBank.open(server.url, name, state_url=postgres_url) as again:
        assert [run.status for run in again.runs() if run.kind == "update"] == ["aborted"]
        assert contents(again) == before


def test_an_addition_that_the_server_broke_off_can_be_repeated(
    server: Server, bank: MemoryBank, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(bank.content.collection._client, "get_max_batch_size", lambda: 10)
    vectors = rng.standard_normal((30, 16))
    ids, texts = [f"n{i}" for i in range(30)], [f"new {i}" for i in range(30)]

    def stop_after_two(_stage: str, done: int, _total: int) -> None:
        if done == 20:
            server.stop()

    with pytest.raises(BankUnreachableError, match=DOWN):
        bank.add(texts, ids=ids, embeddings=vectors, progress=stop_after_two)
    server.start()
    added = [run.report for run in bank.runs() if run.kind == "add"]
    assert added[0] == {"added": 20, "asked": 30}
    there = set(bank.ids())
    assert set(ids[:20]) == there & set(ids)
    left = [i for i in range(30) if ids[i] not in there]
    bank.add([texts[i] for i in left], ids=[ids[i] for i in left], embeddings=vectors[left])
    assert len(bank) == 70


def named(url: str, name: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}application_name={name}"


def asked(url: str, name: str, query: str) -> int:
    """Ask PostgreSQL about the connections of a test, or break them."""
    admin = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with admin.connect() as connection:
        rows = connection.execute(text(f"{query} {OURS}"), {"name": name}).all()
    admin.dispose()
    return len(rows)


def test_lost_connections_to_postgresql_are_opened_anew(
    tmp_path: Path, name: str, postgres_url: str, rng: np.random.Generator
) -> None:
    def break_all() -> None:
        assert asked(postgres_url, name, "SELECT pg_terminate_backend(pid)")

    def in_the_middle(lock: BankLock) -> None:
        with bank.state.transaction("reweight", lock=lock) as run:
            run.set(["m1"], {"weight": [0.1]})
            break_all()

    url = named(postgres_url, name)
    with MemoryBank.open(tmp_path / "chroma", name, state_url=url, create=True) as bank:
        fill(bank, rng, rows=40)
        retriever = BankRetriever(bank)
        query = rng.standard_normal(16)
        retriever.search_by_vector(query, k=3)
        break_all()
        assert len(retriever.search_by_vector(query, k=3)) == 3
        break_all()
        report = bank.sweep(SWEEP)
        break_all()
        bank.undo(str(report.run_id))
        journal = bank.runs()
        with bank.state.lock("reweight") as lock, pytest.raises(StateError, match="failed"):
            in_the_middle(lock)
        assert bank.runs() == journal
        assert bank.weights(["m1"]).tolist() == [1.0]
        assert bank.state.lock_holder() is None


def test_banks_of_a_process_share_the_connection_that_tells_versions(name: str, postgres_url: str) -> None:
    url = named(postgres_url, name)
    states = [BankState(url, collection=f"{name}-{number}", name="n") for number in range(4)]
    with ThreadPoolExecutor(8) as threads:
        versions = list(threads.map(lambda number: states[number % 4].version(), range(200)))
    assert versions == [0] * 200
    with states[0].transaction("reweight") as run:
        run.set(["m"], {"weight": [0.5]})
    assert [state.version() for state in states] == [1, 0, 0, 0]
    pooled = sum(state.engine.pool.checkedin() for state in states)  # type: ignore[attr-defined]
    assert asked(postgres_url, name, "SELECT pid") == pooled + 1
    for state in states:
        state.close()
    gc.collect()
    assert asked(postgres_url, name, "SELECT pid") == 0
