"""A daemon thread that exists only while there is something to do.

An idle scheduler so holds no thread, and one that was forgotten is collected like any object. Knows nothing
of pages and dreams.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

Job = Callable[[], None]
Plan = Callable[[], "Job | float | None"]
"""Called with the condition held: the job to run without it, seconds to wait, or None to end."""

logger = logging.getLogger(__name__)


class WorkThread:
    """Runs what a plan hands out, one job after the other.

    Args:
        name: Of the thread.
        changed: Guards what the plan reads; notified when that changes.
        plan: See ``Plan``.
    """

    def __init__(self, name: str, changed: threading.Condition, plan: Plan) -> None:
        self._name = name
        self._changed = changed
        self._plan = plan
        self._thread: threading.Thread | None = None

    def wake(self) -> bool:
        """Let the thread look at its plan again, starting it where it ended; the condition is held.

        Returns:
            False where no thread can be started, as when the interpreter exits.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                logger.warning("%s: no thread can be started", self._name, exc_info=True)
                return False
            self._thread = thread
        self._changed.notify_all()
        return True

    def work_here(self) -> None:
        """Run what the plan hands out in the calling thread, where ``wake`` could start none."""
        while (job := self._next()) is not None:
            job()

    def has_ended(self) -> bool:
        """Tell whether no thread is running; the condition is held."""
        return self._thread is None

    def is_current(self) -> bool:
        """Tell whether the caller is this thread."""
        return self._thread is threading.current_thread()

    def _work(self) -> None:
        try:
            self.work_here()
        except BaseException:
            # jobs handle their own failures, so this is a defect: shown by threading.excepthook
            with self._changed:
                self._thread = None
                self._changed.notify_all()
            raise

    def _next(self) -> Job | None:
        with self._changed:
            while True:
                planned = self._plan()
                if planned is None:
                    self._thread = None
                    self._changed.notify_all()
                    return None
                if not isinstance(planned, (int, float)):
                    return planned
                self._changed.wait(planned)
