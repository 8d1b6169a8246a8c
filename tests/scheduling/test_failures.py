"""A dream that fails never reaches the caller and is never silent: counted, shown, logged, told, retried."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from shared_core.bank import MemoryBank
from shared_core.errors import ConfigError, StateError
from shared_core.scheduling import SchedulerConfig, TriggerConfig
from tests.scheduling.conftest import MakeScheduler
from tests.scheduling.jobs import SECONDS, Events, Failing, Gate, pages

THREE_TRIES = SchedulerConfig(kind="sweep", debounce=0.0, backoff=0.0, retries=2)


def test_a_failure_is_tried_again_and_forgotten_once_it_works(
    schedule: MakeScheduler, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    dream = Failing(ValueError("no\x1b[31m luck"), SystemExit("job called sys.exit"))
    scheduler = schedule(dream=dream, config=THREE_TRIES)
    ticket = scheduler.request()
    assert scheduler.flush(SECONDS)
    status = scheduler.status()
    assert dream.attempts == [1, 2, 3]
    assert (status.state, status.runs, status.failures, status.last_error) == ("idle", 1, 2, None)
    assert status.history[0]["attempts"] == 3
    failed = events.wait_for("failed", 2)
    assert (failed["ticket"], failed["error"], failed["attempt"]) == (
        ticket["id"],
        "SystemExit: job called sys.exit",
        2,
    )
    logged = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(logged) == 2
    assert all(record.exc_info for record in logged)


def test_it_gives_up_after_the_last_retry_and_says_so(
    schedule: MakeScheduler, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    dream = Failing(*(OSError(f"disk {n}") for n in range(3)))
    scheduler = schedule(dream=dream, config=THREE_TRIES, triggers=TriggerConfig(new_pages=2))
    scheduler.ingest(pages(2))
    scheduler.tick()
    assert scheduler.flush(SECONDS)
    status = scheduler.status()
    assert (status.state, status.gave_up, status.failures, status.runs) == ("stopped", 1, 3, 0)
    assert status.last_error == "OSError: disk 2"
    assert (status.history[0]["outcome"], status.history[0]["error"]) == ("gave_up", "OSError: disk 2")
    assert events.wait_for("gave_up")["error"] == "OSError: disk 2"
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
    # the pages are still owed a dream, but it is not tried at every turn for ever
    ticket = scheduler.tick()
    assert (ticket["state"], ticket["reason"], ticket["new_pages"]) == ("stopped", "OSError: disk 2", 2)
    assert dream.attempts == [1, 2, 3]
    scheduler.request()
    assert scheduler.flush(SECONDS)
    status = scheduler.status()
    assert (status.state, status.runs, status.last_error, status.new_pages) == ("idle", 1, None, 0)


def test_what_is_set_up_wrongly_is_not_tried_again(schedule: MakeScheduler) -> None:
    dream = Failing(ConfigError("no embedder"))
    scheduler = schedule(dream=dream, config=THREE_TRIES)
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert dream.attempts == [1]
    assert scheduler.status().state == "stopped"


def test_a_dream_without_a_report_is_set_up_wrongly(schedule: MakeScheduler) -> None:
    scheduler = schedule(dream=lambda _request: None)
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert str(scheduler.status().last_error).startswith("ConfigError: a dream returned NoneType")


def test_the_back_off_is_kept_by_ticks_and_skipped_by_a_request(
    schedule: MakeScheduler, events: Events
) -> None:
    dream = Failing(OSError("down"))
    config = SchedulerConfig(kind="sweep", debounce=0.0, backoff=3600.0, max_backoff=3600.0)
    scheduler = schedule(dream=dream, config=config, triggers=TriggerConfig(new_pages=1))
    scheduler.ingest(pages(1))
    first = scheduler.tick()
    assert events.wait_for("failed")["retry_in"] == 3600.0
    while scheduler.status().state != "waiting":
        time.sleep(0.001)
    assert 3500 < (scheduler.status().retry_in or 0) <= 3600
    assert scheduler.tick()["state"] == "coalesced"
    assert not scheduler.flush(0.05)
    assert dream.attempts == [1]
    assert scheduler.request()["id"] == first["id"]
    assert scheduler.flush(SECONDS)
    assert dream.attempts == [1, 2]


def test_a_request_that_came_while_a_try_failed_is_answered_by_the_next(schedule: MakeScheduler) -> None:
    gate = Gate()
    tries: list[int] = []

    def dream(request: Any) -> Any:
        tries.append(request.attempt)
        gate(request)
        if len(tries) == 1:
            raise OSError("once")
        return {}

    scheduler = schedule(dream=dream)
    first = scheduler.request("sweep", reason="first")
    gate.wait_until_begun()
    second = scheduler.request("cycle", reason="second")
    gate.open()
    assert scheduler.flush(SECONDS)
    entry = scheduler.status().history[0]
    assert (entry["id"], entry["joined"], entry["kind"]) == (first["id"], [second["id"]], "both")
    assert entry["reasons"] == ["first", "second"]
    assert tries == [1, 2]


def test_an_error_in_the_callback_is_logged_and_harms_nothing(
    schedule: MakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Any) -> None:
        raise SystemExit if event["kind"] == "end" else RuntimeError("broken callback")

    scheduler = schedule(dream=Failing(OSError("x")), on_event=broken)
    scheduler.ingest(pages(1))
    scheduler.request()
    assert scheduler.flush(SECONDS)
    assert scheduler.status().runs == 1
    assert len(scheduler.bank) == 1
    assert {r.getMessage() for r in caplog.records if "on_event" in r.getMessage()} >= {
        "the scheduler's on_event failed on 'failed'",
        "the scheduler's on_event failed on 'end'",
        "the scheduler's on_event failed on 'ingested'",
    }


# ---- pages


class Broken:
    """An embedder that fails until it is mended."""

    def __init__(self, inner: Any, failures: float) -> None:
        self.inner = inner
        self.left = failures
        self.calls = 0

    def embed_documents(self, texts: list[str]) -> Any:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise ConnectionError("embedding service is down")
        return self.inner.embed_documents(texts)

    def embed_query(self, text: str) -> Any:
        return self.inner.embed_query(text)


def test_pages_that_could_not_be_written_are_kept_and_tried_again(
    schedule: MakeScheduler, bank: MemoryBank, events: Events
) -> None:
    bank.embedder = Broken(bank.embedder, failures=2)
    scheduler = schedule()
    scheduler.ingest(pages(3))
    assert scheduler.flush(SECONDS)
    assert bank.ids() == ["one-0", "one-1", "one-2"]
    status = scheduler.status()
    assert (status.ingested, status.failures, status.last_error, status.pending_pages) == (3, 2, None, 0)
    assert events.kinds() == ["ingest_failed", "ingest_failed", "ingested"]


def test_pages_outlive_a_long_failure_and_stay_retrievable(
    schedule: MakeScheduler, bank: MemoryBank, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(bank.embedder, failures=float("inf"))
    bank.embedder = broken
    scheduler = schedule(config=THREE_TRIES)
    scheduler.ingest(pages(2))
    assert events.wait_for("ingest_failed", 3)["retry_in"] is None
    assert not scheduler.flush(SECONDS)
    assert broken.calls == 4  # three tries, and the one that flush asks for
    assert scheduler.recent() == pages(2)
    status = scheduler.status()
    assert (status.state, status.pending_pages) == ("holding", 2)
    assert status.last_error == "ConnectionError: embedding service is down"
    assert any("2 are kept and tried again when more come" in r.getMessage() for r in caplog.records)
    # a dream does not wait for them for ever
    scheduler.request()
    assert not scheduler.flush(SECONDS)
    broken.left = 0
    scheduler.ingest(pages(1, first=2))
    assert scheduler.flush(SECONDS)
    assert bank.ids() == ["one-0", "one-1", "one-2"]
    assert scheduler.recent() == []
    assert (scheduler.status().last_error, scheduler.status().state) == (None, "idle")


def test_pages_that_can_never_be_written_are_put_aside_and_the_others_are_not(
    schedule: MakeScheduler, bank: MemoryBank, events: Events
) -> None:
    from dataclasses import replace

    scheduler = schedule()
    scheduler.ingest(pages(2))
    assert scheduler.flush(SECONDS)
    forged = replace(pages(1)[0], text="Ada never fed a swan")
    null = replace(pages(1, "null")[0], metadata={"bad": float("nan")})
    scheduler.ingest([*pages(3), forged, null, *pages(1, "two")])
    assert scheduler.flush(SECONDS)
    assert bank.ids() == ["one-0", "one-1", "one-2", "two-0"]
    assert scheduler.status().refused_pages == 2
    assert {event["page"] for event in events.seen if event["kind"] == "refused"} == {"one-0", "null-0"}
    refused = scheduler.refused()
    assert [page for page, _ in refused] == [forged, null]
    assert "stored with another text" in refused[0][1]
    assert scheduler.refused() == []


def test_the_same_pages_twice_are_stored_once(schedule: MakeScheduler, bank: MemoryBank) -> None:
    scheduler = schedule()
    for _ in range(3):
        scheduler.ingest(pages(2))
    assert scheduler.flush(SECONDS)
    scheduler.ingest(pages(2))
    assert scheduler.flush(SECONDS)
    assert bank.ids() == ["one-0", "one-1"]
    assert scheduler.status().new_pages == 2


def test_a_journal_that_cannot_be_read_loses_no_page(
    schedule: MakeScheduler, bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = schedule()

    def unreachable(*_args: Any, **_options: Any) -> Any:
        raise StateError("database is away")

    with monkeypatch.context() as patch:
        patch.setattr(bank.state, "runs", unreachable)
        scheduler.ingest(pages(4))
        assert scheduler.flush(SECONDS)
        assert (len(bank), scheduler.status().new_pages) == (4, 4)
    scheduler.ingest(pages(1, first=4))
    assert scheduler.flush(SECONDS)
    assert (len(bank), scheduler.status().new_pages) == (5, 5)


def test_what_is_no_page_is_refused_at_once(schedule: MakeScheduler, bank: MemoryBank) -> None:
    from shared_core.bank.conversation import Page
    from shared_core.errors import InvalidMemoryError

    scheduler = schedule()
    with pytest.raises(InvalidMemoryError, match="is no page"):
        scheduler.ingest([*pages(1), Page(text=" ", session="s")])
    assert scheduler.recent() == []
    bank.embedder = None
    with pytest.raises(ConfigError, match="with embedder="):
        scheduler.ingest(pages(1))


def test_recent_pages_are_there_until_they_are_stored(schedule: MakeScheduler, bank: MemoryBank) -> None:
    inside, go = threading.Event(), threading.Event()
    embed = bank.embedder

    class Slow:
        def embed_documents(self, texts: list[str]) -> Any:
            inside.set()
            assert go.wait(SECONDS)
            return embed.embed_documents(texts)  # type: ignore[union-attr]

        embed_query = None

    bank.embedder = Slow()  # type: ignore[assignment]
    scheduler = schedule()
    ticket = scheduler.ingest(pages(2))
    assert inside.wait(SECONDS)
    assert (ticket["state"], ticket["pending_pages"], ticket["new_pages"]) == ("accepted", 2, 2)
    assert (len(bank), scheduler.recent()) == (0, pages(2))
    go.set()
    assert scheduler.flush(SECONDS)
    assert (len(bank), scheduler.recent()) == (2, [])
