"""Killed at any instant: nothing is lost, and the state is the one before or the one after."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank
from shared_core.errors import BankLockedError, JournalError
from tests.conftest import OpenBank, fill

OPENING = """
import os, signal, sys, time
import numpy as np
from shared_core import ForgettingConfig, MemoryBank
from shared_core.bank.chroma import ChromaContent
from shared_core.bank.content_writer import ContentWriter
bank = MemoryBank.open({path!r}, {name!r}, state_url={url!r})
def die(*args, **kwargs):
    print("dying", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
AT = {
    "before the Chroma write": "ChromaContent.replace = die",
    "after the Chroma write": "ContentWriter._finish = die",
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def state_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state.sqlite3'}"
    return str(request.getfixturevalue("postgres_url"))


def child(bank: MemoryBank, tmp_path: Path, code: str) -> subprocess.Popen[str]:
    url = bank.state.engine.url.render_as_string(hide_password=False)
    opening = OPENING.format(path=str(tmp_path / "chroma"), name=bank.content.name, url=url)
    return subprocess.Popen([sys.executable, "-c", opening + code], stdout=subprocess.PIPE, text=True)


def snapshot(bank: MemoryBank) -> Any:
    with bank.content.anew() as content:  # Chroma caches what another process rewrote
        embeddings = {i: v.round(5).tolist() for i, v in content.get_embeddings(bank.ids()).items()}
    return [(m.id, m.text, m.metadata, m.state) for m in bank], embeddings


@pytest.fixture
def filled(open_bank: OpenBank, state_url: str, rng: np.random.Generator) -> MemoryBank:
    bank = open_bank(state_url=state_url)
    fill(bank, rng, rows=5)
    return bank


@pytest.mark.parametrize("instant", AT)
def test_killed_while_rewriting(
    filled: MemoryBank, open_bank: OpenBank, tmp_path: Path, state_url: str, instant: str
) -> None:
    before = snapshot(filled)
    run = child(
        filled,
        tmp_path,
        f"{AT[instant]}\nbank.update('m1', 'new', metadata={{'k': 1}}, embedding=np.ones(16))",
    )
    assert run.wait(60) == -signal.SIGKILL
    assert [r.status for r in filled.runs() if r.kind == "update"] == ["pending"]
    assert (filled.get(["m1"])[0].text == "new") == instant.startswith("after")
    again = open_bank(state_url=state_url)
    assert snapshot(again) == before
    aborted = next(r for r in again.runs() if r.kind == "update")
    assert aborted.status == "aborted"
    with pytest.raises(JournalError, match="is aborted, only an applied run"):
        again.undo(aborted.run_id)
    again.update("m1", "works again", embedding=np.ones(16))


@pytest.mark.parametrize("instant", AT)
def test_killed_while_undoing(
    filled: MemoryBank, open_bank: OpenBank, tmp_path: Path, state_url: str, instant: str
) -> None:
    run = filled.update("m1", "new", metadata={"k": 1}, embedding=np.eye(16)[1])
    before = snapshot(filled)
    killed = child(filled, tmp_path, f"{AT[instant]}\nbank.undo({run.run_id!r})")
    assert killed.wait(60) == -signal.SIGKILL
    again = open_bank(state_url=state_url)
    assert snapshot(again) == before
    again.undo(run.run_id)
    assert again.get(["m1"])[0].text == "memory 1"


def test_a_crashed_rewrite_never_overwrites_what_others_wrote_since(
    filled: MemoryBank, open_bank: OpenBank, tmp_path: Path, state_url: str
) -> None:
    run = child(
        filled, tmp_path, f"{AT['after the Chroma write']}\nbank.update('m1', 'new', embedding=np.ones(16))"
    )
    run.wait(60)
    filled.content.collection.update(ids=["m1"], documents=["theirs"], embeddings=[[2.0] * 16])
    assert open_bank(state_url=state_url).get(["m1"])[0].text == "theirs"


def test_a_pending_run_of_a_live_process_is_left_alone(
    filled: MemoryBank, open_bank: OpenBank, tmp_path: Path, state_url: str
) -> None:
    code = """
finish = ContentWriter._finish
def slowly(*args, **kwargs):
    print("writing", flush=True)
    time.sleep(1.2)
    finish(*args, **kwargs)
ContentWriter._finish = slowly
bank.update("m1", "new", embedding=np.ones(16))
"""
    process = child(filled, tmp_path, code)
    assert process.stdout is not None
    process.stdout.readline()
    other = open_bank(state_url=state_url)
    assert [r.status for r in other.runs() if r.kind == "update"] == ["pending"]
    assert other.get(["m1"])[0].text == "new"
    with pytest.raises(BankLockedError, match="'update' by pid"):
        other.sweep(ForgettingConfig())
    assert process.wait(60) == 0
    assert other.runs(1)[0].status == "applied"


def test_an_error_while_writing_is_rolled_back_at_once(
    filled: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(filled)
    finish = filled._writer._finish

    def failing(run_id: str, status: str, *rest: Any) -> None:
        if status == "applied":
            raise OSError("disk full")
        finish(run_id, status, *rest)

    monkeypatch.setattr(filled._writer, "_finish", failing)
    with pytest.raises(OSError, match="disk full"):
        filled.update("m1", "new", embedding=np.ones(16))
    assert snapshot(filled) == before
    assert [r.status for r in filled.runs() if r.kind == "update"] == ["aborted"]


def test_an_update_after_an_interrupted_one_starts_from_what_was_committed(
    filled: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(filled._writer, "_finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            filled.update("m1", "aborted", embedding=np.ones(16))
    run = filled.update("m1", metadata={"k": 1})
    memory = filled.get(["m1"])[0]
    assert (memory.text, memory.metadata) == ("memory 1", {"k": 1})
    filled.undo(run.run_id)
    assert (filled.get(["m1"])[0].text, filled.get(["m1"])[0].metadata) == ("memory 1", {})


def test_killed_between_storing_and_journalling_an_add(filled: MemoryBank, tmp_path: Path) -> None:
    code = "bank.state.transaction = die\nbank.add(['new'], ids=['new'], embeddings=np.ones((1, 16)))"
    assert child(filled, tmp_path, code).wait(60) == -signal.SIGKILL
    assert filled.get(["new"])[0].text == "new"
    assert filled.weights(["new"]).tolist() == [1]
    assert filled.sweep(ForgettingConfig()).memories == 6


SWEEPING = """
config = ForgettingConfig(eta=0.3, noise_ratio=0.5)
print("ready", flush=True)
sys.stdin.readline()
while True:
    report = bank.sweep(config)
    bank.undo(report.run_id)
"""


@pytest.mark.parametrize("kills", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (40, 41))])
def test_killed_during_sweeps(
    open_bank: OpenBank, tmp_path: Path, request: pytest.FixtureRequest, rng: np.random.Generator, kills: int
) -> None:
    postgres = kills % 2
    state_url = request.getfixturevalue("postgres_url") if postgres else f"sqlite:///{tmp_path / 's.sqlite3'}"
    bank = open_bank(state_url=state_url)
    fill(bank, rng, rows=400)
    ids = bank.ids()
    from shared_core import ForgettingConfig

    clean = bank.weights(ids)
    report = bank.sweep(ForgettingConfig(eta=0.3, noise_ratio=0.5))
    swept = bank.weights(ids)
    assert report.lowered > 20
    bank.undo(str(report.run_id))
    url = bank.state.engine.url.render_as_string(hide_password=False)
    opening = OPENING.format(path=str(tmp_path / "chroma"), name=bank.content.name, url=url)
    seen = set()
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", opening + SWEEPING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(random.uniform(0.0, 0.25))  # noqa: S311
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        now = bank.weights(ids)
        assert np.array_equal(now, clean) or np.array_equal(now, swept)
        seen.add(now.tobytes())
        newest = bank.runs(1)[0]
        assert newest.status == "applied"
        with bank.state.lock("next", wait=0):
            pass
        if np.array_equal(now, swept):
            bank.undo(newest.run_id)
    assert len(bank) == 400
    if kills > 10:
        assert len(seen) == 2
