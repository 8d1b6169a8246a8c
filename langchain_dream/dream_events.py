"""The last events of a scheduler, numbered, so that each conversation is streamed what is new to it.

A bank may serve many people, and a stream may end at one of them: what is streamed names memories by id and
quotes none. Callbacks get the events as they are.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from shared_core.scheduling import DreamScheduler

KEPT_EVENTS = 1_000
KEPT_CONVERSATIONS = 10_000
STREAMED = frozenset(
    {
        "kind", "ticket", "at", "dream", "reasons", "attempt", "part", "pages", "error", "retry_in", "round",
        "operation", "reason", "f1_before", "f1_after", "run_id", "report", "data", "stopped_by", "seconds",
        "sweep", "cycle", "lowered", "restored", "memories", "dry_run", "proposed", "accepted",
    }
)  # fmt: skip
"""Fields that quote no memory."""

_logs: WeakKeyDictionary[DreamScheduler, EventLog] = WeakKeyDictionary()
_guard = threading.Lock()


class EventLog:
    """The last events of one scheduler; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        self._count = 0
        self._told: OrderedDict[str, int] = OrderedDict()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take an event."""
        with self._lock:
            self._events.append(streamed(event))
            self._count += 1

    def news(self, conversation: str) -> list[dict[str, Any]]:
        """Return what came since a conversation asked last, nothing at the first time."""
        with self._lock:
            seen = self._told.pop(conversation, self._count)
            self._told[conversation] = self._count
            while len(self._told) > KEPT_CONVERSATIONS:
                self._told.popitem(last=False)
            new = min(self._count - seen, len(self._events))
            return list(self._events)[len(self._events) - new :]


def event_log(scheduler: DreamScheduler) -> EventLog:
    """Return the log of a scheduler; it begins at the first call."""
    with _guard:
        log = _logs.get(scheduler)
        if log is None:
            log = _logs[scheduler] = EventLog()
            scheduler.subscribe(log)
        return log


def streamed(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an event may be shown to whoever reads a conversation's stream."""
    return {
        key: streamed(value) if isinstance(value, Mapping) else value
        for key, value in event.items()
        if key in STREAMED
    }
