"""``dream restore``: give a memory its full weight back, and trust it."""

from __future__ import annotations

from typing import Annotated

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, say
from shared_core.cli.nearby import memories_offered


def restore(
    memory_id: Annotated[str, typer.Argument(metavar="MEMORY_ID", help="The memory.")],
    location: options.Location,
    collection: options.Collection,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Give one memory its full weight back, or bring it back after a soft deletion, and trust it.

    No sweep and no repair lowers it from then on, until its text or metadata change, or `dream distrust`.

    Example: dream restore m42 ./chroma --collection memories
    """
    memory_id, location = options.sort_out(memory_id, location)
    with options.open_bank(location, collection, state, where) as bank, memories_offered(bank, memory_id):
        run = bank.restore([memory_id])
    if as_json:
        emit(run.to_dict())
        return
    undo = options.command("undo", run.run_id, location, collection, state, where)
    done = f"restored {memory_id}" if run.changes else f"{memory_id} had its full weight already"
    say(f"{done}; it is trusted from now on; undo it with: {undo}")
