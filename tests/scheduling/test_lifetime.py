"""Closed, forgotten, exited, forked, shared: a scheduler hangs nothing and loses no page."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError, SchedulerError
from shared_core.scheduling import DreamScheduler, SchedulerConfig, TriggerConfig
from tests.conftest import OpenBank
from tests.scheduling.conftest import MakeScheduler
from tests.scheduling.jobs import AT_ONCE, NEVER, SECONDS, Gate, in_threads, pages

ROOT = Path(__file__).resolve().parents[2]


def our_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name in {"dream-pages", "dream-worker"}]


def test_closing_writes_the_pages_and_refuses_more(schedule: MakeScheduler, bank: MemoryBank) -> None:
    scheduler = schedule()
    scheduler.ingest(pages(5))
    assert scheduler.close(SECONDS)
    assert len(bank) == 5
    assert scheduler.close(SECONDS)
    assert scheduler.status().state == "closed"
    assert scheduler.tick()["state"] == "closed"
    assert scheduler.request()["state"] == "closed"
    with pytest.raises(SchedulerError, match="closed"):
        scheduler.ingest(pages(1))


def test_closing_cancels_what_runs_and_drops_what_waits(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)
    scheduler.request(reason="runs")
    gate.wait_until_begun()
    scheduler.request(reason="waits")
    assert not scheduler.close(0.01)
    gate.open()
    assert scheduler.close(SECONDS)
    history = [(entry["outcome"], entry["reasons"]) for entry in scheduler.status().history]
    assert history == [("cancelled", ["runs"]), ("dropped", ["waits"])]


def test_closing_says_what_could_not_be_written(
    schedule: MakeScheduler, bank: MemoryBank, caplog: pytest.LogCaptureFixture
) -> None:
    class Down:
        def embed_documents(self, texts: list[str]) -> Any:
            raise ConnectionError("down")

        embed_query = None

    bank.embedder = Down()  # type: ignore[assignment]
    config = SchedulerConfig(kind="sweep", backoff=3600.0, max_backoff=3600.0)
    scheduler = schedule(config=config)
    scheduler.ingest(pages(2))
    assert not scheduler.close(SECONDS)
    assert scheduler.recent() == pages(2)
    assert any("closed with 2 pages unwritten" in r.getMessage() for r in caplog.records)
    assert our_threads() == []


def test_an_idle_scheduler_has_no_thread_and_is_collected(bank: MemoryBank, schedule: MakeScheduler) -> None:
    scheduler = DreamScheduler(bank, config=AT_ONCE, triggers=NEVER)
    scheduler.ingest(pages(2))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    deadline = time.monotonic() + SECONDS
    while our_threads():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    gone = weakref.ref(scheduler)
    del scheduler
    gc.collect()
    assert gone() is None


def test_what_is_forgotten_at_work_still_writes(bank: MemoryBank) -> None:
    DreamScheduler(bank, config=AT_ONCE, triggers=NEVER).ingest(pages(3))
    gc.collect()
    deadline = time.monotonic() + SECONDS
    while len(bank) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_context_manager_closes(bank: MemoryBank) -> None:
    with DreamScheduler(bank, config=AT_ONCE, triggers=NEVER) as scheduler:
        scheduler.ingest(pages(1))
    assert scheduler.status().state == "closed"
    assert len(bank) == 1


def test_a_bank_that_is_closed_lets_its_pages_be_written_first(
    schedule: MakeScheduler, bank: MemoryBank, open_bank: OpenBank
) -> None:
    scheduler = schedule()
    scheduler.ingest(pages(3))
    bank.close()
    assert scheduler.status().state == "closed"
    assert (scheduler.recent(), scheduler.status().pending_pages) == ([], 0)
    assert open_bank().ids() == ["one-0", "one-1", "one-2"]
    with pytest.raises(SchedulerError, match="the scheduler is closed"):
        scheduler.ingest(pages(1, "two"))


# ---- one per bank


def test_one_scheduler_per_bank_and_tenant(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder)
    triggers = TriggerConfig(new_pages=7)
    first = DreamScheduler.shared(bank, triggers=triggers)
    try:
        again = open_bank(embedder=embedder)
        assert DreamScheduler.shared(again) is first
        assert DreamScheduler.shared(again, triggers=TriggerConfig(new_pages=7)) is first
        with pytest.raises(ConfigError, match="has a scheduler already, with triggers="):
            DreamScheduler.shared(again, triggers=TriggerConfig(new_pages=8))
        tenant = DreamScheduler.shared(open_bank(embedder=embedder, where={"user": "ada"}))
        other = DreamScheduler.shared(open_bank(embedder=embedder, name="another"))
        assert len({first, tenant, other}) == 3
        found: list[DreamScheduler] = []
        in_threads(8, lambda _n: found.append(DreamScheduler.shared(again)))
        assert set(found) == {first}
    finally:
        first.close()
        tenant.close()
        other.close()
    made = DreamScheduler.shared(bank)
    assert made is not first
    bank.close()
    last = DreamScheduler.shared(again)
    assert last.bank is again
    for scheduler in (made, last):
        scheduler.close()


# ---- other processes


CHILD = """
import os, sys, threading, time
from shared_core import MemoryBank, packaged_embedder
from shared_core.scheduling import DreamScheduler, SchedulerConfig
from tests.scheduling.jobs import NEVER, pages
bank = MemoryBank.open(sys.argv[1], sys.argv[2], create=True)
config = SchedulerConfig(kind="sweep", debounce=0.0, exit_timeout=20.0)
"""


def run_child(code: str, tmp_path: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD + code, str(tmp_path / "chroma"), name],
        capture_output=True,
        check=False,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
    )


def test_the_exit_writes_pages_and_hangs_nowhere(open_bank: OpenBank, tmp_path: Path, name: str) -> None:
    code = """
