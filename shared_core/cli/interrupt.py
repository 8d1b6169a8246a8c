"""Ctrl-C as a wish: the first ends a long command where it may stop, the second breaks it off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

INTERRUPTED = 130
"""Exit code, as a shell gives it."""


class Interrupted(Exception):  # noqa: N818
    """A command that ended early at its user's wish, and has said so."""


@contextmanager
def stop_on_interrupt(notice: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed; a second Ctrl-C raises KeyboardInterrupt.

    Args:
        notice: Said on standard error at the first Ctrl-C.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        # only the main thread is told of signals
        yield asked.is_set
        return

    def stop(_number: int, _frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)
        # the signal may come while the same stream is being written
        with suppress(RuntimeError, OSError):
            typer.echo(notice, err=True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
