"""What others add, remove or replace is noticed, embedded and on a server."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import chromadb
import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank
from shared_core.bank import watch as watch_module
from shared_core.errors import BankNotFoundError
from tests.conftest import OpenBank, fill, unit_rows


@pytest.fixture
def watched(open_bank: OpenBank, location: str, tmp_path: Path, rng: np.random.Generator) -> MemoryBank:
    bank = open_bank(location, state_url=f"sqlite:///{tmp_path / 's.sqlite3'}")
    fill(bank, rng, rows=10)
    return bank


def plain_add(bank: MemoryBank, *ids: str) -> None:
    bank.content.collection.add(ids=list(ids), embeddings=np.ones((len(ids), 16)), documents=list(ids))


def test_added_and_removed(watched: MemoryBank) -> None:
    watch = watched.watch()
    assert not watch.poll()
    plain_add(watched, "x", "y")
    assert watch.poll().added == ["x", "y"]
    assert not watch.poll()
    watched.content.collection.delete(ids=["m3", "x"])
    change = watch.poll()
    assert (change.added, sorted(change.removed)) == ([], ["m3", "x"])
    watched.content.collection.delete(ids=["m4"])
    plain_add(watched, "z", "zz")
    change = watch.poll()
    assert (change.added, change.removed) == (["z", "zz"], ["m4"])
    assert list(watch.ids) == watched.ids()


def test_one_removed_and_one_added(watched: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched.watch()
    watched.content.collection.delete(ids=["m9"])
    plain_add(watched, "x")
    if watched.content.database_file() is None:
        assert not watch.poll(), "the count alone cannot tell"
        monkeypatch.setattr(watch_module, "RECHECK_SECONDS", 0.05)
        time.sleep(0.1)
    change = watch.poll()
    assert (change.added, change.removed) == (["x"], ["m9"])


def test_a_forced_look_compares_everything(watched: MemoryBank) -> None:
    watch = watched.watch()
    watched.content.collection.delete(ids=["m0"])
    plain_add(watched, "x")
    change = watch.poll(force=True)
    assert (change.added, change.removed) == (["x"], ["m0"])


def test_everything_removed_and_started_anew(watched: MemoryBank) -> None:
    watch = watched.watch()
    watched.content.collection.delete(ids=watched.ids())
    assert len(watch.poll().removed) == 10
    plain_add(watched, "x")
    assert watch.poll().added == ["x"]


def test_text_replaced_in_place_is_read_fresh(watched: MemoryBank) -> None:
    watch = watched.watch()
    watched.content.collection.update(ids=["m1"], documents=["theirs"], embeddings=[[2.0] * 16])
    assert not watch.poll(force=True)
    assert watched.get(["m1"])[0].text == "theirs"


def test_another_process_adds(
    tmp_path: Path, open_bank: OpenBank, name: str, rng: np.random.Generator
) -> None:
    bank = open_bank()
    fill(bank, rng, rows=3)
    watch = bank.watch()
    code = f"""
import chromadb
c = chromadb.PersistentClient({str(tmp_path / "chroma")!r}).get_collection({name!r}, embedding_function=None)
c.delete(ids=["m2"]); c.add(ids=["theirs"], embeddings=[[1.0] * 16])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    change = watch.poll()
    assert (change.added, change.removed) == (["theirs"], ["m2"])
    assert bank.get(["theirs"])[0].text == ""
    assert bank.weights(["theirs"]).tolist() == [1]
    assert bank.sweep(ForgettingConfig()).memories == 3


def test_a_tenant_sees_its_own_only(open_bank: OpenBank, rng: np.random.Generator) -> None:
    ada = open_bank(where={"user": "ada"})
    ada.add(["a"], ids=["a"], embeddings=unit_rows(rng, 1, 16))
    watch = ada.watch()
    ada.content.collection.add(
        ids=["b1", "a1"], embeddings=np.ones((2, 16)), metadatas=[{"user": "bob"}, {"user": "ada"}]
    )
    assert watch.poll().added == ["a1"]
    ada.content.collection.delete(ids=["b1"])
    assert not watch.poll()


def test_a_failed_look_loses_no_change(bank: MemoryBank, rng: np.random.Generator, tmp_path: Path) -> None:
    fill(bank, rng, rows=3)
    client = chromadb.PersistentClient(str(tmp_path / "chroma"))
    name = bank.content.name
    watch = bank.watch()
    plain_add(bank, "x")
    client.get_collection(name, embedding_function=None).modify(name=name + "-moved")
    client.delete_collection(name + "-moved")
    for _ in range(2):
        with pytest.raises(BankNotFoundError, match="is gone"):
            watch.poll()
