"""``dream eval table``: rows of ``dream eval poison`` as a table per family."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, safe, say, show
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.evaluation.table import CountTable

HEADERS = ("family", "defence", "cases", "undefended", "auroc", "asr_r", "retention", "false_forget")


def table(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="What `dream eval poison --out FILE` wrote, or --json printed.",
            show_default=False,
        ),
    ],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print it for a document.")] = False,
    by_embedder: Annotated[
        bool, typer.Option("--by-embedder", help="A table per embedder, not their mean.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show means per family and defence, one table per count of poisons; * marks the best baseline.

    Example: dream eval table rows.jsonl --markdown
    """
    from shared_core.evaluation.saved import read_rows
    from shared_core.evaluation.table import tabulate, to_markdown

    if markdown and as_json:
        raise ConfigError("--markdown and --json contradict each other: give one of them")
    tables = tabulate((row for path in files for row in read_rows(path)), by_embedder=by_embedder)
    if not tables:
        named = ", ".join(map(str, files))
        raise ConfigError(f"there are no rows in {named}: write some with `dream eval poison --out FILE`")
    if as_json:
        emit({"tables": [one.to_dict() for one in tables]})
    elif markdown:
        typer.echo(to_markdown(tables))
    else:
        for one in tables:
            _show(one)


def _show(one: CountTable) -> None:
    from shared_core.evaluation.table import METRICS, UNDEFENDED

    say(safe(one.title))
    cells = []
    for line in one.lines:
        for name in one.defences or [UNDEFENDED]:
            cell = line.cells[name]
            mark = "*" if name == line.best_baseline else ""
            measured = (line.undefended, *(getattr(cell, metric) for metric in METRICS))
            shown = [None if math.isnan(value) else value for value in measured]
            cells.append((safe(line.name), f"{name}{mark}", cell.cases, *shown))
    show(HEADERS, cells)
