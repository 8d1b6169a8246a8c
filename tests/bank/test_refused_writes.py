"""The directory is read-only, the database no database or locked: a clear error, and nothing by half.

Of a full disk see ``tests/soak/test_full_disk.py``.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from shared_core import BankState, ForgettingConfig, MemoryBank
from shared_core.bank import schema
from shared_core.errors import BankNotFoundError, StateError
from tests.conftest import OpenBank, fill
from tests.soak.mounting import mounted


@contextmanager
def read_only(folder: Path, elsewhere: Path) -> Iterator[Path]:
    """Give a place where the folder cannot be written to; modes do not bind the superuser."""
    if os.geteuid():
        modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
        for path, mode in modes.items():
            path.chmod(mode & 0o555)
        yield folder
        for path, mode in modes.items():
            path.chmod(mode)
        return
    elsewhere.mkdir()
    with mounted("--bind", str(folder), at=elsewhere):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(elsewhere)], check=True)
        yield elsewhere


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a read-only place is made by Linux")
def test_a_read_only_directory(
    open_bank: OpenBank, tmp_path: Path, name: str, rng: np.random.Generator
) -> None:
    fill(open_bank(), rng, rows=5)
    state = tmp_path / "states" / "state.sqlite3"
    state.parent.mkdir()
    BankState(f"sqlite:///{state}", collection="c", name="n").close()
    with read_only(tmp_path / "chroma", tmp_path / "bound") as place:
        for _ in range(2):  # and the same the second time
            with pytest.raises(BankNotFoundError, match=r"cannot open the Chroma database in .*readonly"):
                MemoryBank.open(place, name)
    with (
        read_only(state.parent, tmp_path / "bound-state") as place,
        pytest.raises(StateError, match="cannot open the state database"),
    ):
        MemoryBank.open(tmp_path / "chroma", name, state_url=f"sqlite:///{place / 'state.sqlite3'}")


def test_what_could_not_be_opened_is_opened_once_it_can_be(
    open_bank: OpenBank, tmp_path: Path, name: str, rng: np.random.Generator
) -> None:
    place = tmp_path / "copy"
    place.mkdir()
    (place / "chroma.sqlite3").write_bytes(b"rubbish" * 999)
    for _ in range(2):
        with pytest.raises(BankNotFoundError, match=r"cannot open the Chroma database in .*not a database"):
            open_bank(place)
    (place / "chroma.sqlite3").unlink()
    bank = open_bank(place)
    fill(bank, rng, rows=5)
    assert len(bank) == 5


def test_a_state_that_another_writer_holds_for_too_long(
    open_bank: OpenBank, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "SQLITE_BUSY_SECONDS", 0.2)
    bank = open_bank()
    fill(bank, rng, rows=5)
    calls: list[Callable[[], object]] = [
        lambda: bank.sweep(ForgettingConfig(iterations=2)),
        lambda: bank.feedback(["m1"], [1.0], 1.0),
        lambda: bank.update("m1", "new", embedding=np.ones(16)),
        lambda: bank.delete(["m1"]),
    ]
    before = [(m.id, m.text, m.state) for m in bank], bank.runs()
    other = sqlite3.connect(str(bank.state.engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for call in calls:
        with pytest.raises(StateError, match="failed: database is locked"):
            call()
    # what was stored is stored, and only lacks its entry
    with pytest.raises(StateError, match="failed: database is locked"):
        bank.add(["late"], ids=["late"], embeddings=np.ones((1, 16)))
    other.close()
    assert ([(m.id, m.text, m.state) for m in bank if m.id != "late"], bank.runs()) == before
    assert bank.get(["late"])[0].text == "late"
    for call in calls:
        call()
