"""The fleet: hands jobs to workers, tries again what failed, waits for what is held, and keeps a journal.

The safety of a bank is its own: its lock, its transactions and its journal. So a worker that is killed in
mid-dream loses no memory, and its bank simply dreams again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from shared_core.config import checked_whole
from shared_core.fleet.config import FleetConfig
from shared_core.fleet.jobs import FleetJob, distinct, require_states
from shared_core.fleet.journal import FleetJournal
from shared_core.fleet.outcome import FleetOutcome, FleetReport, Tried, outcome_of
from shared_core.fleet.pool import OwnProcess, Pool
from shared_core.fleet.queue import JobQueue, Ticket
from shared_core.types import Progress

POLL_SECONDS = 0.2
LOCAL = "local"
"""Address of a cluster that is started here for the run."""

logger = logging.getLogger(__name__)


class DreamFleet:
    """Lets many banks dream.

    ::

        report = DreamFleet(read_jobs("banks.jsonl"), workers=4, out="tonight.jsonl").run()

    Args:
        jobs: Banks, each once.
        config: Options of the dreams.
        workers: Processes, by Ray; 0: this process, one bank after the other, without Ray. Banks of one
            embedded Chroma never dream at the same time, so more workers than directories idle.
        retries: How often a bank is tried again whose dream failed, or whose worker died.
        out: The journal. A second run with it dreams only what is not done yet; None keeps none.
        address: Of a Ray cluster to join; "local" starts one on this machine for the run. Where Ray is
            initialised in this process already, that cluster is used and left running.

    Raises:
        ConfigError: No jobs, two jobs of one bank, a bank on a server without a state, or a number that
            makes no sense.
    """

    def __init__(
        self,
        jobs: Iterable[FleetJob],
        config: FleetConfig | None = None,
        *,
        workers: int = 2,
        retries: int = 2,
        out: str | Path | None = None,
        address: str = LOCAL,
    ) -> None:
        self.jobs = distinct(jobs)
        self.config = config or FleetConfig()
        checked_whole("workers", workers, least=0)
        checked_whole("retries", retries, least=0)
        self.workers = workers
        self.retries = retries
        self.out = out
        self.address = address
        if address == LOCAL:
            # machines of another cluster have environments of their own
            require_states(self.jobs)

    def run(self, *, progress: Progress | None = None, stop: Callable[[], bool] | None = None) -> FleetReport:
        """Let every bank dream that the journal does not call done.

        Args:
            progress: Told how many banks are finished.
            stop: Asked all the time; once True no bank begins, and the running ones dream to their end.

        Raises:
            ConfigError: The journal is none, or cannot be written.
            FleetError: Workers cannot be had, or the embedder cannot be made in one.
            MissingExtraError: Ray is not installed, and ``workers`` is not 0.
        """
        began = time.monotonic()
        with FleetJournal(self.out, self.config) as journal:
            run = _Run(self, journal, progress, stop)
            lost = run.work()
        return FleetReport(
            outcomes=[run.outcomes[job.id] for job in self.jobs if job.id in run.outcomes],
            left=len(self.jobs) - len(run.outcomes),
            seconds=time.monotonic() - began,
            workers=self.workers,
            lost_workers=lost,
        )

    def pool(self, most: int) -> Pool:
        """Return workers, not more than can be busy."""
        if self.workers == 0:
            return OwnProcess(self.config)
        from shared_core.fleet.ray_pool import RayPool

        return RayPool(self.config, min(self.workers, most), self.address)


class _Run:
    """One run of a fleet."""

    def __init__(
        self,
        fleet: DreamFleet,
        journal: FleetJournal,
        progress: Progress | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self._fleet = fleet
        self._journal = journal
        self._progress = progress
        self._stop = stop
        self.outcomes: dict[str, FleetOutcome] = {
            job.id: replace(earlier, status="skipped")
            for job in fleet.jobs
            if (earlier := journal.latest.get(job.id)) is not None and earlier.status == "done"
        }
        self._queue = JobQueue(job for job in fleet.jobs if job.id not in self.outcomes)

    def work(self) -> int:
        """Dream until nothing is left, or stopped; returns how many workers were lost."""
        self._tell()
        if not len(self._queue) or self._stopping():
            return 0
        with self._fleet.pool(self._queue.width) as pool:
            while True:
                self._start(pool)
                if pool.is_idle() and (self._stopping() or not len(self._queue)):
                    return pool.lost
                if pool.is_idle() and pool.has_room():
                    time.sleep(min(POLL_SECONDS, max(self._due_in(), 0.0)))
                    continue
                for ticket, tried in pool.wait(POLL_SECONDS):
                    self._take_back(ticket, tried)

    def _start(self, pool: Pool) -> None:
        while pool.has_room() and not self._stopping():
            if (ticket := self._queue.take(time.monotonic())) is None:
                return
            pool.start(ticket)

    def _take_back(self, ticket: Ticket, tried: Tried) -> None:
        self._queue.release(ticket)
        now = time.monotonic()
        if tried.status == "locked":
            ticket.refusals += 1
            ticket.locked_since = now if ticket.locked_since is None else ticket.locked_since
            again = now - ticket.locked_since < self._fleet.config.lock_wait
            tries = ticket.refusals
        else:
            ticket.attempts += 1
            ticket.locked_since, ticket.refusals = None, 0
            again = tried.status == "failed" and not tried.is_final and ticket.attempts <= self._fleet.retries
            tries = ticket.attempts
        if again:
            wait = self._fleet.config.delay(tries)
            logger.info("%s is tried again in %.3g s: %s", ticket.job, wait, tried.error)
            self._queue.put_back(ticket, now + wait)
            return
        if tried.status != "done":
            logger.info("%s: %s, given up: %s", ticket.job, tried.status, tried.error)
        outcome = outcome_of(ticket.job, tried, ticket.attempts)
        self._journal.append(outcome)
        self.outcomes[ticket.job.id] = outcome
        self._tell()

    def _due_in(self) -> float:
        at = self._queue.next_at()
        return POLL_SECONDS if at is None else at - time.monotonic()

    def _stopping(self) -> bool:
        return self._stop is not None and self._stop()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress("banks", len(self.outcomes), len(self._fleet.jobs))
