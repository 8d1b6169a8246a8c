"""A scheduler whose bank keeps its state in a real PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.embedding import WordLlamaEmbedder
from shared_core.scheduling import SchedulerConfig, TriggerConfig
from tests.conftest import OpenBank
from tests.scheduling.conftest import MakeScheduler
from tests.scheduling.jobs import SECONDS, Events, pages

BOTH = SchedulerConfig(kind="both", debounce=0.0, backoff=0.05)
TEN = TriggerConfig(new_pages=10)


@pytest.fixture
def open_shared(open_bank: OpenBank, chroma_server: str, postgres_url: str) -> Any:
    pytest.importorskip("wordllama")
    words = WordLlamaEmbedder()

    def opened(**options: Any) -> MemoryBank:
        return open_bank(chroma_server, embedder=words, state_url=postgres_url, **options)

    return opened


def test_schedulers_of_two_hosts_count_together_and_dream_once(
    schedule: MakeScheduler, open_shared: Any, events: Events
) -> None:
    here, there = open_shared(), open_shared()
    one = schedule(bank=here, config=BOTH, triggers=TEN)
    other = schedule(bank=there, config=BOTH, triggers=TEN, on_event=None)
    one.ingest(pages(6))
    assert one.tick()["state"] == "not_due"
    assert one.flush(SECONDS)
    other.ingest(pages(4, first=6))
    assert other.flush(SECONDS)
    assert other.tick()["state"] == "queued"
    assert other.flush(SECONDS)
    assert (other.status().runs, other.status().failures) == (1, 0)
    assert {"add", "sweep", "cycle"} <= {run.kind for run in here.runs()}

    # the other host learns from the journal that those pages were dreamt of
    one.ingest(pages(1, first=10))
    assert one.flush(SECONDS)
    assert one.status().new_pages == 1
    assert one.tick()["state"] == "not_due"
    assert [run.kind for run in there.runs() if run.kind in {"sweep", "cycle"}] == ["cycle", "sweep"]
    assert len({memory.id for memory in here if memory.text}) >= 11


def test_a_dream_waits_for_another_hosts_lock_in_postgresql(
    schedule: MakeScheduler, open_shared: Any, events: Events
) -> None:
    here, there = open_shared(), open_shared()
    scheduler = schedule(bank=here, config=BOTH, triggers=TEN)
    scheduler.ingest(pages(10))
    with there.state.lock("sweep"):
        scheduler.request()
        events.wait_for("locked")
        assert "sweep by pid" in str(scheduler.status().lock_holder)
        assert scheduler.status().runs == 0
    assert scheduler.flush(SECONDS)
    assert (scheduler.status().runs, scheduler.status().failures) == (1, 0)
    assert {run.kind for run in there.runs()} >= {"add", "sweep", "cycle"}
