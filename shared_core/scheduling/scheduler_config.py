"""How patient a scheduler is: debounce, retries, back-off, what it remembers."""

from __future__ import annotations

from dataclasses import dataclass

from shared_core.config import checked_range, checked_whole
from shared_core.scheduling.requests import DreamKind, checked_kind


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """Settings of a scheduler; all are ours [O]. Times are in seconds.

    Raises:
        ConfigError: A value is outside its range.
    """

    kind: DreamKind = "both"
    """What a dream is when nobody says otherwise: forgetting sweep, dream cycle, or one after the other."""
    debounce: float = 1.0
    """A triggered dream starts once nothing was handed in for so long."""
    max_delay: float = 30.0
    """And at the latest so long after it was requested."""
    retries: int = 3
    """How often a failed dream, or page, is tried again before that stops; 0 for never."""
    backoff: float = 1.0
    """Wait before the first retry; doubled each time."""
    max_backoff: float = 60.0
    """Longest wait; also between two looks at a bank that another dreamer holds."""
    history: int = 20
    """How many past dreams the status shows."""
    batch: int = 64
    """Pages that are embedded and written together."""
    exit_timeout: float = 5.0
    """How long the interpreter's exit waits for a running dream to stop and for pages to be written."""

    def __post_init__(self) -> None:
        checked_kind(self.kind)
        for name in ("debounce", "max_delay", "backoff", "max_backoff", "exit_timeout"):
            checked_range(name, getattr(self, name), 0)
        for name, least in (("retries", 0), ("history", 1), ("batch", 1)):
            checked_whole(name, getattr(self, name), least)

    def delay(self, failures: int) -> float:
        """Return the wait after so many failures in a row, 1 or more: ``backoff * 2 ** (failures - 1)``."""
        # the exponent is bounded because a float overflows from 2 ** 1024 on
        return min(self.max_backoff, self.backoff * 2.0 ** min(failures - 1, 64))
