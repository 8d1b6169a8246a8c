"""What became of each bank, and of the fleet. Plain data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from shared_core.errors import ConfigError
from shared_core.fleet.jobs import FleetJob

Status = Literal["done", "skipped", "failed", "locked"]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """How one try ended; travels between processes."""

    status: Literal["done", "failed", "locked"]
    error: str | None = None
    is_final: bool = False
    """Set up wrongly: trying again does not help."""
    seconds: float = 0.0
    """Of the try, with opening and closing the bank."""
    run_id: str | None = None
    memories: int | None = None
    repairs: int = 0
    f1_before: float | None = None
    f1_after: float | None = None
    stopped_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class FleetOutcome:
    """What became of one bank; a line of the journal."""

    id: str
    """The job's."""
    location: str
    collection: str
    where: Mapping[str, Any] | None
    status: Status
    """skipped: done by an earlier run with the same journal, whose numbers these are."""
    attempts: int
    """Tries that found the bank free."""
    seconds: float
    """Of the last try."""
    error: str | None = None
    run_id: str | None = None
    """For ``undo``."""
    memories: int | None = None
    repairs: int = 0
    """Of the last try; a try that was killed keeps those that it had made, see the bank's own journal."""
    f1_before: float | None = None
    """Mean over the dream's questions; None where it did not end."""
    f1_after: float | None = None
    stopped_by: str | None = None
    at: float = 0.0
    """Unix time, seconds, when it ended."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def outcome_of(job: FleetJob, tried: Tried, attempts: int) -> FleetOutcome:
    """Return what became of a job whose last try ended so."""
    told = asdict(tried)
    del told["is_final"]
    return FleetOutcome(id=job.id, **job.to_dict(), **told, attempts=attempts, at=time.time())


def parsed_outcome(value: Any) -> FleetOutcome:
    """Return an outcome from plain JSON values.

    Raises:
        ConfigError: It is none.
    """
    try:
        outcome = FleetOutcome(**value)
    except TypeError as error:
        raise ConfigError(f"no outcome of a fleet: {error}") from None
    if not isinstance(outcome.id, str) or outcome.status not in get_args(Status):
        raise ConfigError("no outcome of a fleet: id or status is none")
    return outcome


@dataclass(frozen=True, kw_only=True)
class FleetReport:
    """What a run did."""

    outcomes: list[FleetOutcome] = field(repr=False)
    """In the order of the jobs, those of earlier runs included; without those that are left."""
    left: int
    """Banks that were not tried, or not to the end, because the run was stopped."""
    seconds: float
    workers: int
    lost_workers: int
    """Worker processes that died and were replaced."""

    @property
    def counts(self) -> dict[str, int]:
        """How many banks by status, and how many are left."""
        found = Counter(outcome.status for outcome in self.outcomes)
        return {**{status: found[status] for status in get_args(Status)}, "left": self.left}

    @property
    def repairs(self) -> int:
        """Of this run."""
        return sum(outcome.repairs for outcome in self.outcomes if outcome.status == "done")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "counts": self.counts,
            "repairs": self.repairs,
            "seconds": self.seconds,
            "workers": self.workers,
            "lost_workers": self.lost_workers,
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }
