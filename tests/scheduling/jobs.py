"""Dreams that do what a test says, when it says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from shared_core.bank.conversation import Page
from shared_core.scheduling import DreamRequest, SchedulerConfig, TriggerConfig

SECONDS = 240.0
"""How long a test waits for what must happen: never reached unless something is broken."""
AT_ONCE = SchedulerConfig(kind="sweep", debounce=0.0, backoff=0.0)
NEVER = TriggerConfig(new_pages=None, min_confidence=None, max_seconds=None)


class Gate:
    """A dream that waits inside until it is let through."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.let_through = threading.Semaphore(0)
        self.requests: list[tuple[str, str, list[str]]] = []
        self.at_once = 0
        self.most_at_once = 0

    def __call__(self, request: DreamRequest) -> Mapping[str, Any]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.requests.append((request.id, request.kind, list(request.reasons)))
        self.begun.release()
        assert self.let_through.acquire(timeout=SECONDS)
        self.at_once -= 1
        return {"stopped_by": "cancelled" if request.should_stop() else None, "number": len(self.requests)}

    def wait_until_begun(self) -> None:
        assert self.begun.acquire(timeout=SECONDS)

    def open(self, times: int = 1000) -> None:
        self.let_through.release(times)


class Failing:
    """A dream that raises what it is given, one after the other, and then ends well."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.attempts: list[int] = []

    def __call__(self, request: DreamRequest) -> Mapping[str, Any]:
        self.attempts.append(request.attempt)
        if self.errors:
            raise self.errors.pop(0)
        return {"fine": True}


class Events:
    """Collects events, and lets a test wait for one."""

    def __init__(self) -> None:
        self.seen: list[Mapping[str, Any]] = []
        self._changed = threading.Condition()

    def __call__(self, event: Mapping[str, Any]) -> None:
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.seen]

    def wait_for(self, kind: str, times: int = 1) -> Mapping[str, Any]:
        def found() -> bool:
            return self.kinds().count(kind) >= times

        with self._changed:
            assert self._changed.wait_for(found, SECONDS), f"no {kind} among {self.kinds()}"
            return [event for event in self.seen if event["kind"] == kind][times - 1]


def pages(count: int, session: str = "one", first: int = 0) -> list[Page]:
    return [
        Page(text=f"On day {n} Ada fed {n + 2} swans", session=session, speaker="Ada", id=f"{session}-{n}")
        for n in range(first, first + count)
    ]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work(0) ... work(count - 1) in threads that start together."""
    start = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        start.wait(SECONDS)
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not errors
