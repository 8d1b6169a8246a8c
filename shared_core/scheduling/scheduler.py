"""The scheduler: takes pages and requests in at once, and lets a bank dream in the background.

Joins triggers, the page queue and the dream worker, each in a thread that exists while it has work. No method
that a turn calls touches the bank: all it does is under one condition, held for microseconds.

Source: MemDream section 3 (dreams between turns, by triggers) [S]; the worker is ours [O].
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from shared_core.bank import MemoryBank
from shared_core.bank.conversation import ConversationMemory
from shared_core.errors import ConfigError, SchedulerError
from shared_core.language.counting import counted
from shared_core.scheduling import lifetime
from shared_core.scheduling.job import BankDream
from shared_core.scheduling.ledger import Ledger
from shared_core.scheduling.pages import PageQueue, checked_pages
from shared_core.scheduling.requests import Report, checked_kind
from shared_core.scheduling.scheduler_config import SchedulerConfig
from shared_core.scheduling.status import Counts, SchedulerStatus, State
from shared_core.scheduling.triggers import TriggerConfig, due
from shared_core.scheduling.work_thread import WorkThread
from shared_core.scheduling.worker import DreamWorker, closed_error

if TYPE_CHECKING:
    from types import TracebackType

    from shared_core.bank.conversation import Page
    from shared_core.scheduling.requests import DreamKind, DreamRequest, Event

CLOSE_SECONDS = 30.0

logger = logging.getLogger(__name__)


class DreamScheduler:
    """Lets one bank dream between turns; every method but ``flush`` and ``close`` returns at once.

    Safe for threads. Threads (daemons) run only while there is something to do. Not usable in a forked child.

    A ticket, as ``ingest``, ``tick`` and ``request`` return it, is plain JSON:
    ``{"id": str | None, "state": str, "kind": str | None, "reason": str, "pending_pages": int,
    "new_pages": int, "dreaming": bool}``. ``state`` is "accepted" (pages), "queued", "coalesced" (with the
    dream that waits already, whose id it bears), "not_due", "stopped" (given up after too many failures; the
    reason is the error) or "closed".

    Args:
        bank: With an embedder. It stays the caller's: ``close`` does not close it, and closing it closes
            the scheduler first.
        triggers: When ``tick`` requests a dream.
        config: Debounce, retries, back-off.
        dream: In place of the default job ``BankDream(bank)``: is given the request and returns a report.
        memory: Takes up the pages; default: ``ConversationMemory(bank)``.
        on_event: Called on a worker's thread with plain JSON, ``kind`` being one of "ingested",
            "ingest_failed", "refused" (pages), "start", "part" (a sweep or cycle ended), "round", "repair",
            "rejected" (of a cycle), "end", "cancelled", "locked", "failed" (will be tried again), "gave_up".
            An exception in it is logged.

    Raises:
        ConfigError: ``bank`` is no MemoryBank.
    """

    def __init__(
        self,
        bank: MemoryBank,
        *,
        triggers: TriggerConfig | None = None,
        config: SchedulerConfig | None = None,
        dream: Callable[[DreamRequest], Mapping[str, Any]] | None = None,
        memory: ConversationMemory | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        if not isinstance(bank, MemoryBank):
            raise ConfigError(f"a scheduler takes a MemoryBank, not {type(bank).__name__}")
        self.bank = bank
        self.triggers = triggers or TriggerConfig()
        self.config = config or SchedulerConfig()
        self._listeners = [] if on_event is None else [on_event]
        self._process = os.getpid()
        self._closed = False
        self._changed = threading.Condition()
        self._counts = Counts()
        marker = "sweep" if self.config.kind == "sweep" else "cycle"
        self._ledger = Ledger(bank, marker, self.triggers)
        common = (self._changed, self._ledger, self._counts, self._emit)
        self._pages = PageQueue(memory or ConversationMemory(bank), self.config, *common)
        self._worker = DreamWorker(bank, dream or BankDream(bank), self.config, self._pages, *common)
        self._writing = WorkThread("dream-pages", self._changed, self._pages.plan)
        self._dreaming = WorkThread("dream-worker", self._changed, self._worker.plan)
        lifetime.register(self)
        bank.before_close(self._end_with_bank)

    @classmethod
    def shared(cls, bank: MemoryBank, **options: Any) -> DreamScheduler:
        """Return this process's scheduler of a bank, made at the first call; options as for the class.

        Banks opened twice on the same state and tenant share one. Closing it, or the bank that it was made
        for, ends it for all; the next call makes a new one.

        Raises:
            ConfigError: It exists already and other options are asked for.
        """
        return lifetime.shared(bank, options, lambda: cls(bank, **options))

    def subscribe(self, on_event: Callable[[Event], None]) -> Callable[[], None]:
        """Let one more callback be told of events, like ``on_event``; returns what ends that."""
        with self._changed:
            # a list in use is never changed, so that events are told without the condition
            self._listeners = [*self._listeners, on_event]

        def unsubscribe() -> None:
            with self._changed:
                self._listeners = [one for one in self._listeners if one is not on_event]

        return unsubscribe

    def ingest(self, pages: Sequence[Page]) -> dict[str, Any]:
        """Hand in pages; they are embedded and written in the background. Returns a ticket.

        A page with an id that is stored already, or waits, is not stored twice.

        Raises:
            InvalidMemoryError: What is given is no page, or has no text or session; none was taken.
            ConfigError: The bank has no embedder.
            SchedulerError: The scheduler is closed, or was made before a fork.
        """
        self._require_this_process()
        pages = checked_pages(pages)
        if self.bank.embedder is None:
            raise ConfigError(
                "pages are embedded: open the bank with embedder=..., the one it was filled with"
            )
        with self._changed:
            if self._closed:
                raise closed_error()
            self._pages.take(pages)
            self._worker.put_off()
            self._wake()
            return self._ticket("accepted", None, None, counted(len(pages), "page"))

    def recent(self) -> list[Page]:
        """Return the pages that were handed in and are not written yet, oldest first."""
        self._require_this_process()
        with self._changed:
            return self._pages.waiting()

    def refused(self) -> list[tuple[Page, str]]:
        """Return the pages that can never be written, with the reason, and forget them."""
        self._require_this_process()
        with self._changed:
            refused, self._pages.refused = self._pages.refused, []
            return refused

    def observe(self, confidence: float) -> None:
        """Tell the confidence of a retrieval, in [0, 1] as a rule; NaN is refused with ConfigError."""
        self._require_this_process()
        if not isinstance(confidence, (int, float)) or not math.isfinite(confidence):
            raise ConfigError(f"confidence={confidence!r} must be a finite number")
        with self._changed:
            self._ledger.observe(float(confidence))

    def tick(self) -> dict[str, Any]:
        """Check the triggers and request a dream where one is due; returns a ticket."""
        self._require_this_process()
        with self._changed:
            if self._closed:
                return self._ticket("closed", None, None, "the scheduler is closed")
            fired = due(
                self.triggers,
                new_pages=self._new_pages(),
                confidences=self._ledger.confidences,
                seconds=self._ledger.seconds(),
            )
            if not fired:
                return self._ticket("not_due", None, None, "")
            if self._worker.has_given_up:
                return self._ticket("stopped", None, None, self._worker.error or "")
            return self._ask(self.config.kind, fired)

    def request(self, kind: DreamKind | None = None, reason: str = "asked") -> dict[str, Any]:
        """Request a dream without debounce; returns a ticket.

        One that waits is joined; one that runs is followed by exactly one more.
        """
        self._require_this_process()
        kind = checked_kind(kind or self.config.kind)
        with self._changed:
            if self._closed:
                return self._ticket("closed", None, None, "the scheduler is closed")
            return self._ask(kind, [reason], asked=True)

    async def adream(self, kind: DreamKind | None = None) -> dict[str, Any]:
        """Request a dream and wait for its report, without blocking the event loop.

        Raises:
            SchedulerError: The scheduler is closed, or was closed before the dream ran.
            Exception: What the dream raised at its last try.
        """
        self._require_this_process()
        kind = checked_kind(kind or self.config.kind)
        future: Future[Report] = Future()
        with self._changed:
            if self._closed:
                raise closed_error()
            self._ask(kind, ["asked"], asked=True, future=future)
        return await asyncio.wrap_future(future)

    def cancel(self) -> None:
        """Let the running dream end at its next repair; what waits is kept."""
        self._require_this_process()
        with self._changed:
            if self._worker.running is not None:
                self._worker.running.cancelled.set()

    def status(self) -> SchedulerStatus:
        """Return a snapshot, without touching the bank."""
        self._require_this_process()
        with self._changed:
            worker, counts = self._worker, self._counts
            return SchedulerStatus(
                state=self._state(),
                pending_pages=len(self._pages),
                refused_pages=len(self._pages.refused),
                new_pages=self._new_pages(),
                **vars(counts),
                lock_holder=worker.lock_holder,
                last_error=worker.error or self._pages.error,
                retry_in=worker.retry_in(),
                last_dream_at=self._ledger.dreamt_at,
                history=[dict(entry) for entry in worker.history],
            )

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all pages are written and no dream waits or runs; debounce is skipped.

        Returns:
            False where that did not come about in ``timeout`` seconds, or pages could not be written.
        """
        self._require_this_process()
        self._require_other_thread("flush")
        with self._changed:
            self._pages.try_again()
            self._worker.hurry(retry=False)
            self._wake()
            self._changed.wait_for(self._has_settled, timeout)
            return self._has_settled() and not len(self._pages)

    async def aflush(self, timeout: float | None = None) -> bool:
        """``flush`` without blocking the event loop."""
        return await asyncio.to_thread(self.flush, timeout)

    def close(self, timeout: float | None = CLOSE_SECONDS) -> bool:
        """Cancel the running dream, drop the waiting one, write the pages, and refuse anything new.

        Returns:
            False where pages are left unwritten, which ``recent`` still returns, or a dream still runs.
        """
        self._require_this_process()
        self._require_other_thread("close")
        with self._changed:
            self._closed = True
            dropped = self._worker.close()
            self._pages.close()
            can_write = self._wake()
        if dropped is not None:
            dropped.fail(closed_error())
        if not can_write:
            # the interpreter exits: it starts no thread any more
            self._writing.work_here()
        with self._changed:
            self._changed.wait_for(self._has_ended, timeout)
            left, ended = len(self._pages), self._has_ended()
        if left:
            logger.error("a scheduler was closed with %d pages unwritten: recent() returns them", left)
        if not ended:
            logger.error("a scheduler was closed and its thread still runs after %s s", timeout)
        return ended and not left

    def _end_with_bank(self) -> None:
        """Close before the bank does: pages that wait would find none to be written to."""
        own = self._dreaming.is_current() or self._writing.is_current()
        if os.getpid() == self._process and not own:
            self.close()

    def __enter__(self) -> DreamScheduler:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- inner; the condition is held

    def _ask(
        self,
        kind: DreamKind,
        reasons: list[str],
        *,
        asked: bool = False,
        future: Future[Report] | None = None,
    ) -> dict[str, Any]:
        request, is_new = self._worker.ask(kind, reasons)
        if future is not None:
            request.futures.append(future)
        if asked:
            self._worker.hurry(retry=True)
        self._wake()
        return self._ticket("queued" if is_new else "coalesced", request.id, request.kind, ", ".join(reasons))

    def _ticket(self, state: str, request: str | None, kind: str | None, reason: str) -> dict[str, Any]:
        return {
            "id": request,
            "state": state,
            "kind": kind,
            "reason": reason,
            "pending_pages": len(self._pages),
            "new_pages": self._new_pages(),
            "dreaming": self._worker.running is not None,
        }

    def _new_pages(self) -> int:
        return self._ledger.pages + len(self._pages)

    def _state(self) -> State:
        if self._closed:
            return "closed"
        if self._worker.running is not None:
            return "dreaming"
        if self._worker.waiting is not None:
            return "waiting"
        if self._worker.has_given_up:
            return "stopped"
        return "holding" if len(self._pages) and self._pages.is_held() else "idle"

    def _wake(self) -> bool:
        """Start what has work; False where pages wait and no thread can be started for them."""
        if self._worker.waiting is not None:
            self._dreaming.wake()
        can_write = not len(self._pages) or self._writing.wake()
        self._changed.notify_all()
        return can_write

    def _has_settled(self) -> bool:
        """Tell whether nothing is going on, pages that cannot be written left aside."""
        no_dream = self._worker.running is None and self._worker.waiting is None
        return no_dream and (not len(self._pages) or self._pages.is_held())

    def _has_ended(self) -> bool:
        return self._dreaming.has_ended() and self._writing.has_ended()

    # ---- inner; the condition is not held

    def _emit(self, kind: str, ticket: str | None, values: Mapping[str, Any]) -> None:
        for tell in self._listeners:
            try:
                tell({**values, "kind": kind, "ticket": ticket, "at": time.time()})
            except (Exception, SystemExit):
                logger.exception("the scheduler's on_event failed on %r", kind)

    def _require_this_process(self) -> None:
        if os.getpid() != self._process:
            raise SchedulerError(
                f"this scheduler was made in process {self._process} and its threads stayed there: open the "
                f"bank and make a scheduler in process {os.getpid()}"
            )

    def _require_other_thread(self, method: str) -> None:
        if self._dreaming.is_current() or self._writing.is_current():
            raise SchedulerError(f"{method} was called from on_event or a dream, and would wait for itself")
