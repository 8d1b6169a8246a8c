"""``dream distrust``: let sweeps judge a restored memory again."""

from __future__ import annotations

from typing import Annotated

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, say
from shared_core.cli.nearby import memories_offered


def distrust(
    memory_id: Annotated[str, typer.Argument(metavar="MEMORY_ID", help="The memory.")],
    location: options.Location,
    collection: options.Collection,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Take back the trust that `dream restore` gave; the memory keeps its weight until the next sweep.

    Example: dream distrust m42 ./chroma --collection memories
    """
    memory_id, location = options.sort_out(memory_id, location)
    with options.open_bank(location, collection, state, where) as bank, memories_offered(bank, memory_id):
        was_trusted = memory_id in bank.trusted()
        run = bank.distrust([memory_id])
    if as_json:
        emit({**run.to_dict(), "was_trusted": was_trusted})
        return
    if not was_trusted:
        say(f"{memory_id} was not trusted: sweeps judge it as any other")
        return
    undo = options.command("undo", run.run_id, location, collection, state, where)
    say(f"{memory_id} is judged by the next sweep; undo that with: {undo}")
