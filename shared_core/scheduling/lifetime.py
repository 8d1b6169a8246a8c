"""Which schedulers a process has: one per bank, closed at exit, none inherited by a forked child."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared_core.bank import MemoryBank
    from shared_core.scheduling.scheduler import DreamScheduler

logger = logging.getLogger(__name__)


class _Registry:
    """What this process has made so far."""

    def __init__(self) -> None:
        self.hooked = False
        self.forget()

    def forget(self) -> None:
        """Start anew in a forked child: threads stayed behind, and a lock may be held by one for ever."""
        self.guard = threading.Lock()
        self.open: weakref.WeakSet[DreamScheduler] = weakref.WeakSet()
        self.shared: dict[tuple[str, int, str], tuple[DreamScheduler, dict[str, Any]]] = {}


_registry = _Registry()


def register(scheduler: DreamScheduler) -> None:
    """Let the interpreter's exit close a scheduler."""
    with _registry.guard:
        _registry.open.add(scheduler)
        if not _registry.hooked:
            # after the bank's own hooks were registered, so that ours runs before them
            atexit.register(_close_all)
            os.register_at_fork(after_in_child=_registry.forget)
            _registry.hooked = True


def shared(bank: MemoryBank, options: dict[str, Any], make: Callable[[], DreamScheduler]) -> DreamScheduler:
    """Return the scheduler of a bank's state and tenant, or make it.

    Raises:
        ConfigError: There is one already, and it was made with other options.
    """
    key = (str(bank.state.engine.url), bank.state.bank_id, bank.state.scope)
    with _registry.guard:
        known = _registry.shared.get(key)
    if known is None or known[0].bank.closed or known[0].status().state == "closed":
        made = make()
        with _registry.guard:
            # of two threads that made one, the first is kept; the other's never did anything
            if known is _registry.shared.get(key):
                _registry.shared[key] = (made, options)
                return made
            known = _registry.shared[key]
    scheduler, first = known
    for name, value in options.items():
        if first.get(name) is not value and first.get(name) != value:
            raise ConfigError(
                f"this bank has a scheduler already, with {name}={first.get(name)!r}, not {value!r}: "
                "ask for it without options, or close it first"
            )
    return scheduler


def _close_all() -> None:
    with _registry.guard:
        schedulers = list(_registry.open)
    for scheduler in schedulers:
        try:
            scheduler.close(timeout=scheduler.config.exit_timeout)
        except Exception:
            logger.exception("a scheduler could not be closed at exit")
