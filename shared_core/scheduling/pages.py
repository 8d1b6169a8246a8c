"""Pages on their way into the bank: taken at once, embedded and written by a background thread.

A page stays here until it is written, so that none is lost by a failure; one that can never be written is
put aside with the reason. Knows nothing of dreams.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from shared_core.bank.conversation import Page, check_page
from shared_core.bank.intake import as_list
from shared_core.errors import InvalidMemoryError
from shared_core.scheduling.status import Counts, described

if TYPE_CHECKING:
    from shared_core.bank.conversation import ConversationMemory
    from shared_core.scheduling.ledger import Ledger
    from shared_core.scheduling.scheduler_config import SchedulerConfig
    from shared_core.scheduling.work_thread import Job

HELD_SECONDS = 3600.0
"""A thread that gave up keeps the pages and sleeps; nothing is tried until it is woken."""
GATHER_SECONDS = 0.02
"""Wait after the first page: what comes in one turn is written together, and the turn is over by then."""
Emit = Callable[[str, "str | None", Mapping[str, Any]], None]

logger = logging.getLogger(__name__)


class PageQueue:
    """The pages that are not written yet; every method but ``write`` needs the condition held.

    Args:
        memory: Takes them up.
        config: Batch, retries, back-off.
        changed: The scheduler's condition.
        ledger: Counts what was written.
        counts: For the status.
        emit: Tells what happened, without the condition.
    """

    def __init__(
        self,
        memory: ConversationMemory,
        config: SchedulerConfig,
        changed: threading.Condition,
        ledger: Ledger,
        counts: Counts,
        emit: Emit,
    ) -> None:
        self._memory = memory
        self._config = config
        self._changed = changed
        self._ledger = ledger
        self._counts = counts
        self._emit = emit
        self._pages: deque[Page] = deque()
        self._by_id: dict[str, Page] = {}
        self._tried = 0
        self._failures = 0
        self._retry_at = 0.0
        self._gather_until = 0.0
        self._closing = False
        self.taken = 0
        """How many pages were handed in so far."""
        self.error: str | None = None
        self.refused: list[tuple[Page, str]] = []

    def __len__(self) -> int:
        return len(self._pages)

    def waiting(self) -> list[Page]:
        """Return them, oldest first."""
        return list(self._pages)

    def take(self, pages: Sequence[Page]) -> None:
        """Take pages; one that waits already is passed over."""
        if not self._pages:
            self._gather_until = time.monotonic() + GATHER_SECONDS
        for page in pages:
            if self._by_id.get(page.id) != page:
                self._by_id[page.id] = page
                self._pages.append(page)
                self.taken += 1
        self.try_again()

    def try_again(self) -> None:
        """Try once more, where it was given up."""
        if self.is_held():
            self._failures = self._config.retries
            self._retry_at = 0.0

    def close(self) -> None:
        """Write what is left, with one try for each batch, and then end."""
        self._closing = True
        self._failures = 0
        self._retry_at = self._gather_until = 0.0

    def is_held(self) -> bool:
        """Tell whether writing failed so often that it is not tried any more by itself."""
        return self._failures > (0 if self._closing else self._config.retries)

    def were_tried(self, taken: int) -> bool:
        """Tell whether the first ``taken`` pages that were handed in are written, or could not be."""
        return self._tried >= taken

    def plan(self) -> Job | float | None:
        """See ``WorkThread``."""
        if not self._pages or (self._closing and self.is_held()):
            return None
        if self.is_held():
            return HELD_SECONDS
        wait = max(self._retry_at, self._gather_until) - time.monotonic()
        return self.write if wait <= 0 else wait

    def write(self) -> None:
        """Write the next batch; a failure is counted and told, and the pages stay."""
        with self._changed:
            batch = list(islice(self._pages, self._config.batch))
        try:
            refused = self._store(batch)
        except BaseException as error:  # a thread of our own: whatever it is, pages must not be lost
            self._failed(len(batch), error)
        else:
            self._written(batch, refused)

    def _store(self, batch: list[Page]) -> list[tuple[Page, str]]:
        try:
            self._memory.add_pages(batch)
            return []
        except InvalidMemoryError as error:
            if len(batch) == 1:
                return [(batch[0], str(error))]
        # refused whole because of some: find out which
        return [refused for page in batch for refused in self._store([page])]

    def _written(self, batch: list[Page], refused: list[tuple[Page, str]]) -> None:
        new = len(batch) - len(refused)
        if new:
            self._emit("ingested", None, {"pages": new})
        for page, reason in refused:
            logger.error("page %r was refused and is put aside: %s", page.id, reason)
            self._emit("refused", None, {"page": page.id, "error": reason})
        while not self._counted(batch, refused):
            pass

    def _counted(self, batch: list[Page], refused: list[tuple[Page, str]]) -> bool:
        """Move pages from waiting to written in one step; False where a dream began or failed meanwhile."""
        try:
            read = self._ledger.read()
        except Exception:
            # the pages are written all the same, so they must not come again
            logger.warning("the journal cannot be read: new pages are counted here", exc_info=True)
            read = None
        with self._changed:
            if read is None:
                self._ledger.written(len(batch) - len(refused))
            elif not self._ledger.put(*read):
                return False
            self._drop(batch, refused)
        return True

    def _drop(self, batch: list[Page], refused: list[tuple[Page, str]]) -> None:
        for page in batch:
            self._pages.popleft()
            # the same id may wait once more, with another text
            if self._by_id.get(page.id) is page:
                del self._by_id[page.id]
        self._tried = max(self._tried, self.taken - len(self._pages))
        self._counts.ingested += len(batch) - len(refused)
        self.refused.extend(refused)
        self._failures = 0
        self.error = None
        self._changed.notify_all()

    def _failed(self, pages: int, error: BaseException) -> None:
        with self._changed:
            self._failures += 1
            self._counts.failures += 1
            self.error = described(error)
            wait = None if self.is_held() else self._config.delay(self._failures)
            self._retry_at = time.monotonic() + (wait or 0.0)
            # a dream must not wait for what may never come
            self._tried = self.taken
            kept = len(self._pages)
            self._changed.notify_all()
        logger.log(
            logging.ERROR if wait is None else logging.WARNING,
            "%d pages could not be written; %d are kept and %s",
            pages,
            kept,
            "tried again when more come, or on flush" if wait is None else f"tried again in {wait:.3g} s",
            exc_info=error,
        )
        self._emit("ingest_failed", None, {"pages": pages, "error": described(error), "retry_in": wait})


def checked_pages(pages: Sequence[Page]) -> list[Page]:
    """Return the pages as a list.

    Raises:
        ConfigError: They are no list.
        InvalidMemoryError: What is no page, has no text or session, or a field of another type.
    """
    pages = as_list("pages", pages)
    for page in pages:
        check_page(page)
    return pages
