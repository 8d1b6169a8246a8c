"""Version, columns and access statistics, over SQLite and PostgreSQL, threads and processes."""

from __future__ import annotations

import gc
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from shared_core import BankState
from shared_core.bank.schema import SCHEMA_VERSION
from shared_core.errors import StateError

Open = Callable[..., BankState]


@pytest.fixture
def open_state(state_url: str, name: str) -> Iterator[Open]:
    states: list[BankState] = []

    def opened(**options: str) -> BankState:
        states.append(BankState(state_url, collection=name, name="n", **options))
        return states[-1]

    yield opened
    for state in states:
        state.close()


def test_another_process_is_seen_at_once(open_state: Open, state_url: str, name: str) -> None:
    state = open_state()
    assert state.weights(["a", "b"]).tolist() == [1, 1]
    version = state.version()
    code = f"from shared_core import BankState; s = BankState({state_url!r}, collection={name!r}, name='n')"
    subprocess.run([sys.executable, "-c", code + "; s.set_weights({'a': 0.5})"], check=True, timeout=60)
    assert state.version() > version
    assert state.weights(["a", "b"]).tolist() == [0.5, 1]


def test_columns_follow_every_change_of_another_instance(open_state: Open, rng: np.random.Generator) -> None:
    writer, reader = open_state(), open_state()
    expected: dict[str, float] = {}
    for _ in range(20):
        changed = {f"m{i}": float(rng.random()) for i in rng.choice(30, 5, replace=False)}
        writer.set_weights(changed)
        expected |= changed
        assert reader.weights(list(expected)).tolist() == list(expected.values())
    assert reader.known_ids() == set(expected)


