"""A bank with MiniLM, and schedulers that are closed at a test's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.scheduling import DreamScheduler
from tests.conftest import OpenBank
from tests.scheduling.jobs import AT_ONCE, NEVER, Events

MakeScheduler = Callable[..., DreamScheduler]


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    return open_bank(embedder=embedder)


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def schedule(bank: MemoryBank, events: Events) -> Iterator[MakeScheduler]:
    """Make schedulers on the test's bank: no debounce, no back-off and no triggers unless it says so."""
    made: list[DreamScheduler] = []

    def make(**options: Any) -> DreamScheduler:
        options = {"config": AT_ONCE, "triggers": NEVER, "on_event": events, **options}
        scheduler = DreamScheduler(options.pop("bank", bank), **options)
        made.append(scheduler)
        return scheduler

    yield make
    for scheduler in made:
        scheduler.close(timeout=20.0)
