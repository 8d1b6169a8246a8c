"""Who works: a pool takes jobs and tells how each try ended; this one works in the caller's own process."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from shared_core.fleet.config import FleetConfig
from shared_core.fleet.dreamer import BankDreamer
from shared_core.fleet.outcome import Tried
from shared_core.fleet.queue import Ticket


class Pool(AbstractContextManager["Pool"], Protocol):
    """Workers; leaving it ends them."""

    lost: int
    """Workers that died."""

    def has_room(self) -> bool:
        """Tell whether a job would begin at once."""
        ...

    def is_idle(self) -> bool:
        """Tell whether no job runs."""
        ...

    def start(self, ticket: Ticket) -> None:
        """Begin a job; there is room."""
        ...

    def wait(self, seconds: float) -> list[tuple[Ticket, Tried]]:
        """Return the tries that ended, after so many seconds at the latest.

        Raises:
            FleetError: No worker can be had.
        """
        ...


class OwnProcess(Pool):
    """One worker, this process: a job runs while it is waited for."""

    def __init__(self, config: FleetConfig) -> None:
        self.lost = 0
        self._dreamer = BankDreamer(config)
        self._ticket: Ticket | None = None

    def __enter__(self) -> OwnProcess:
        self._dreamer.load()
        return self

    def __exit__(self, *_exc: object) -> None:
        pass

    def has_room(self) -> bool:
        """See ``Pool``."""
        return self._ticket is None

    def is_idle(self) -> bool:
        """See ``Pool``."""
        return self._ticket is None

    def start(self, ticket: Ticket) -> None:
        """See ``Pool``."""
        self._ticket = ticket

    def wait(self, seconds: float) -> list[tuple[Ticket, Tried]]:  # noqa: ARG002
        """See ``Pool``; takes as long as the job."""
        ticket, self._ticket = self._ticket, None
        return [] if ticket is None else [(ticket, self._dreamer.dream(ticket.job))]
