"""What has happened to a bank since its last dream, as its journal tells it.

Because the journal is asked and not a counter of this process, the triggers survive a restart, and several
processes that feed one bank count together. Reading touches the bank; all else is guarded by the
scheduler's condition and touches nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank, Run
    from shared_core.scheduling.triggers import TriggerConfig

LOOKBACK = 256
"""Additions that are read at most, or as many as make a dream due: each holds a page or more."""
RECENT_DREAMS = 16
"""Dreams that are looked at; undone, cancelled and killed ones do not count."""
NOTHING_SEEN = -1


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What the journal holds since the last dream."""

    pages: int = 0
    dreamt_at: float | None = None
    """Unix time of the last dream that the journal tells of."""
    first_at: float | None = None
    """Unix time of the first addition since."""


@dataclass(frozen=True)
class _Mark:
    since: int
    backlog: Backlog
    dreamt_at: float | None
    confidences: list[float]


class Ledger:
    """Pages, confidences and time since the last dream of one bank.

    Args:
        bank: The bank.
        marker: Kind of run that counts as a dream: "cycle", or "sweep" where a scheduler only sweeps.
        triggers: What is counted for.

    Raises:
        StateError: The journal cannot be read.
    """

    def __init__(self, bank: MemoryBank, marker: str, triggers: TriggerConfig) -> None:
        self._bank = bank
        self._marker = marker
        self._since = NOTHING_SEEN
        self._own: deque[str] = deque(maxlen=LOOKBACK)
        self._dreamt_at: float | None = None
        self._before: _Mark | None = None
        self._confidences: deque[float] = deque(maxlen=triggers.confidence_window)
        self._limit = max(LOOKBACK, triggers.new_pages or 0)
        self._backlog = read_backlog(bank, marker, NOTHING_SEEN, (), limit=self._limit)

    @property
    def pages(self) -> int:
        """Written since the last dream began."""
        return self._backlog.pages

    @property
    def confidences(self) -> list[float]:
        """Those of the retrievals since, oldest first."""
        return list(self._confidences)

    @property
    def dreamt_at(self) -> float | None:
        """Unix time of the last dream, by whatever process."""
        known = [at for at in (self._dreamt_at, self._backlog.dreamt_at) if at is not None]
        return max(known, default=None)

    def seconds(self) -> float | None:
        """Return the time since the last dream, or else since the first page; None where both are unknown."""
        start = self.dreamt_at if self.dreamt_at is not None else self._backlog.first_at
        return None if start is None else time.time() - start

    def observe(self, confidence: float) -> None:
        """Take down the confidence of a retrieval."""
        self._confidences.append(confidence)

    def written(self, pages: int) -> None:
        """Count pages that were written where the journal cannot be read now."""
        self._backlog = Backlog(
            pages=self._backlog.pages + pages,
            dreamt_at=self._backlog.dreamt_at,
            first_at=self._backlog.first_at if self._backlog.first_at is not None else time.time(),
        )

    def begin(self, version: int) -> None:
        """Count anew from a bank's version on: a dream begins that has seen everything up to there."""
        self._before = _Mark(self._since, self._backlog, self._dreamt_at, self.confidences)
        self._since = version
        self._dreamt_at = time.time()
        self._backlog = Backlog(dreamt_at=self._backlog.dreamt_at)
        self._confidences.clear()

    def own(self, run_ids: Collection[str]) -> None:
        """Remember runs of the dream that began: it is known what they have seen."""
        self._own.extend(run_ids)

    def roll_back(self) -> None:
        """Count as if the dream that began had not: it failed, or was cancelled."""
        if (before := self._before) is None:
            return
        self._before = None
        self._since, self._dreamt_at = before.since, before.dreamt_at
        self._backlog = Backlog(
            pages=before.backlog.pages + self._backlog.pages,
            dreamt_at=before.backlog.dreamt_at,
            first_at=before.backlog.first_at
            if before.backlog.first_at is not None
            else self._backlog.first_at,
        )
        late = self.confidences
        self._confidences.clear()
        self._confidences.extend([*before.confidences, *late])

    def commit(self) -> None:
        """Keep counting from where the dream that began started: it ended well."""
        self._before = None

    def read(self) -> tuple[int, Backlog]:
        """Read the journal; the condition is not held. What is returned is for ``put``.

        Raises:
            StateError: The journal cannot be read.
        """
        since = self._since
        return since, read_backlog(self._bank, self._marker, since, tuple(self._own), limit=self._limit)

    def put(self, since: int, backlog: Backlog) -> bool:
        """Take over what ``read`` returned; False where a dream began or failed meanwhile: read again."""
        if since != self._since:
            return False
        self._backlog = backlog
        return True


def read_backlog(bank: MemoryBank, marker: str, since: int, own: Collection[str], *, limit: int) -> Backlog:
    """Count what was added since the last dream.

    Args:
        bank: The bank.
        marker: Kind of run that counts as a dream.
        since: Version up to which everything was dreamt of already.
        own: Dreams that are not taken for another's: ``since`` tells more exactly what they have seen.
        limit: Additions that are read at most.
    """
    latest = bank.state.runs(limit=RECENT_DREAMS, kinds=(marker,))
    others = [run for run in latest if run.run_id not in own and _has_ended(run)]
    start = max((run.version for run in others), default=NOTHING_SEEN)
    added = [
        run
        for run in bank.state.runs(limit=limit, kinds=("add",))
        if run.status == "applied" and run.version > max(since, start)
    ]
    return Backlog(
        pages=sum(int(run.report.get("added", 0)) for run in added),
        dreamt_at=max((run.created_at for run in others), default=None),
        first_at=min((run.created_at for run in added), default=None),
    )


def _has_ended(dream: Run) -> bool:
    """Tell whether a dream holds and went through: not undone, cancelled, running or killed."""
    # a cycle is journalled when it begins, and told how it ended at its end; a sweep is one transaction
    whole = dream.kind != "cycle" or dream.report.get("stopped_by") not in {None, "cancelled"}
    return dream.status == "applied" and whole
