"""Which bank is next: no two of one embedded Chroma at once, and those to be tried again after the others.

Pure: knows no bank, no process and no clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from shared_core.fleet.jobs import FleetJob


@dataclass(eq=False)
class Ticket:
    """A job on its way."""

    job: FleetJob
    attempts: int = 0
    """Tries that found the bank free."""
    refusals: int = 0
    """Tries that found it locked."""
    locked_since: float | None = None


class JobQueue:
    """Tickets of jobs, in their order within a lane."""

    def __init__(self, jobs: Iterable[FleetJob]) -> None:
        self._lanes: dict[str, deque[Ticket]] = {}
        self._busy: set[str] = set()
        self._ready: deque[str] = deque()
        """Lanes that are not busy and not empty."""
        self._free: deque[Ticket] = deque()
        self._waiting: list[tuple[float, int, Ticket]] = []
        self._number = count()
        for job in jobs:
            self._add(Ticket(job))

    def __len__(self) -> int:
        queued = sum(len(lane) for lane in self._lanes.values())
        return queued + len(self._free) + len(self._waiting)

    @property
    def width(self) -> int:
        """How many jobs may run at once at the beginning."""
        return len(self._lanes) + len(self._free)

    def take(self, now: float) -> Ticket | None:
        """Return a ticket that may begin, whose lane is busy until ``release``; None where none may."""
        while self._waiting and self._waiting[0][0] <= now:
            self._add(heapq.heappop(self._waiting)[2])
        if self._ready:
            lane = self._ready.popleft()
            self._busy.add(lane)
            return self._lanes[lane].popleft()
        return self._free.popleft() if self._free else None

    def release(self, ticket: Ticket) -> None:
        """Let the next job of the ticket's lane begin."""
        if (lane := ticket.job.lane) is not None:
            self._busy.remove(lane)
            if self._lanes[lane]:
                self._ready.append(lane)

    def put_back(self, ticket: Ticket, at: float) -> None:
        """Queue a released ticket again, from a moment on."""
        heapq.heappush(self._waiting, (at, next(self._number), ticket))

    def next_at(self) -> float | None:
        """Return when the first of those put back may begin; None where none was."""
        return self._waiting[0][0] if self._waiting else None

    def _add(self, ticket: Ticket) -> None:
        if (lane := ticket.job.lane) is None:
            self._free.append(ticket)
            return
        tickets = self._lanes.setdefault(lane, deque())
        tickets.append(ticket)
        if lane not in self._busy and len(tickets) == 1:
            self._ready.append(lane)
