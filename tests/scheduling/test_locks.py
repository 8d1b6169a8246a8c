"""One dream per bank, whoever dreams: a thread, a scheduler or a process; a killed one leaves no trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.scheduling import DreamScheduler, SchedulerConfig
from tests.conftest import OpenBank
from tests.scheduling.conftest import MakeScheduler
from tests.scheduling.jobs import SECONDS, Events, Failing, in_threads, pages

SOON = SchedulerConfig(kind="sweep", debounce=0.0, backoff=0.01, max_backoff=0.02)

CHILD = """
import os, signal, sys
from shared_core import MemoryBank, packaged_embedder
from shared_core.bank.content_writer import ContentWriter
from shared_core.scheduling import DreamScheduler, SchedulerConfig
from tests.scheduling.jobs import NEVER, pages
bank = MemoryBank.open(sys.argv[1], sys.argv[2], embedder=packaged_embedder())
def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
def scheduler(kind, **options):
    config = SchedulerConfig(kind=kind, debounce=0.0, backoff=0.01, max_backoff=0.02, retries=0)
    return DreamScheduler(bank, config=config, triggers=NEVER, **options)
"""


@pytest.fixture
def child(bank: MemoryBank, tmp_path: Path) -> Iterator[Any]:
    """Run code in another process that has the same bank open."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD + code, str(tmp_path / "chroma"), bank.content.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def test_a_held_bank_is_waited_for_and_no_failure(
    schedule: MakeScheduler, bank: MemoryBank, events: Events
) -> None:
    scheduler = schedule(config=SOON)
    scheduler.ingest(pages(3))
    assert scheduler.flush(SECONDS)
    with bank.state.lock("sweep"):
        ticket = scheduler.request()
        locked = events.wait_for("locked", 3)
        assert locked["ticket"] == ticket["id"]
        assert locked["holder"].startswith(f"sweep by pid {os.getpid()} on ")
        status = scheduler.status()
        assert status.lock_holder == locked["holder"]
        assert (status.failures, status.last_error, status.gave_up) == (0, None, 0)
        assert status.locked >= 3
        # readers and writers of pages do not wait for it
        scheduler.ingest(pages(1, first=3))
        events.wait_for("ingested", 2)
        assert len(bank.get(["one-3"])) == 1
    assert scheduler.flush(SECONDS)
    status = scheduler.status()
    assert (status.runs, status.lock_holder, status.history[0]["attempts"]) == (1, None, 1)


def test_waiting_for_a_held_bank_is_no_retry(schedule: MakeScheduler, events: Events) -> None:
    from shared_core.errors import BankLockedError

    held = [BankLockedError("held")] * 20
    scheduler = schedule(dream=Failing(*held), config=SchedulerConfig(kind="sweep", retries=0, backoff=0.0))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    status = scheduler.status()
    assert (status.locked, status.failures, status.runs, status.state) == (20, 0, 1, "idle")


def test_eight_schedulers_on_one_bank_dream_one_after_the_other(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder, schedule: MakeScheduler
) -> None:
    at_once, most = 0, 0
    guard = threading.Lock()
    schedulers: list[DreamScheduler] = []

    def sweeping(bank: MemoryBank) -> Any:
        def dream(_request: Any) -> dict[str, Any]:
            nonlocal at_once, most
            with bank.state.lock("sweep", wait=0.0):
                with guard:
                    at_once += 1
                    most = max(most, at_once)
                with guard:
                    at_once -= 1
            return bank.sweep().to_dict()

        return dream

    for _ in range(8):
        bank = open_bank(embedder=embedder)
        schedulers.append(schedule(bank=bank, dream=sweeping(bank), config=SOON))

    def live(number: int) -> None:
        schedulers[number].ingest(pages(3, f"thread-{number}"))
        schedulers[number].request()

    in_threads(8, live)
    assert all(scheduler.flush(SECONDS) for scheduler in schedulers)
    assert most == 1
    assert len(bank) == 24
    assert [scheduler.status().failures for scheduler in schedulers] == [0] * 8
    assert sum(run.kind == "sweep" for run in bank.runs()) == 8


