"""The dream worker: runs one dream after the other, waits for a held bank, tries again, and gives up.

A request that comes while a dream waits joins it; one that comes while a dream runs waits for the next. So
every request is followed by a dream that began after it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from shared_core.errors import BankLockedError, ConfigError, SchedulerError, StateError
from shared_core.scheduling.requests import DreamKind, DreamRequest, Report
from shared_core.scheduling.status import Counts, described, plain

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.scheduling.ledger import Ledger
    from shared_core.scheduling.pages import Emit, PageQueue
    from shared_core.scheduling.scheduler_config import SchedulerConfig
    from shared_core.scheduling.work_thread import Job

PAGES_SECONDS = 60.0
"""A dream waits for the pages handed in before it; it is woken when they are written or cannot be."""
OWN_RUNS = ("sweep", "cycle")

logger = logging.getLogger(__name__)


class DreamWorker:
    """The dreams of one bank; every method but the jobs it plans needs the condition held.

    Args:
        bank: The bank.
        dream: The job.
        config: Debounce, retries, back-off.
        pages: What must be written before a dream begins.
        changed: The scheduler's condition.
        ledger: What the triggers count.
        counts: For the status.
        emit: Tells what happened, without the condition.
    """

    def __init__(
        self,
        bank: MemoryBank,
        dream: Callable[[DreamRequest], Mapping[str, Any]],
        config: SchedulerConfig,
        pages: PageQueue,
        changed: threading.Condition,
        ledger: Ledger,
        counts: Counts,
        emit: Emit,
    ) -> None:
        self._bank = bank
        self._dream = dream
        self._config = config
        self._changed = changed
        self._pages = pages
        self._ledger = ledger
        self._counts = counts
        self._emit = emit
        self._start_at = 0.0
        self._latest = 0.0
        self._retry_at = 0.0
        self._lock_tries = 0
        self._taken: int | None = None
        self._seen = 0
        self._closing = False
        self.waiting: DreamRequest | None = None
        self.running: DreamRequest | None = None
        self.has_given_up = False
        self.error: str | None = None
        self.lock_holder: str | None = None
        self.history: deque[dict[str, Any]] = deque(maxlen=config.history)

    # ---- the condition is held

    def ask(self, kind: DreamKind, reasons: list[str]) -> tuple[DreamRequest, bool]:
        """Request a dream; returns it, and whether it is a new one."""
        now = time.monotonic()
        if (waiting := self.waiting) is not None:
            waiting.join(kind, reasons)
            return waiting, False
        self.waiting = DreamRequest(kind=kind, reasons=reasons)
        self.waiting.emit = partial(self._tell, self.waiting)
        self._start_at, self._latest = now + self._config.debounce, now + self._config.max_delay
        return self.waiting, True

    def hurry(self, *, retry: bool) -> None:
        """Let the waiting dream begin without debounce, and with ``retry`` without back-off."""
        self._start_at = 0.0
        if retry:
            self._retry_at = 0.0
            self._taken = None
            self.has_given_up = False
            if self.waiting is not None:
                self.waiting.done.clear()

    def put_off(self) -> None:
        """Start the debounce of the waiting dream anew: something was handed in."""
        if self._start_at:
            self._start_at = min(time.monotonic() + self._config.debounce, self._latest)

    def retry_in(self) -> float | None:
        """Return the seconds of back-off that are left; None without any."""
        left = self._retry_at - time.monotonic()
        return left if self.waiting is not None and left > 0 else None

    def close(self) -> DreamRequest | None:
        """Cancel the running dream, and return the waiting one, which is dropped."""
        self._closing = True
        if self.running is not None:
            self.running.cancelled.set()
        dropped, self.waiting = self.waiting, None
        if dropped is not None:
            self._remember(dropped, "dropped", None, None, None)
        return dropped

    def plan(self) -> Job | float | None:
        """See ``WorkThread``."""
        if (request := self.waiting) is None:
            return None
        wait = max(self._start_at, self._retry_at) - time.monotonic()
        if wait > 0:
            return wait
        if self._taken is None:
            self._taken = self._pages.taken
        if not self._pages.were_tried(self._taken):
            return PAGES_SECONDS
        self.waiting, self.running, self._taken = None, request, None
        return partial(self._run, request)

    # ---- on the worker's thread, without the condition

    def _run(self, request: DreamRequest) -> None:
        request.attempt += 1
        started_at = time.time()
        try:
            version = self._bank.state.version()
            with self._changed:
                if self._seen != self._pages.taken:
                    # an earlier try has not seen the pages that came since
                    request.done.clear()
                self._seen = self._pages.taken
                self._ledger.begin(version)
            values = {"dream": request.kind, "reasons": list(request.reasons), "attempt": request.attempt}
            self._tell(request, "start", values)
            report = _checked(self._dream(request))
        except BankLockedError as error:
            self._locked(request, error, started_at)
        except BaseException as error:  # a thread of our own: nothing may end it without a word
            self._failed(request, error, started_at)
        else:
            self._ended(request, report, started_at)

    def _ended(self, request: DreamRequest, report: Report, started_at: float) -> None:
        cancelled = report.get("stopped_by") == "cancelled"
        with self._changed:
            self._ledger.own(_run_ids(report))
            if cancelled:
                self._ledger.roll_back()
                self._counts.cancelled += 1
            else:
                self._ledger.commit()
                self._counts.runs += 1
                self.has_given_up = False
                self.error = None
        self._refresh()
        self._tell(request, "cancelled" if cancelled else "end", {"report": report})
        self._close_books(request, "cancelled" if cancelled else "done", started_at, None, report)
        request.succeed(report)

    def _failed(self, request: DreamRequest, error: BaseException, started_at: float) -> None:
        cancelled = request.should_stop()
        # what is set up wrongly does not get better by waiting
        final = isinstance(error, ConfigError) or request.attempt > self._config.retries
        with self._changed:
            self._ledger.own(_run_ids(request.done))
            self._ledger.roll_back()
            if cancelled:
                self._counts.cancelled += 1
            else:
                self._counts.failures += 1
                self.error = described(error)
                self.has_given_up = final
                self._counts.gave_up += final
        self._refresh()
        told = {"error": described(error), "attempt": request.attempt}
        if cancelled:
            logger.warning("dream %s failed while it was being cancelled", request.id, exc_info=error)
            self._tell(request, "cancelled", told)
        elif final:
            logger.error(
                "dream %s failed, given up after %d tries", request.id, request.attempt, exc_info=error
            )
            self._tell(request, "gave_up", told)
        else:
            wait = self._config.delay(request.attempt)
            logger.warning("dream %s failed, tried again in %.3g s", request.id, wait, exc_info=error)
            self._tell(request, "failed", {**told, "retry_in": wait})
            self._put_back(request, wait)
            return
        outcome = "cancelled" if cancelled else "gave_up"
        self._close_books(request, outcome, started_at, described(error), None)
        request.fail(error)

    def _locked(self, request: DreamRequest, error: BankLockedError, started_at: float) -> None:
        holder = self._holder(error)
        cancelled = request.should_stop()
        with self._changed:
            self._ledger.own(_run_ids(request.done))
            self._ledger.roll_back()
            self._counts.locked += 1
            self._lock_tries += 1
            self.lock_holder = holder
            self._counts.cancelled += cancelled
            wait = self._config.delay(self._lock_tries)
        self._refresh()
        if cancelled:
            self._tell(request, "cancelled", {"error": described(error), "attempt": request.attempt})
            self._close_books(request, "cancelled", started_at, described(error), None)
            request.fail(error)
            return
        request.attempt -= 1
        logger.info("dream %s waits %.3g s: %s", request.id, wait, error)
        self._tell(request, "locked", {"holder": holder, "retry_in": wait})
        self._put_back(request, wait, locked=True)

    def _put_back(self, request: DreamRequest, wait: float, *, locked: bool = False) -> None:
        with self._changed:
            self.running = None
            if not locked:
                self._lock_tries, self.lock_holder = 0, None
            if self.waiting is not None:
                request.absorb(self.waiting)
            self.waiting = request
            self._start_at, self._retry_at = 0.0, time.monotonic() + wait
            dropped = self.close() if self._closing else None
            self._changed.notify_all()
        if dropped is not None:
            dropped.fail(closed_error())

    def _close_books(
        self, request: DreamRequest, outcome: str, started_at: float, error: str | None, report: Report | None
    ) -> None:
        with self._changed:
            self.running = None
            self._retry_at = 0.0
            self._lock_tries, self.lock_holder = 0, None
            self._remember(request, outcome, started_at, error, report)
            self._changed.notify_all()

    def _remember(
        self,
        request: DreamRequest,
        outcome: str,
        started_at: float | None,
        error: str | None,
        report: Report | None,
    ) -> None:
        self.history.appendleft(
            {
                "id": request.id,
                "joined": list(request.joined),
                "kind": request.kind,
                "reasons": list(request.reasons),
                "outcome": outcome,
                "attempts": request.attempt,
                "started_at": started_at,
                "seconds": None if started_at is None else time.time() - started_at,
                "error": error,
                "report": report,
            }
        )

    def _refresh(self) -> None:
        while True:
            try:
                read = self._ledger.read()
            except Exception:
                # only the count of new pages may be too low until the next page is written
                logger.warning("the journal cannot be read after a dream", exc_info=True)
                return
            with self._changed:
                if self._ledger.put(*read):
                    return

    def _holder(self, error: BankLockedError) -> str:
        try:
            return self._bank.state.lock_holder() or str(error)
        except StateError:
            return str(error)

    def _tell(self, request: DreamRequest, kind: str, values: Mapping[str, Any]) -> None:
        self._emit(kind, request.id, values)


def closed_error() -> SchedulerError:
    """Return what a call after, or a request dropped by, ``close`` gets."""
    return SchedulerError("the scheduler is closed: make a new one, or DreamScheduler.shared(bank)")


def _checked(report: object) -> Report:
    """Return what a dream returned as plain JSON.

    Raises:
        ConfigError: It is no mapping.
    """
    if not isinstance(report, Mapping):
        raise ConfigError(f"a dream returned {type(report).__name__}: it must return a mapping, its report")
    values: Report = plain(report)
    return values


def _run_ids(report: Mapping[str, Any]) -> list[str]:
    parts = (report.get(part) for part in OWN_RUNS)
    found = (part.get("run_id") for part in parts if isinstance(part, Mapping))
    return [run_id for run_id in found if isinstance(run_id, str)]
