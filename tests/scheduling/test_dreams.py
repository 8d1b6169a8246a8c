"""Real dreams of a real bank: sweeps and cycles, embedded and on a server, counted by the journal."""

from __future__ import annotations

from typing import Any

import pytest

from shared_core import ForgettingConfig, MemoryBank
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.scheduling import BankDream, DreamRequest, SchedulerConfig, TriggerConfig
from tests.conftest import OpenBank
from tests.scheduling.conftest import MakeScheduler
from tests.scheduling.jobs import NEVER, SECONDS, Events, pages

BOTH = SchedulerConfig(kind="both", debounce=0.0, backoff=0.0)
CYCLE = SchedulerConfig(kind="cycle", debounce=0.0, backoff=0.0)
TEN = TriggerConfig(new_pages=10)


@pytest.fixture(params=["embedded", "server"])
def located(
    request: pytest.FixtureRequest,
    open_bank: OpenBank,
    embedder: SentenceTransformerEmbedder,
    tmp_path: Any,
) -> MemoryBank:
    if request.param == "embedded":
        return open_bank(embedder=embedder)
    url = request.getfixturevalue("chroma_server")
    return open_bank(url, embedder=embedder, state_url=f"sqlite:///{tmp_path / 'state.sqlite3'}")


def test_pages_trigger_a_sweep_and_a_cycle(
    schedule: MakeScheduler, located: MemoryBank, events: Events
) -> None:
    scheduler = schedule(bank=located, config=BOTH, triggers=TEN)
    for number in range(9):
        scheduler.ingest(pages(1, first=number))
        assert scheduler.tick()["state"] == "not_due"
    scheduler.ingest(pages(1, first=9))
    assert scheduler.tick()["state"] == "queued"
    assert scheduler.flush(SECONDS)
    assert len(located) >= 10
    kinds = {run.kind for run in located.runs()}
    assert {"add", "sweep", "cycle"} <= kinds
    report = events.wait_for("end")["report"]
    assert report["sweep"]["memories"] == 10
    assert report["cycle"]["run_id"] in {run.run_id for run in located.runs() if run.kind == "cycle"}
    assert report["stopped_by"] is None
    assert [event["part"] for event in events.seen if event["kind"] == "part"] == ["sweep", "cycle"]
    assert scheduler.tick()["state"] == "not_due"
    assert scheduler.status().new_pages == 0


def test_an_empty_bank_dreams_too(schedule: MakeScheduler) -> None:
    scheduler = schedule(config=BOTH)
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert (scheduler.status().runs, scheduler.status().failures) == (1, 0)


def test_the_count_of_new_pages_survives_a_restart(schedule: MakeScheduler, bank: MemoryBank) -> None:
    first = schedule(triggers=TEN)
    first.ingest(pages(6))
    assert first.close(SECONDS)
    second = schedule(triggers=TEN)
    assert second.status().new_pages == 6
    second.ingest(pages(4, first=6))
    assert second.tick()["state"] == "queued"
    assert second.flush(SECONDS)
    third = schedule(triggers=TEN)
    assert third.status().new_pages == 0
    assert third.status().last_dream_at is not None


def test_schedulers_of_one_bank_count_together(schedule: MakeScheduler) -> None:
    one, other = schedule(triggers=TEN), schedule(triggers=TEN)
    one.ingest(pages(6))
    assert one.flush(SECONDS)
    other.ingest(pages(4, first=6))
    assert other.flush(SECONDS)
    assert other.tick()["state"] == "queued"
    assert other.flush(SECONDS)
    one.ingest(pages(1, first=10))
    assert one.flush(SECONDS)
    assert (one.status().new_pages, one.tick()["state"]) == (1, "not_due")


def test_what_was_undone_or_cut_short_is_no_dream(schedule: MakeScheduler, bank: MemoryBank) -> None:
    scheduler = schedule(triggers=TEN)
    scheduler.ingest(pages(10))
    assert scheduler.tick()["state"] == "queued"
    assert scheduler.flush(SECONDS)
    bank.undo(bank.runs(1)[0].run_id)
    assert schedule(triggers=TEN).tick()["new_pages"] == 10


