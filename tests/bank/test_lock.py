"""One dreamer at a time; a dead one is taken over, a live one never."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import update

from shared_core import BankState
from shared_core.bank import lock as lock_module
from shared_core.bank.lock import STALE_SECONDS, adding_lock, bank_lock, may_overlap
from shared_core.bank.schema import locks, writing
from shared_core.errors import BankLockedError, StateError


@pytest.fixture
def state(state_url: str, name: str) -> Iterator[BankState]:
    state = BankState(state_url, collection=name, name="n")
    yield state
    state.close()


def age(state: BankState, seconds: float, **values: object) -> None:
    with writing(state.engine) as connection:
        connection.execute(
            update(locks)
            .where(locks.c.bank_id == state.bank_id)
            .values(heartbeat_at=time.time() - seconds, **values)
        )


def holder(state_url: str, name: str, lock: str = "state.lock('theirs')") -> subprocess.Popen[str]:
    program = f"""
import time
from shared_core import BankState
from shared_core.bank.lock import adding_lock
state = BankState({state_url!r}, collection={name!r}, name="n")
with {lock}:
    print("held", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_two_threads_exclude_each_other(state: BankState) -> None:
    outcomes: list[str] = []

    def other() -> None:
        try:
            with state.lock("second", wait=0):
                outcomes.append("entered")
        except BankLockedError as error:
            outcomes.append(str(error))

    with state.lock("first"):
        assert "first by pid" in str(state.lock_holder())
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another process is at work on this bank: 'first' by pid" in outcomes[0]
    assert state.lock_holder() is None
    with state.lock("third", wait=0):
        pass


def test_short_writes_wait_for_each_other(state: BankState) -> None:
    failures: list[BaseException] = []

    def write(i: int) -> None:
        try:
            state.set_weights({"m": i / 10})
        except BankLockedError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(state.runs()) == 6


def test_a_live_process_excludes_and_a_dead_one_is_taken_over(
    state: BankState, state_url: str, name: str
) -> None:
    process = holder(state_url, name)
    with pytest.raises(BankLockedError, match=f"'theirs' by pid {process.pid}"), state.lock("mine", wait=0):
        pass
    process.kill()
    process.wait()
    started = time.monotonic()
    with state.lock("mine", wait=0):
        assert time.monotonic() - started < 1.0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="zombies are told on Linux alone")
def test_a_dead_process_that_nobody_waited_for_is_taken_over(
    state: BankState, state_url: str, name: str
) -> None:
    process = holder(state_url, name)
    process.kill()
    # what it had open is closed by then, and it is not reaped
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with state.lock("mine", wait=0):
        pass
    process.wait()


def test_a_lock_that_could_not_be_given_back_is_in_nobodys_way_here(
    state: BankState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(_table: object) -> None:
        raise StateError("the disk is full")

    with monkeypatch.context() as patched, state.lock("first", wait=0):
        patched.setattr(lock_module, "delete", refusing)
    assert "first" in (state.lock_holder() or "")
    with state.lock("second", wait=0):
        assert "second" in (state.lock_holder() or "")


def test_a_restarted_container_does_not_wait_for_its_dead_self(state: BankState) -> None:
    with state.lock("before the restart"):
        age(state, 0, token="ffffffffffffffff-0")  # noqa: S106  # same host and pid, another process
        with state.lock("after", wait=0):
            pass


def test_a_stale_heartbeat_is_taken_over_and_the_fence_refuses(state: BankState) -> None:
    with pytest.raises(BankLockedError, match=r"was taken over by another process.*nothing was written"):  # noqa: PT012, SIM117
        with state.lock("slow", wait=0) as slow:
            age(state, STALE_SECONDS - 5, host="elsewhere")
            with pytest.raises(BankLockedError), state.lock("too early", wait=0):
                pass
            age(state, STALE_SECONDS + 1)
            with state.lock("fast", wait=0) as fast:
                with state.transaction("reweight", lock=fast) as run:
                    run.set(["m"], {"weight": [0.5]})
                with state.transaction("sweep", lock=slow) as run:
                    run.set(["m"], {"weight": [0.1]})
    assert state.weights(["m"]).tolist() == [0.5]
    assert [run.kind for run in state.runs()] == ["reweight"]


def test_the_heartbeat_keeps_the_lock(state: BankState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "HEARTBEAT_SECONDS", 0.05)
    with state.lock("beating") as held:
        age(state, STALE_SECONDS + 1, host="elsewhere")
        time.sleep(0.3)
        with pytest.raises(BankLockedError), state.lock("mine", wait=0):
            pass
        with state.transaction("reweight", lock=held) as run:
            run.set(["m"], {"weight": [0.5]})
    assert state.weights(["m"]).tolist() == [0.5]


def test_hosts_whose_clocks_disagree_do_not_take_over_a_live_lock(
    postgres_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = BankState(postgres_url, collection=name, name="n")
    with state.lock("theirs"):
        age(state, 0, host="elsewhere")
        monkeypatch.setattr(lock_module.time, "time", lambda now=time.time: now() + 2 * STALE_SECONDS)
        with pytest.raises(BankLockedError, match=r"on elsewhere, since \d s"), state.lock("mine", wait=0):
            pass
    state.close()


def test_additions_of_processes_queue_up_and_a_dead_one_is_forgotten(
    state: BankState, state_url: str, name: str
) -> None:
    process = holder(state_url, name, "adding_lock(state.engine, state.bank_id, 'c', shared=True)")
    entered = threading.Event()

    def add() -> None:
        with adding_lock(state.engine, state.bank_id, "c", shared=True):
            entered.set()

    waiting = threading.Thread(target=add)
    waiting.start()
    assert not entered.wait(0.5)
    with state.lock("dream", wait=0), state.transaction("reweight") as run:  # neither waits for an addition
        run.set(["m"], {"weight": [0.5]})
    process.kill()
    process.wait()
    assert entered.wait(10.0)
    waiting.join()


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("", "", True),
        ("", '{"u": 1}', True),
        ('{"u": 1}', '{"u": 1}', True),
        ('{"u": 1}', '{"u": 2}', False),
        ('{"u": 1}', '{"v": 2}', True),
        ('{"o": 1, "u": 1}', '{"o": 1, "u": 2}', False),
        ('{"o": 1, "u": 1}', '{"o": 1}', True),
        ('{"u": {"$ne": 1}}', '{"u": 1}', True),
        ('{"$and": [{"u": 1}]}', '{"$and": [{"u": 2}]}', True),
    ],
)
def test_only_tenants_that_cannot_share_a_memory_dream_together(
    state: BankState, one: str, other: str, overlap: bool
) -> None:
    assert may_overlap(one, other) == may_overlap(other, one) == overlap
    with bank_lock(state.engine, state.bank_id, one, "one"):
        if overlap:
            with pytest.raises(BankLockedError), bank_lock(state.engine, state.bank_id, other, "other"):
                pass
        else:
            with bank_lock(state.engine, state.bank_id, other, "other"):
                pass
