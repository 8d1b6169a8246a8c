"""``dream trusted``: which memories no sweep lowers, because somebody looked at them."""

from __future__ import annotations

from shared_core.cli import options
from shared_core.cli.console import emit, safe, say, show

SHOWN = 50


def trusted(
    location: options.Location,
    collection: options.Collection,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """List the memories that were restored and are as they were then: no sweep and no repair lowers them.

    Example: dream trusted ./chroma --collection memories
    """
    with options.open_bank(location, collection, state, where) as bank:
        memories = bank.get(bank.trusted())
    if as_json:
        listed = [{"id": one.id, "weight": one.state.weight, "text": one.text} for one in memories]
        emit({"trusted": listed})
        return
    if not memories:
        say("none: `dream restore` gives a memory its full weight back, and trusts it from then on")
        return
    rows = [(safe(one.id, 24), one.state.weight, safe(one.text, 80)) for one in memories[:SHOWN]]
    show(["memory", "weight", "text"], rows)
    if len(memories) > SHOWN:
        say(f"and {len(memories) - SHOWN} more: --json")
    say("`dream distrust MEMORY_ID` lets sweeps judge one of them again")