def test_a_cycle_that_was_killed_is_no_dream(schedule: MakeScheduler, bank: MemoryBank) -> None:
    scheduler = schedule()
    scheduler.ingest(pages(10))
    assert scheduler.flush(SECONDS)
    # what a process leaves that is killed in a cycle: begun, and never told how it ended
    with bank.state.lock("cycle") as lock, bank.state.transaction("cycle", lock=lock) as run:
        run.report = {"state": "running, or ended without a report"}
    assert schedule(config=CYCLE, triggers=TEN).tick()["state"] == "queued"
    bank.state.amend_report(run.run_id, {"stopped_by": "converged"})
    assert schedule(config=CYCLE, triggers=TEN).tick()["state"] == "not_due"


def test_sweeps_alone_do_not_count_as_cycles(schedule: MakeScheduler, bank: MemoryBank) -> None:
    scheduler = schedule()
    scheduler.ingest(pages(10))
    scheduler.request("sweep")
    assert scheduler.flush(SECONDS)
    assert schedule(triggers=TEN).tick()["state"] == "not_due"
    assert schedule(config=BOTH, triggers=TEN).tick()["state"] == "queued"


def test_elapsed_time_is_told_by_the_journal(schedule: MakeScheduler) -> None:
    scheduler = schedule()
    scheduler.ingest(pages(1))
    assert scheduler.flush(SECONDS)
    soon = TriggerConfig(new_pages=None, max_seconds=1e-9)
    assert schedule(triggers=TriggerConfig(max_seconds=3600.0)).tick()["state"] == "not_due"
    later = schedule(triggers=soon)
    assert later.tick()["reason"] == "elapsed"
    assert later.flush(SECONDS)


def test_a_cycle_is_cancelled_at_a_repair_boundary(schedule: MakeScheduler, bank: MemoryBank) -> None:
    scheduler = schedule(config=BOTH, on_event=lambda event: event["kind"] == "part" and scheduler.cancel())
    scheduler.ingest(pages(12))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    entry = scheduler.status().history[0]
    assert entry["outcome"] == "cancelled"
    assert entry["report"]["sweep"]["memories"] == 12
    assert entry["report"]["cycle"] is None
    assert entry["report"]["stopped_by"] == "cancelled"
    assert bank.state.lock_holder() is None


def test_a_sweep_that_is_cancelled_writes_nothing(bank: MemoryBank, schedule: MakeScheduler) -> None:
    scheduler = schedule()
    scheduler.ingest(pages(12))
    assert scheduler.flush(SECONDS)
    asked = 0

    class Stopping(DreamRequest):
        def should_stop(self) -> bool:
            nonlocal asked
            asked += 1
            return asked > 3

    report = BankDream(bank)(Stopping(kind="sweep", reasons=[]))
    assert report == {"kind": "sweep", "sweep": None, "cycle": None, "stopped_by": "cancelled"}
    assert [run.kind for run in bank.runs()] == ["add"]
    assert bank.state.lock_holder() is None


def test_a_part_that_was_done_is_not_done_again_unless_pages_came(
    bank: MemoryBank, schedule: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shared_core.agents import DreamCycle

    run, tries = DreamCycle.run, []

    def failing(self: Any, **options: Any) -> Any:
        tries.append(len(bank))
        if len(tries) < 3:
            if len(tries) == 2:
                scheduler.ingest(pages(1, first=12))
            raise OSError("the model's server is away")
        return run(self, **options)

    monkeypatch.setattr(DreamCycle, "run", failing)
    scheduler = schedule(config=BOTH)
    scheduler.ingest(pages(12))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert [record.kind for record in bank.runs() if record.kind in {"sweep", "cycle"}] == [
        "cycle",
        "sweep",
        "sweep",
    ]
    assert tries == [12, 12, 13]


def test_repairs_can_be_asked_for_approval(bank: MemoryBank, schedule: MakeScheduler) -> None:
    asked = []

    def refuse(repair: Any) -> bool:
        asked.append(repair.id)
        return False

    dream = BankDream(bank, sweep=ForgettingConfig(), approve=refuse)
    scheduler = schedule(config=CYCLE, dream=dream, triggers=NEVER)
    scheduler.ingest(pages(12))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    report = scheduler.status().history[0]["report"]["cycle"]
    assert report["repairs"] == []
    assert asked


def test_further_listeners_are_told_until_they_leave(schedule: MakeScheduler, events: Events) -> None:
    scheduler = schedule(dream=lambda _request: {})
    more: list[str] = []
    leave = scheduler.subscribe(lambda event: more.append(event["kind"]))
    scheduler.request("sweep")
    assert scheduler.flush(SECONDS)
    leave()
    leave()
    scheduler.request("sweep")
    assert scheduler.flush(SECONDS)
    assert more == ["start", "end"]
    assert events.kinds() == ["start", "end", "start", "end"]
