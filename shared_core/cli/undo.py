"""``dream undo``: take one run back."""

from __future__ import annotations

from typing import Annotated

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, say
from shared_core.cli.nearby import runs_offered
from shared_core.language.counting import counted


def undo(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run; `dream log` lists them.")],
    location: options.Location,
    collection: options.Collection,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Undo one run, or a dream cycle with its repairs. The undo is a run too: undoing it is a redo.

    Example: dream undo 19c1f4a2b3c-9f2e1a ./chroma --collection memories
    """
    run_id, location = options.sort_out(run_id, location)
    with options.open_bank(location, collection, state, where) as bank, runs_offered(bank, run_id):
        done = bank.undo(run_id)
    if as_json:
        emit(done.to_dict())
        return
    redo = options.command("undo", done.run_id, location, collection, state, where)
    undone = done.report.get("kind", "run")
    repairs = len(done.report.get("children", []))
    say(
        f"undid {undone} {run_id}"
        + (f" with its {counted(repairs, 'repair')}" if repairs else "")
        + f", {counted(done.changes, 'change')} taken back; redo it with: {redo}"
    )
