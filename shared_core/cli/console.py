"""What commands print: tables and plain lines for people, one JSON object for programs.

Memory text is hostile: control characters and terminal escapes are neutralised before it is shown.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from shared_core.types import Progress as ProgressCallback

PLAIN_WIDTH = 120
MARK = "?"
"""Stands for a character that must not reach a terminal; in every encoding."""

GAP, LEAST_LAST = 2, 10
"""Between two columns of a table; of its last column, however narrow the terminal."""

_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn"}


def emit(value: Any) -> None:
    """Print one JSON object; ASCII only, so that no hostile id can act on a terminal."""
    typer.echo(json.dumps(value, allow_nan=False))


def say(line: str | Text = "") -> None:
    """Print one line, whole, so that a command in it can be copied."""
    _console().print(line, soft_wrap=True)


def show(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a plain table; cells are strings, numbers or ``Text``."""
    console = _console()
    drawn, width = _table(headers, rows, console.width)
    # rich drops whole columns of a table that is too wide; a terminal breaks its lines instead
    console.width = max(width, console.width)
    console.print(drawn)


def safe(text: str, limit: int = 100, *, tail: bool = False) -> Text:
    """Return one line of hostile text that cannot move a cursor, change a colour or reverse a line.

    Args:
        text: Anything.
        limit: Characters shown at most.
        tail: Show the end of a longer text, not its beginning.
    """
    if tail and len(text) > limit:
        return Text("...").append(safe(text[3 - limit :], limit))
    flat = "".join(
        " " if c.isspace() else MARK if unicodedata.category(c) in _INVISIBLE else c
        for c in text[: limit + 1]
    )
    return Text(flat if len(text) <= limit else flat[: limit - 3] + "...")


def number(value: Any) -> str:
    """Return a number as people read it; a weight that is all but 0 says so."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else "<0.001"
    return str(value)


def moment(seconds: float) -> str:
    """Return a Unix time as local time, to the minute; ``--json`` has it exactly."""
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().strftime("%m-%d %H:%M")


@contextmanager
def progress_bar() -> Iterator[ProgressCallback | None]:
    """Yield a progress callback that draws on a terminal, or None where standard error is none."""
    if not _is_terminal(sys.stderr):
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield report


def _console() -> Console:
    # plain text where there is no terminal; rich itself respects NO_COLOR
    return Console(highlight=False, markup=False, width=None if _is_terminal(sys.stdout) else PLAIN_WIDTH)


def _is_terminal(stream: TextIO | None) -> bool:
    # a closed standard stream is None
    return stream is not None and stream.isatty()


def _table(headers: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> tuple[Table, int]:
    """Lay out a table whose last column gives way on a narrow terminal; ids and numbers stay whole.

    Returns:
        The table, and the width that it takes.
    """
    drawn = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headers))
    cells = [[cell if isinstance(cell, Text) else Text(number(cell)) for cell in row] for row in rows]
    widest = [
        max([len(header), *(row[position].cell_len for row in cells)])
        for position, header in enumerate(headers)
    ]
    before_last = sum(widest[:-1]) + GAP * (len(headers) - 1)
    widest[-1] = min(widest[-1], max(len(headers[-1]), LEAST_LAST, width - before_last))
    for position, header in enumerate(headers):
        numeric = bool(rows) and all(isinstance(row[position], (int, float)) for row in rows)
        drawn.add_column(header, justify="right" if numeric else "left", no_wrap=True, width=widest[position])
    for row in cells:
        drawn.add_row(*row)
    return drawn, before_last + widest[-1]
