"""``dream log``: the journal."""

from __future__ import annotations

from typing import Annotated

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, say
from shared_core.cli.runs import show_runs


def log(
    location: options.Location,
    collection: options.Collection,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many runs, newest first.")] = 20,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """List every change of the bank, newest first; each can be undone, a cycle with all its repairs.

    Example: dream log ./chroma --collection memories
    """
    with options.open_bank(location, collection, state, where) as bank:
        runs = bank.runs(limit)
    if as_json:
        emit({"runs": [run.to_dict() for run in runs]})
        return
    if not runs:
        say("the journal is empty: nothing was ever changed")
        return
    show_runs(runs)
