"""``dream status``: what a bank looks like now."""

from __future__ import annotations

from rich.text import Text

from shared_core.cli import options
from shared_core.cli.console import emit, number, safe, say, show
from shared_core.cli.runs import show_runs, what_it_did
from shared_core.language.counting import counted


def status(
    location: options.Location,
    collection: options.Collection,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Show counts, weights, suspects and the last runs.

    Example: dream status ./chroma --collection memories
    """
    with options.open_bank(location, collection, state, where) as bank:
        found = bank.status()
        texts = bank.content.get([str(suspect["id"]) for suspect in found.suspects])
    if as_json:
        emit(found.to_dict())
        return
    say(
        f"{found.collection}: {counted(found.memories, 'memory')}, d = {number(found.dimension)}, "
        f"{found.space}; mean weight {number(found.mean_weight)}"
    )
    lower = {
        "reduced (0.5 <= w < 1)": found.reduced,
        "weakened (0.1 <= w < 0.5)": found.weakened,
        "forgotten (w < 0.1)": found.forgotten,
        "softly deleted": found.deleted,
    }
    told = [f"{count} {name}" for name, count in lower.items() if count]
    say(f"  {', '.join([f'{found.full} with full weight', *told])}")
    if found.derived or found.keys or found.edges or found.taken_back:
        undone = f"; {found.taken_back} of undone repairs, softly deleted" if found.taken_back else ""
        say(
            f"  from dreams: {counted(found.derived, 'derived memory')}{undone}; "
            f"{counted(found.keys, 'retrieval key')}, {counted(found.edges, 'edge')}"
        )
    if found.trusted:
        say(f"  {found.trusted} trusted: no sweep lowers them (dream trusted)")
    if found.quarantine is not None:
        weight = number(found.quarantine)
        say(f"  {found.quarantined} in quarantine (w = {weight} until a sweep has seen them)")
    swept = next((run for run in found.runs if run.kind == "sweep" and run.status == "applied"), None)
    if swept is not None and (warned := what_it_did(swept)):
        say(Text("  the last sweep ").append(warned).append(": dream report shows them"))
    if found.orphans:
        say(f"  {found.orphans} with state are gone from the collection; their state waits for them")
    if found.locked_by:
        say(f"locked by: {found.locked_by}")
    if found.suspects:
        rows = [
            (safe(str(s["id"]), 24), s["weight"], s["suspicion"], safe(texts[str(s["id"])].text, 70))
            for s in found.suspects
            if s["id"] in texts
        ]
        show(["memory", "weight", "suspicion", "text"], rows)
    if found.runs:
        show_runs(found.runs)
