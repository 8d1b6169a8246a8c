"""An asyncio app may ingest, tick and await dreams: nothing blocks its loop, nothing is lost at its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from shared_core.errors import SchedulerError
from shared_core.scheduling import SchedulerConfig, TriggerConfig
from tests.scheduling.conftest import MakeScheduler
from tests.scheduling.jobs import AT_ONCE, SECONDS, Failing, Gate, pages

BLOCKING_SECONDS = 0.05


async def test_a_dream_can_be_awaited(schedule: MakeScheduler) -> None:
    scheduler = schedule()
    scheduler.ingest(pages(4))
    report = await scheduler.adream()
    assert report["sweep"]["memories"] == 4
    assert await scheduler.aflush(SECONDS)


async def test_all_who_wait_get_the_report_of_a_dream_that_began_after_they_asked(
    schedule: MakeScheduler,
) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)
    first = asyncio.ensure_future(scheduler.adream())
    await asyncio.to_thread(gate.wait_until_begun)
    later = [asyncio.ensure_future(scheduler.adream()) for _ in range(5)]
    await asyncio.sleep(0)
    gate.open()
    assert (await first)["number"] == 1
    assert [report["number"] for report in await asyncio.gather(*later)] == [2] * 5


async def test_the_error_of_the_last_try_is_raised(schedule: MakeScheduler) -> None:
    scheduler = schedule(
        dream=Failing(OSError("one"), OSError("two")), config=SchedulerConfig(retries=1, backoff=0.0)
    )
    with pytest.raises(OSError, match="two"):
        await scheduler.adream()
    assert await scheduler.adream() == {"fine": True}


async def test_who_stops_waiting_stops_no_dream(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)
    waiting = asyncio.ensure_future(scheduler.adream())
    await asyncio.to_thread(gate.wait_until_begun)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.open()
    assert await scheduler.aflush(SECONDS)
    assert scheduler.status().runs == 1


async def test_closing_tells_who_waits(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)
    first = asyncio.ensure_future(scheduler.adream())
    await asyncio.to_thread(gate.wait_until_begun)
    second = asyncio.ensure_future(scheduler.adream())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(asyncio.to_thread(scheduler.close, SECONDS))
    with pytest.raises(SchedulerError, match="closed"):
        await second
    gate.open()
    assert (await first)["stopped_by"] == "cancelled"
    assert await closing
    with pytest.raises(SchedulerError, match="closed"):
        await scheduler.adream()


def test_a_dream_outlives_the_loop_that_asked_for_it(schedule: MakeScheduler) -> None:
    gate = Gate()
    scheduler = schedule(dream=gate)

    async def ask() -> None:
        waiting = asyncio.ensure_future(scheduler.adream())
        await asyncio.to_thread(gate.wait_until_begun)
        waiting.cancel()

    asyncio.run(ask())
    gate.open()
    assert scheduler.flush(SECONDS)
    assert scheduler.status().runs == 1


def test_nothing_blocks_the_loop(schedule: MakeScheduler, caplog: pytest.LogCaptureFixture) -> None:
    """Asyncio's debug mode names whatever held the loop for more than 50 ms."""
    dreaming = threading.Event()

    def on_event(event: Any) -> None:
        if event["kind"] == "start":
            dreaming.set()

    config = SchedulerConfig(kind="both", debounce=0.0)
    scheduler = schedule(config=config, triggers=TriggerConfig(new_pages=10), on_event=on_event)

    async def talk(number: int) -> None:
        for turn in range(10):
            scheduler.ingest(pages(1, f"talk-{number}", turn))
            scheduler.observe(0.5)
            scheduler.tick()
            scheduler.status()
            scheduler.recent()
            await asyncio.sleep(0.01)

    async def app() -> dict[str, Any]:
        asyncio.get_running_loop().slow_callback_duration = BLOCKING_SECONDS
        await asyncio.gather(*(talk(number) for number in range(4)))
        report = await scheduler.adream()
        assert await scheduler.aflush(SECONDS)
        return report

    with caplog.at_level(logging.WARNING, "asyncio"):
        report = asyncio.run(app(), debug=True)
    assert report["sweep"]["memories"] >= 40
    assert dreaming.is_set()
    assert [r.getMessage() for r in caplog.records if r.name == "asyncio"] == []


async def test_the_check_above_would_see_what_blocks(caplog: pytest.LogCaptureFixture) -> None:
    import time

    async def blocking() -> None:
        time.sleep(2 * BLOCKING_SECONDS)

    async def app() -> None:
        asyncio.get_running_loop().slow_callback_duration = BLOCKING_SECONDS
        await asyncio.ensure_future(blocking())

    with caplog.at_level(logging.WARNING, "asyncio"):
        await asyncio.to_thread(lambda: asyncio.run(app(), debug=True))
    assert any("took 0." in r.getMessage() for r in caplog.records)


async def test_an_async_app_needs_no_dream_to_end_well(schedule: MakeScheduler) -> None:
    scheduler = schedule(config=AT_ONCE)
    scheduler.ingest(pages(3))
    assert await asyncio.to_thread(scheduler.close, SECONDS)
    assert len(scheduler.bank) == 3