def test_reading_threads_see_whole_transactions(open_state: Open) -> None:
    writer, reader = open_state(), open_state()
    ids = [f"m{i}" for i in range(200)]
    mixed: list[set[float]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen = set(reader.weights(ids).tolist())
            if len(seen) != 1:
                mixed.append(seen)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(15):
        writer.set_weights(dict.fromkeys(ids, step / 20))
    done.set()
    for thread in threads:
        thread.join()
    assert not mixed


def test_eight_threads_count_every_access(open_state: Open) -> None:
    state, other = open_state(), open_state()

    def record(counter: BankState) -> None:
        for i in range(200):
            counter.record_access([f"m{i % 7}", "always"])
            if i % 50 == 0:
                counter.flush()

    threads = [threading.Thread(target=record, args=((state, other)[i % 2],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert state.get(["always"])[0].retrievals == 1_600
    assert sum(s.retrievals for s in state.get([f"m{i}" for i in range(7)])) == 1_600
    assert abs((state.get(["always"])[0].last_access or 0) - time.time()) < 60
    assert state.version() == 0, "access statistics are not runs"
    assert state.weights(["always"]).tolist() == [1]


def test_counting_access_changes_nothing_else(open_state: Open) -> None:
    state = open_state()
    state.set_weights({"a": 0.5})
    state.record_access(["a", "b"])
    state.flush()
    a, b = state.get(["a", "b"])
    assert (a.weight, a.retrievals, b.weight, b.retrievals) == (0.5, 1, 1.0, 1)
    run = state.set_weights({"a": 0.75, "b": 0.75})
    state.undo(run.run_id)
    a, b = state.get(["a", "b"])
    assert (a.weight, a.retrievals, b.weight, b.retrievals) == (0.5, 1, 1.0, 1)


def test_counts_are_written_when_the_state_is_collected(open_state: Open, state_url: str, name: str) -> None:
    dropped = BankState(state_url, collection=name, name="n")
    dropped.record_access(["a"])
    del dropped
    gc.collect()
    assert open_state().get(["a"])[0].retrievals == 1


def test_readers_never_wait_for_a_writer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.sqlite3'}"
    state = BankState(url, collection="c", name="n")
    state.set_weights({"a": 0.5})
    writer = sqlite3.connect(tmp_path / "s.sqlite3", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    for _ in range(300):
        state.record_access([f"m{_}"])
    assert state.weights(["a"]).tolist() == [0.5]
    assert state.get(["a", "m1"])[1].retrievals == 1
    assert state.runs()[0].kind == "reweight"
    other = BankState(url, collection="c", name="n")  # opening only reads
    assert other.version() == 1
    assert time.monotonic() - started < 1.0
    writer.execute("ROLLBACK")
    state.close()
    assert other.get(["m299"])[0].retrievals == 1
    other.close()


def test_the_version_survives_a_fork_and_a_close(tmp_path: Path) -> None:
    state = BankState(f"sqlite:///{tmp_path / 's.sqlite3'}", collection="c", name="n")
    state.set_weights({"a": 0.5})
    assert state.version() == 1
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: sys.exit(0 if state.version() == 1 else 1))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    state.close()
    state.close()
    assert state.version() == 1
    state.close()


def test_the_version_is_read_in_microseconds(tmp_path: Path) -> None:
    state = BankState(f"sqlite:///{tmp_path / 's.sqlite3'}", collection="c", name="n")
    state.version()
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(200):
            state.version()
        best = min(best, (time.perf_counter() - started) / 200)
    state.close()
    assert best < 60e-6


def test_many_memories_in_one_transaction(open_state: Open, rng: np.random.Generator) -> None:
    state = open_state()
    ids = [f"memory {i}" for i in range(10_000)]
    weights = rng.random(len(ids))
    started = time.perf_counter()
    for values in (weights / 2, weights):
        with state.transaction("sweep") as run:
            run.set(ids, {"weight": values, "suspicion": values})
    # one IN list per chunk took minutes on a PostgreSQL without statistics
    assert time.perf_counter() - started < 20
    assert np.array_equal(state.weights(ids), weights)
    state.undo(run.run_id)
    assert np.array_equal(state.weights(ids), weights / 2)


def test_only_what_differs_is_journalled(open_state: Open) -> None:
    state = open_state()
    assert state.set_weights({"a": 1.0, "b": 0.5}).changes == 1
    assert state.set_weights({"a": 1.0, "b": 0.5}).changes == 0
    assert state.known_ids() == {"b"}


def test_ids_are_not_sql(open_state: Open) -> None:
    state = open_state()
    odd = ["%", "'; DROP TABLE dream_memories; --", "a%sb", "{x}", ":p", "é👩‍👩‍👧", '"[1]"', "x" * 2_000]
    state.set_weights({memory_id: (i + 1) / 10 for i, memory_id in enumerate(odd)})
    assert state.weights(odd).tolist() == [(i + 1) / 10 for i in range(len(odd))]
    assert [s.weight for s in state.get(odd)] == state.weights(odd).tolist()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    state_url = f"sqlite:///{tmp_path / 's.sqlite3'}"
    BankState(state_url, collection="c", name="n").close()
    with create_engine(state_url).begin() as connection:
        connection.execute(text("UPDATE dream_meta SET value = '99'"))
    with pytest.raises(StateError, match=f"schema 99, this version reads up to {SCHEMA_VERSION}: upgrade"):
        BankState(state_url, collection="c", name="n")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql+pymysql://u:secret@h/d", "'mysql': use SQLite or PostgreSQL"),
        ("not a url, secret", "is not a database URL: use sqlite:////"),
        ("sqlite:////nonexistent/folder/x.sqlite3", "cannot open the state database"),
        ("postgresql://u:secret@127.0.0.1:9/d", "cannot open the state database"),
        ("sqlite+nonsense:////x", "unknown driver"),
        ("sqlite:///x?timeout=x", "has a bad option: could not convert"),
        ("postgresql://u:secret@h:notaport/x", "is not a database URL"),
        ("postgresql://u:1/ret:secret@h/x", "database"),
        ("postgresql://u@127.0.0.1:9/d?password=secret", "cannot open the state database"),
    ],
)
def test_an_unusable_database_is_named_without_its_password(url: str, message: str) -> None:
    with pytest.raises(StateError, match=message) as caught:
        BankState(url, collection="c", name="n")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_corrupt_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    file.write_bytes(b"this is no database" * 100)
    with pytest.raises(StateError, match=r"s.sqlite3.*file is not a database"):
        BankState(f"sqlite:///{file}", collection="c", name="n")
    assert file.read_bytes() == b"this is no database" * 100


def test_postgres_writers_and_counters_do_not_deadlock(open_state: Open, rng: np.random.Generator) -> None:
    states = [open_state() for _ in range(4)]
    ids = [f"m{i}" for i in range(300)]
    failures: list[BaseException] = []

    def work(state: BankState, sweeping: bool) -> None:
        order = list(np.random.default_rng(id(state)).permutation(ids))
        try:
            for step in range(8):
                if sweeping:
                    with state.transaction("feedback") as run:
                        run.set(order, {"consolidation": [step / 10] * len(order)})
                else:
                    state.record_access(order)
                    state.flush()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(state, i < 2)) for i, state in enumerate(states)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert {s.retrievals for s in states[0].get(ids)} == {16}


BREAKAGES = {
    "a table is gone": "DROP TABLE dream_memories",
    "the journal is gone": "DROP TABLE dream_runs",
    "the bank is gone": "DELETE FROM dream_banks",
    "a weight is text": "UPDATE dream_memories SET weight = 'secret', changed_version = 9",
    "a report is no JSON": "UPDATE dream_runs SET report = '{secret'",
    "the version is text": "UPDATE dream_banks SET version = 'secret'",
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_database_altered_while_open_fails_in_one_line(tmp_path: Path, breakage: str) -> None:
    state = BankState(f"sqlite:///{tmp_path / 's.sqlite3'}", collection="c", name="n")
    run = state.set_weights({"a": 0.5})
    with closing(sqlite3.connect(tmp_path / "s.sqlite3")) as raw, raw:
        raw.execute(BREAKAGES[breakage])
        raw.execute("UPDATE dream_banks SET version = version + 9 WHERE typeof(version) = 'integer'")
    calls: list[Callable[[], object]] = [
        state.runs,
        state.version,
        state.flush,
        lambda: state.weights(["a"]),
        lambda: state.get(["a"]),
        lambda: state.run(run.run_id),
        lambda: state.undo(run.run_id),
        lambda: state.set_weights({"private": 0.5}),
        lambda: BankState(f"sqlite:///{tmp_path / 's.sqlite3'}", collection="c", name="n").runs(),
    ]
    failures = []
    state.record_access(["private"])
    for call in calls:
        try:
            call()
        except StateError as error:
            failures.append(error)
    assert failures
    for error in failures:
        assert "\n" not in str(error)
        assert "private" not in str(error)
        # SQLAlchemy's own message, which quotes parameters, must not show in a traceback either
        assert error.__cause__ is None
        assert error.__context__ is None or error.__suppress_context__
    state.close()


def test_a_file_corrupted_while_open_fails_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    state = BankState(f"sqlite:///{file}", collection="c", name="n")
    state.set_weights({f"m{i}": 0.5 for i in range(2_000)})
    state.close()
    file.write_bytes(file.read_bytes()[:4096] + b"\x55" * (file.stat().st_size - 4096))
    for call in (state.runs, state.version, lambda: state.set_weights({"a": 0.1}), lambda: state.get(["m1"])):
        with pytest.raises(StateError, match=r"state database .* (failed|was altered): "):
            call()  # type: ignore[operator]


def test_a_database_restored_from_a_backup_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    state = BankState(f"sqlite:///{file}", collection="c", name="n")
    state.set_weights({"a": 0.5})
    with closing(sqlite3.connect(file)) as live, closing(sqlite3.connect(tmp_path / "backup")) as backup:
        live.backup(backup)
        state.set_weights({"a": 0.25, "b": 0.25})
        assert state.weights(["a", "b"]).tolist() == [0.25, 0.25]
        backup.backup(live)
    assert state.weights(["a", "b"]).tolist() == [0.5, 1]
    assert state.known_ids() == {"a"}
    state.set_weights({"b": 0.75})
    assert state.weights(["a", "b"]).tolist() == [0.5, 0.75]
    state.close()