bank.embedder = packaged_embedder()
s = DreamScheduler(bank, config=config, triggers=NEVER)
s.ingest(pages(100))
s.request()
"""
    ended = run_child(code, tmp_path, name)
    assert (ended.returncode, ended.stderr) == (0, "")
    bank = open_bank()
    assert len(bank) == 100
    assert bank.state.lock_holder() is None


def test_the_exit_waits_for_a_dream_no_longer_than_told(tmp_path: Path, name: str) -> None:
    ended = run_child(
        """
import logging
logging.basicConfig()
stuck = threading.Event()
begun = threading.Event()
def dream(request):
    begun.set()
    stuck.wait()
config = SchedulerConfig(kind="sweep", debounce=0.0, exit_timeout=0.2)
s = DreamScheduler(bank, config=config, triggers=NEVER, dream=dream)
s.request()
begun.wait()
""",
        tmp_path,
        name,
    )
    assert ended.returncode == 0
    assert "closed and its thread still runs after 0.2 s" in ended.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_is_refused_and_hangs_nowhere(tmp_path: Path, name: str) -> None:
    ended = run_child(
        """
inside, go = threading.Event(), threading.Event()
def dream(request):
    inside.set()
    go.wait()
    return {}
s = DreamScheduler(bank, config=config, triggers=NEVER, dream=dream)
s.request()
inside.wait()
child = os.fork()
if child == 0:
    from shared_core.errors import SchedulerError
    refused = 0
    calls = (s.tick, s.status, s.recent, s.request, s.close, s.cancel, lambda: s.ingest(pages(1)))
    for call in calls:
        try:
            call()
        except SchedulerError as error:
            assert "was made in process" in str(error)
            refused += 1
    print(refused, flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
go.set()
print(os.waitstatus_to_exitcode(status), s.flush(30), s.status().runs)
""",
        tmp_path,
        name,
    )
    assert ended.stdout == "7\n0 True 1\n", ended.stderr
