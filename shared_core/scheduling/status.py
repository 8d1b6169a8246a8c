"""What a scheduler is doing, and what became of past dreams: plain values only."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

State = Literal["idle", "waiting", "dreaming", "stopped", "holding", "closed"]


@dataclass
class Counts:
    """What happened since the scheduler was made."""

    ingested: int = 0
    runs: int = 0
    failures: int = 0
    gave_up: int = 0
    cancelled: int = 0
    locked: int = 0


@dataclass(frozen=True, kw_only=True)
class SchedulerStatus:
    """A snapshot, taken without touching the bank."""

    state: State
    """``waiting``: debounced, backing off, or the bank is held by another dreamer. ``stopped``: given up
    after the last retry; triggers fire no more until ``request`` or ``adream`` asks. ``holding``: pages could
    not be written after the last retry, and are kept until the next ``ingest`` or ``flush`` tries again.
    ``closed``: for good."""
    pending_pages: int
    """Handed in and not written yet."""
    refused_pages: int
    """Malformed, so that they can never be written; ``DreamScheduler.refused`` has them."""
    new_pages: int
    """Pages since the last dream, the pending ones included."""
    ingested: int
    """Pages written by this scheduler."""
    runs: int
    """Dreams that ended well."""
    failures: int
    """Tries that failed, those to write pages included."""
    gave_up: int
    """Dreams that failed at every try."""
    cancelled: int
    """Dreams that ended early because they were told to."""
    locked: int
    """How often the bank was found held by another dreamer."""
    lock_holder: str | None
    """Who holds it, while a dream waits for that."""
    last_error: str | None
    """Of the last dream that failed, else of writing pages; None once the next try succeeds."""
    retry_in: float | None
    """Seconds until a dream that failed, or found the bank held, is tried again."""
    last_dream_at: float | None
    """Unix time of the last dream on this bank, by whatever process."""
    history: list[dict[str, Any]] = field(repr=False)
    """Past dreams, newest first: id, joined (ids of requests that it answered too), kind, reasons, outcome
    (done, cancelled, gave_up, dropped), attempts, started_at, seconds, error, report."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def plain(value: Any) -> Any:
    """Return a report as JSON and msgpack hold it.

    Arrays and numpy's numbers become Python's, tuples and sets lists, keys and whatever else text.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return [plain(item) for item in value]
    return str(value)


def described(error: BaseException) -> str:
    """Return an error as one line for people: its type and message."""
    return f"{type(error).__name__}: {error}"
