"""What is asked of the worker: one dream, what it answers to, and how two requests become one.

Pure: knows no bank and no thread.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from shared_core.errors import ConfigError

DreamKind = Literal["sweep", "cycle", "both"]
Event = Mapping[str, Any]
"""Plain JSON: ``kind``, ``ticket`` (the dream's id), ``at`` (Unix time), and what that kind tells."""
Report = dict[str, Any]


def _tell_nobody(_kind: str, _values: Mapping[str, Any]) -> None:
    pass


@dataclass(kw_only=True, eq=False)
class DreamRequest:
    """One dream that waits, runs, or is tried again; what a custom ``dream`` callable is given."""

    kind: DreamKind
    reasons: list[str]
    """Why: names of triggers, or what the caller said."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    attempt: int = 0
    """Which try this is, from 1."""
    done: dict[str, Any] = field(default_factory=dict)
    """Reports of the parts that an earlier try finished, by name; those are not run again."""
    emit: Callable[[str, Mapping[str, Any]], None] = _tell_nobody
    """Call ``emit(kind, values)`` to report progress to ``on_event``; values are plain JSON."""
    joined: list[str] = field(default_factory=list)
    """Ids of requests that it answers too: they came while it ran, and it had to be tried again."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    futures: list[Future[Report]] = field(default_factory=list, repr=False)
    """Who awaits the report."""

    def should_stop(self) -> bool:
        """Tell whether the dream was cancelled: asked between two repairs."""
        return self.cancelled.is_set()

    def join(self, kind: DreamKind, reasons: list[str]) -> None:
        """Answer another request too."""
        if self.kind != kind:
            self.kind = "both"
        self.reasons.extend(reason for reason in reasons if reason not in self.reasons)

    def absorb(self, later: DreamRequest) -> None:
        """Take over a request that came while this one ran; all its parts are owed again."""
        self.join(later.kind, later.reasons)
        self.joined.extend([later.id, *later.joined])
        self.futures.extend(later.futures)
        self.done.clear()

    def succeed(self, report: Report) -> None:
        """Hand the report to whoever awaits it; the scheduler's condition is not held."""
        for future in self.futures:
            # one that was cancelled awaits nothing any more
            with suppress(InvalidStateError):
                future.set_result(report)

    def fail(self, error: BaseException) -> None:
        """Hand an error to whoever awaits the report; the scheduler's condition is not held."""
        for future in self.futures:
            with suppress(InvalidStateError):
                future.set_exception(error)


def checked_kind(kind: DreamKind) -> DreamKind:
    """Return the kind.

    Raises:
        ConfigError: There is no such kind.
    """
    if kind not in get_args(DreamKind):
        raise ConfigError(f"kind={kind!r} is not one of {', '.join(get_args(DreamKind))}")
    return kind
