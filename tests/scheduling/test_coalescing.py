"""Requests become dreams: nothing is lost, nothing runs twice at once, and tickets tell what came of it."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from shared_core.bank import MemoryBank
from shared_core.errors import ConfigError, SchedulerError
from shared_core.scheduling import SchedulerConfig, TriggerConfig
from tests.scheduling.conftest import MakeScheduler
from tests.scheduling.jobs import SECONDS, Events, Gate, in_threads, pages


def test_any_number_of_requests_during_a_dream_leads_to_exactly_one_more(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)
    first = scheduler.request(reason="first")
    gate.wait_until_begun()
    during = [scheduler.request(reason=f"during {n}") for n in range(5)]
    assert [ticket["state"] for ticket in during] == ["queued", *["coalesced"] * 4]
    assert len({ticket["id"] for ticket in during}) == 1
    assert during[0]["id"] != first["id"]
    assert all(ticket["dreaming"] for ticket in during)
    gate.open()
    assert scheduler.flush(SECONDS)
    reasons = [f"during {n}" for n in range(5)]
    assert gate.requests == [(first["id"], "sweep", ["first"]), (during[0]["id"], "sweep", reasons)]


def test_requests_from_many_threads_are_all_followed_by_a_dream(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)
    scheduler.request()
    gate.wait_until_begun()
    in_threads(16, lambda n: [scheduler.request(reason=f"{n}") for _ in range(50)] and None)
    gate.open()
    assert scheduler.flush(SECONDS)
    assert len(gate.requests) == 2
    assert sorted(gate.requests[1][2], key=int) == [str(n) for n in range(16)]
    assert gate.most_at_once == 1
    assert scheduler.status().runs == 2


def test_no_request_is_lost_while_dreams_end(schedule: MakeScheduler) -> None:
    gate = Gate()
    gate.open(100_000)
    scheduler = schedule(dream=gate)
    wanted: set[str] = set()

    def ask(number: int) -> None:
        for turn in range(100):
            reason = f"{number}-{turn}"
            scheduler.request(reason=reason)
            wanted.add(reason)

    in_threads(8, ask)
    assert scheduler.flush(SECONDS)
    assert {reason for _, _, reasons in gate.requests for reason in reasons} == wanted
    assert gate.most_at_once == 1


def test_kinds_are_joined(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)
    scheduler.request("cycle")
    gate.wait_until_begun()
    scheduler.request("sweep")
    scheduler.request("sweep")
    assert scheduler.request("cycle")["kind"] == "both"
    gate.open()
    assert scheduler.flush(SECONDS)
    assert [kind for _, kind, _ in gate.requests] == ["cycle", "both"]


def test_cancelling_ends_the_running_dream_and_keeps_the_one_that_waits(
    schedule: MakeScheduler, events: Events
) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)
    scheduler.request(reason="old")
    gate.wait_until_begun()
    newer = scheduler.request(reason="new")
    scheduler.cancel()
    gate.open()
    assert scheduler.flush(SECONDS)
    status = scheduler.status()
    assert [(entry["outcome"], entry["reasons"]) for entry in status.history] == [
        ("done", ["new"]),
        ("cancelled", ["old"]),
    ]
    assert (status.runs, status.cancelled, status.failures) == (1, 1, 0)
    assert status.history[0]["id"] == newer["id"]
    assert [kind for kind in events.kinds() if kind != "start"] == ["cancelled", "end"]


def test_a_cancelled_dream_leaves_its_triggers_due(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate, triggers=TriggerConfig(new_pages=3, confidence_window=1))
    scheduler.ingest(pages(3))
    scheduler.observe(0.1)
    assert scheduler.tick()["reason"] == "new_pages, confidence"
    gate.wait_until_begun()
    assert scheduler.tick()["state"] == "not_due"
    scheduler.cancel()
    gate.open()
    assert scheduler.flush(SECONDS)
    assert scheduler.tick()["reason"] == "new_pages, confidence"
    assert scheduler.flush(SECONDS)
    assert scheduler.tick() == {
        "id": None,
        "state": "not_due",
        "kind": None,
        "reason": "",
        "pending_pages": 0,
        "new_pages": 0,
        "dreaming": False,
    }


def test_pages_that_come_during_a_dream_count_for_the_next(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate, triggers=TriggerConfig(new_pages=3))
    scheduler.ingest(pages(3))
    first = scheduler.tick()
    gate.wait_until_begun()
    scheduler.ingest(pages(2, first=3))
    assert scheduler.tick()["state"] == "not_due"
    scheduler.ingest(pages(1, first=5))
    second = scheduler.tick()
    assert (first["state"], second["state"]) == ("queued", "queued")
    assert (first["new_pages"], second["new_pages"]) == (3, 3)
    gate.open()
    assert scheduler.flush(SECONDS)
    assert len(gate.requests) == 2
    assert scheduler.tick()["new_pages"] == 0


def test_a_triggered_dream_waits_for_quiet_and_flush_does_not(schedule: MakeScheduler) -> None:
    gate = Gate()
    config = SchedulerConfig(kind="sweep", debounce=3600.0, max_delay=7200.0)
    scheduler = schedule(dream=gate, config=config, triggers=TriggerConfig(new_pages=1))
    scheduler.ingest(pages(1))
    assert scheduler.tick()["state"] == "queued"
    assert scheduler.tick()["state"] == "coalesced"
    assert (scheduler.status().state, gate.requests) == ("waiting", [])
    assert not scheduler.flush(0.0)
    gate.open()
    assert scheduler.flush(SECONDS)
    assert len(gate.requests) == 1


def test_debounce_starts_anew_with_each_page_until_the_longest_delay(schedule: MakeScheduler) -> None:
    gate = Gate()
    gate.open()
    config = SchedulerConfig(kind="sweep", debounce=0.3, max_delay=0.9)
    scheduler = schedule(dream=gate, config=config, triggers=TriggerConfig(new_pages=1))
    started = time.monotonic()
    scheduler.ingest(pages(1))
    scheduler.tick()
    number = 1
    while not gate.requests:
        scheduler.ingest(pages(1, first=number))
        number += 1
        time.sleep(0.02)
        assert time.monotonic() - started < SECONDS
    # without the limit pages would put it off for ever; without starting anew it would begin after 0.3 s
    assert time.monotonic() - started >= 0.85


def test_a_request_is_not_debounced(schedule: MakeScheduler) -> None:
    gate = Gate()
    gate.open()
    config = SchedulerConfig(kind="sweep", debounce=3600.0, max_delay=7200.0)
    schedule(dream=gate, config=config).request()
    gate.wait_until_begun()


def test_a_dream_sees_the_pages_that_were_handed_in_before_it(schedule: MakeScheduler) -> None:
    seen: list[int] = []

    def count(_request: object) -> dict[str, int]:
        seen.append(len(scheduler.bank))
        return {}

    scheduler = schedule(dream=count)
    scheduler.ingest(pages(5))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert seen == [5]


def test_tickets_status_and_events_are_plain_json(schedule: MakeScheduler, events: Events) -> None:
    import numpy as np

    def dream(request: object) -> dict[str, object]:
        return {"f1": np.float32(0.5), "rows": (1, 2), 3: np.arange(2), "nested": [{"a": np.int64(1)}]}

    scheduler = schedule(dream=dream)
    ticket = scheduler.request()
    scheduler.ingest(pages(2))
    assert scheduler.flush(SECONDS)
    status = scheduler.status().to_dict()
    for value in (ticket, status, list(map(dict, events.seen))):
        assert json.loads(json.dumps(value)) == value
    assert status["history"][0]["report"] == {
        "f1": 0.5,
        "rows": [1, 2],
        "3": [0, 1],
        "nested": [{"a": 1}],
    }
    assert {event["ticket"] for event in events.seen if event["kind"] in {"start", "end"}} == {ticket["id"]}


def test_history_is_bounded_and_newest_first(schedule: MakeScheduler) -> None:
    gate = Gate()
    gate.open()
    scheduler = schedule(dream=gate, config=SchedulerConfig(kind="sweep", debounce=0.0, history=2))
    for number in range(4):
        scheduler.request(reason=str(number))
        assert scheduler.flush(SECONDS)
    assert [entry["reasons"] for entry in scheduler.status().history] == [["3"], ["2"]]
    assert scheduler.status().runs == 4


def test_waiting_for_itself_is_refused(schedule: MakeScheduler) -> None:
    def dream(_request: object) -> dict[str, object]:
        scheduler.flush(1.0)
        return {}

    scheduler = schedule(dream=dream, config=SchedulerConfig(kind="sweep", debounce=0.0, retries=0))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert str(scheduler.status().last_error).startswith(f"{SchedulerError.__name__}: flush was called from")


class Watched:
    """Something of the bank's that notes which threads touch it."""

    def __init__(self, inner: Any, threads: set[str]) -> None:
        self._inner = inner
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        self._threads.add(threading.current_thread().name)
        return getattr(self._inner, name)


def test_no_call_of_a_turn_touches_the_bank(schedule: MakeScheduler, bank: MemoryBank) -> None:
    threads: set[str] = set()
    scheduler = schedule(triggers=TriggerConfig(new_pages=3, confidence_window=1))
    for part in ("_state", "_content", "embedder"):
        setattr(bank, part, Watched(getattr(bank, part), threads))
    for number in range(10):
        scheduler.ingest(pages(1, first=number))
        scheduler.observe(0.1)
        scheduler.tick()
        scheduler.status()
        scheduler.recent()
        scheduler.request()
        scheduler.cancel()
    assert scheduler.flush(SECONDS)
    assert {"dream-pages", "dream-worker"} <= threads
    assert threading.current_thread().name not in threads


def test_what_makes_no_sense_is_refused_at_once(schedule: MakeScheduler) -> None:
    scheduler = schedule()
    with pytest.raises(ConfigError, match="kind='nap' is not one of sweep, cycle, both"):
        scheduler.request("nap")
    with pytest.raises(ConfigError, match="must be a finite number"):
        scheduler.observe(float("nan"))
    with pytest.raises(ConfigError, match="takes a MemoryBank, not str"):
        schedule(bank="bank")
