"""A check-up finds what is wrong with a bank, says what to do, and changes nothing."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from langchain_chroma import Chroma

from shared_core import MemoryBank
from shared_core.bank.checkup import examine, files
from shared_core.bank.chroma_client import open_collection
from shared_core.bank.derived import derived_id, provenance
from shared_core.types import Check
from tests.conftest import OpenBank, fill, unit_rows

NAME = "memories"


@pytest.fixture
def place(tmp_path: Path, rng: np.random.Generator) -> Path:
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True) as bank:
        fill(bank, rng, rows=20)
        bank.set_weights({"m1": 0.5})
    return tmp_path / "chroma"


def state_of(place: Path) -> sqlite3.Connection:
    return sqlite3.connect(place / "dream_state.sqlite3")


def named(checks: list[Check], name: str) -> Check:
    (found,) = (check for check in checks if check.name == name)
    return found


def digests(place: Path) -> dict[str, str]:
    return {
        str(file.relative_to(place)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(place.rglob("*"))
        if file.is_file()
    }


def run_apart(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_healthy_bank_is_in_order(place: Path) -> None:
    examined = examine(str(place), NAME, dimension=16, deep=True)
    assert examined.collections == [NAME]
    assert [(check.name, check.status) for check in examined.checks if check.status != "ok"] == []
    names = {check.name for check in examined.checks}
    assert {"chroma integrity", "state integrity", "lock", "pending runs", "caches", "disk"} <= names
    assert "20 records" in named(examined.checks, "collection").found


@pytest.mark.parametrize("is_open", [False, True])
def test_nothing_is_changed(place: Path, is_open: bool) -> None:
    bank = MemoryBank.open(place, NAME) if is_open else None
    before = digests(place)
    examine(str(place), NAME, dimension=16, deep=True)
    assert digests(place) == before
    if bank is not None:
        bank.set_weights({"m1": 0.25})
        bank.close()


def test_what_an_open_bank_wrote_is_seen(place: Path) -> None:
    with MemoryBank.open(place, NAME) as bank, bank.state.lock("sweep"):
        lock = named(examine(str(place), NAME).checks, "lock")
    assert lock.status == "ok"
    assert f"'sweep' by pid {os.getpid()}" in lock.found
    assert "wait" in lock.todo


def test_a_place_without_a_database(tmp_path: Path) -> None:
    (check,) = examine(str(tmp_path / "nowhere"), NAME).checks
    assert (check.name, check.status) == ("chroma", "fail")
    assert "chroma.sqlite3" in check.todo
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "chroma.sqlite3").write_bytes(b"no database at all" * 100)
    (check,) = examine(str(broken), NAME).checks
    assert check.status == "fail"
    assert "not a database" in check.found
    assert "backup" in check.todo


def test_an_unknown_collection_is_told_with_those_that_exist(place: Path) -> None:
    check = named(examine(str(place), "memory").checks, "collection")
    assert check.status == "fail"
    assert NAME in check.found


def test_the_space_where_chroma_1_0_kept_it(place: Path) -> None:
    chroma = sqlite3.connect(place / "chroma.sqlite3")
    if "schema_str" in {column[1] for column in chroma.execute("PRAGMA table_info(collections)")}:
        chroma.execute("UPDATE collections SET schema_str = NULL")
    kept = '{"vector_index": {"hnsw": {"space": "ip"}}}'
    chroma.execute("UPDATE collections SET config_json_str = ?", [kept])
    chroma.commit()
    chroma.close()
    assert named(examine(str(place), NAME).checks, "space").found.startswith("ip")


@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_space_and_dimension(tmp_path: Path, space: str, rng: np.random.Generator) -> None:
    with MemoryBank.open(tmp_path, NAME, create=True, space=space) as bank:
        bank.add(["a", "b", "c"], embeddings=3.0 * unit_rows(rng, 3, 16))
    checks = examine(str(tmp_path), NAME, dimension=384).checks
    assert named(checks, "space").status == ("ok" if space == "cosine" else "warn")
    assert space in named(checks, "space").found
    if space != "cosine":
        assert "3 of 3 embeddings measured, of length 3 to 3" in named(checks, "space").found
        assert "backend at 'auto'" in named(checks, "space").todo
    wrong = named(checks, "dimension")
    assert wrong.status == "fail"
    assert "16" in wrong.found
    assert "384" in wrong.found
    assert named(examine(str(tmp_path), NAME).checks, "dimension").status == "skip"


@pytest.mark.parametrize("rows", [3, 1500])
def test_where_embeddings_have_length_one_any_space_is_well(
    name: str, tmp_path: Path, rows: int, rng: np.random.Generator
) -> None:
    """What LangChain creates ranks by l2."""
    store = Chroma(collection_name=name, persist_directory=str(tmp_path))
    store._collection.add(ids=[f"m{n}" for n in range(rows)], embeddings=unit_rows(rng, rows, 8))
    store._collection.delete(ids=["m0"])
    check = named(examine(str(tmp_path), name).checks, "space")
    assert (check.status, check.todo) == ("ok", "")
    # Chroma cuts its log, and the last writes stay in it
    assert re.match(rf"l2; [1-9]\d* of {rows - 1:,} embeddings measured, of length 1, where", check.found)
    store._collection.add(ids=["long"], embeddings=2.0 * unit_rows(rng, 1, 8))
    assert named(examine(str(tmp_path), name).checks, "space").status == "warn"


def test_a_server_is_asked_for_lengths(chroma_server: str, name: str, rng: np.random.Generator) -> None:
    client = open_collection(chroma_server, name, create=True, space="l2")
    client.add(ids=["a", "b"], embeddings=unit_rows(rng, 2, 8))
    check = named(examine(chroma_server, name, state_url="sqlite://").checks, "space")
    assert "2 of 2 embeddings measured, of length 1" in check.found


def test_an_empty_collection(tmp_path: Path) -> None:
    MemoryBank.open(tmp_path, NAME, create=True).close()
    checks = examine(str(tmp_path), NAME, dimension=384).checks
    assert named(checks, "collection").status == "warn"
    assert named(checks, "dimension").status == "skip"


@pytest.mark.parametrize(("version", "status"), [("2", "warn"), ("99", "fail")])
def test_a_schema_of_another_version(place: Path, version: str, status: str) -> None:
    with state_of(place) as state:
        state.execute("UPDATE dream_meta SET value = ? WHERE key = 'schema_version'", (version,))
    state.close()
    check = named(examine(str(place), NAME).checks, "state")
    assert check.status == status
    assert version in check.found
    with state_of(place) as state:
        kept = state.execute("SELECT value FROM dream_meta WHERE key = 'schema_version'").fetchone()
    state.close()
    assert kept == (version,)


def test_no_state_yet_and_no_database_of_ours(place: Path, tmp_path: Path) -> None:
    (place / "dream_state.sqlite3").unlink()
    checks = examine(str(place), NAME).checks
    assert named(checks, "state").status == "ok"
    assert not (place / "dream_state.sqlite3").exists()
    other = tmp_path / "other.sqlite3"
    sqlite3.connect(other).execute("CREATE TABLE theirs (x)").connection.close()
    assert (
        "nothing of ours"
        in named(examine(str(place), NAME, state_url=f"sqlite:///{other}").checks, "state").found
    )
    other.write_bytes(b"rubbish" * 1000)
    assert named(examine(str(place), NAME, state_url=f"sqlite:///{other}").checks, "state").status == "fail"


def test_a_dead_owner_of_the_lock(place: Path) -> None:
    run_apart(
        "import os\nfrom shared_core import MemoryBank\n"
        f"bank = MemoryBank.open({str(place)!r}, {NAME!r})\n"
        "with bank.state.lock('cycle'): os._exit(0)"
    )
    lock = named(examine(str(place), NAME).checks, "lock")
    assert lock.status == "warn"
    assert "its owner is gone" in lock.found
    assert socket.gethostname() in lock.found


def test_pending_runs_and_derived_memories_without_state(place: Path) -> None:
    orphan = derived_id()
    with MemoryBank.open(place, NAME) as bank:
        bank.content.add([orphan], ["quoted"], [provenance("extract", ("m1",))], np.ones((1, 16)) / 4)
    with state_of(place) as state:
        state.execute("UPDATE dream_runs SET status = 'pending'")
    state.close()
    checks = examine(str(place), NAME).checks
    assert named(checks, "pending runs").status == "warn"
    derived = named(checks, "derived memories")
    assert (derived.status, derived.found[:6]) == ("warn", "1 of 1")


def test_a_run_in_the_future(place: Path) -> None:
    clock = named(examine(str(place), NAME, now=time.time() - 3600).checks, "clock")
    assert clock.status == "warn"
    assert "future" in clock.found


def test_caches_of_collections_that_are_gone(place: Path, tmp_path: Path) -> None:
    folder = place / "dream_vectors"
    folder.mkdir()
    (folder / "0b2c.f32").write_bytes(b"0" * 2**20)
    caches = named(examine(str(place), NAME).checks, "caches")
    assert caches.status == "warn"
    assert "1.0 MiB" in caches.found
    assert "0b2c.f32" in caches.found


def test_the_kind_of_a_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"31 22 0:4 / {tmp_path} rw,relatime shared:1 - nfs4 server:/share rw\n"
    )
    expected = "nfs4" if sys.platform.startswith("linux") else None
    assert files.filesystem(tmp_path / "chroma", mounts) == expected
    assert files.filesystem(tmp_path, tmp_path / "none") is None


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may read everything")
def test_files_that_may_not_be_written(place: Path) -> None:
    place.chmod(0o500)
    try:
        assert named(examine(str(place), NAME).checks, "permissions").status == "fail"
    finally:
        place.chmod(0o700)


def test_a_server(
    chroma_server: str, name: str, tmp_path: Path, open_bank: OpenBank, rng: np.random.Generator
) -> None:
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    fill(open_bank(chroma_server, name=name, state_url=state), rng, rows=5)
    unnamed = examine(chroma_server, name)
    assert name in unnamed.collections
    assert "--state" in named(unnamed.checks, "state").todo
    checks = examine(chroma_server, name, state_url=state, dimension=16).checks
    assert {check.status for check in checks} == {"ok"}
    (check,) = examine("http://127.0.0.1:1", name).checks
    assert "answers" in check.found
    assert check.status == "fail"


def test_locks_in_postgres_are_judged_by_its_own_clock(place: Path, postgres_url: str) -> None:
    with MemoryBank.open(place, NAME, state_url=postgres_url) as bank, bank.state.lock("sweep"):
        checks = examine(str(place), NAME, state_url=postgres_url, now=time.time() + 3600).checks
    assert "this host and the database are" in named(checks, "clock").found
    lock = named(checks, "lock")
    assert (lock.status, "last heartbeat 0 s ago" in lock.found) == ("ok", True), lock.found


def test_postgres(place: Path, postgres_url: str, rng: np.random.Generator) -> None:
    with MemoryBank.open(place, NAME, state_url=postgres_url) as bank:
        bank.set_weights({"m2": 0.5})
    checks = examine(str(place), NAME, state_url=postgres_url, dimension=16).checks
    assert [check for check in checks if check.status != "ok"] == []
    absent = "postgresql://nobody:secret@127.0.0.1:1/none"
    state = named(examine(str(place), NAME, state_url=absent).checks, "state")
    assert state.status == "fail"
    assert "secret" not in state.found