def test_two_processes_on_one_bank(
    schedule: MakeScheduler, bank: MemoryBank, events: Events, child: Any
) -> None:
    scheduler = schedule(config=SOON)
    scheduler.ingest(pages(12))
    assert scheduler.flush(SECONDS)
    other = child("""
def hold(event):
    if event["kind"] == "part" and event["part"] == "sweep":
        print("done", flush=True)
def approve(repair):
    print("dreaming", flush=True)
    sys.stdin.readline()
    return True
from shared_core.scheduling import BankDream
s = scheduler("cycle", dream=BankDream(bank, approve=approve))
s.request()
assert s.flush(60)
assert s.status().runs == 1, s.status()
""")
    assert other.stdout.readline() == "dreaming\n"
    scheduler.request()
    holder = events.wait_for("locked")["holder"]
    assert holder.startswith(f"cycle by pid {other.pid} on ")
    assert scheduler.status().lock_holder == holder
    assert len(bank.get(["one-1"])) == 1
    other.stdin.write("go\n" * 100)
    other.stdin.flush()
    assert other.wait(SECONDS) == 0
    assert scheduler.flush(SECONDS)
    assert scheduler.status().runs == 1
    kinds = [run.kind for run in bank.runs() if run.status == "applied"]
    assert kinds.index("sweep") < kinds.index("cycle")


def survived(bank: MemoryBank, schedule: MakeScheduler) -> None:
    """Assert that a bank whose dreamer was killed is whole, and dreams again."""
    assert bank.state.lock_holder() is not None
    assert [run.status for run in bank.runs() if run.kind == "sweep"] == []
    scheduler = schedule(config=SOON)
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert scheduler.status().runs == 1
    assert scheduler.status().locked == 0
    assert bank.state.lock_holder() is None


def test_killed_within_a_sweeps_transaction(schedule: MakeScheduler, bank: MemoryBank, child: Any) -> None:
    before = {memory.id: memory for memory in filled(schedule, bank)}
    killed = child("""
from shared_core.bank.transaction import StateTransaction
StateTransaction.set = die
s = scheduler("sweep")
s.request()
s.flush(60)
""")
    assert killed.wait(SECONDS) == -signal.SIGKILL
    assert {memory.id: memory for memory in bank} == before
    survived(bank, schedule)


INSTANTS = {
    "before a repair": "repairing._write = die",
    "within its transaction": "repairing.write_keys = die",
    "after it": "on_event = lambda event: event['kind'] == 'repair' and die()",
}


@pytest.mark.parametrize(
    "instant",
    [
        "within its transaction",
        *(pytest.param(instant, marks=pytest.mark.slow) for instant in ("before a repair", "after it")),
    ],
)
def test_killed_while_a_repair_is_applied(
    schedule: MakeScheduler,
    open_bank: OpenBank,
    embedder: SentenceTransformerEmbedder,
    bank: MemoryBank,
    child: Any,
    instant: str,
) -> None:
    before = {memory.id: memory for memory in filled(schedule, bank)}
    killed = child(f"""
from shared_core.bank import repairing
on_event = None
{INSTANTS[instant]}
s = scheduler("cycle", on_event=on_event)
s.request()
s.flush(60)
""")
    assert killed.wait(SECONDS) == -signal.SIGKILL
    again = open_bank(embedder=embedder)
    cycle = next(run for run in again.runs() if run.kind == "cycle")
    repairs = [run for run in again.runs() if run.kind == "repair"]
    assert len(repairs) == (1 if instant == "after it" else 0)
    again.undo(cycle.run_id)
    alive = {memory.id: memory for memory in again if not memory.state.deleted}
    assert alive == before
    scheduler = schedule(bank=again, config=SchedulerConfig(kind="both", debounce=0.0))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert (scheduler.status().runs, scheduler.status().locked) == (1, 0)
    assert again.state.lock_holder() is None


def filled(schedule: MakeScheduler, bank: MemoryBank) -> MemoryBank:
    scheduler = schedule()
    scheduler.ingest(pages(12))
    assert scheduler.flush(SECONDS)
    return bank
