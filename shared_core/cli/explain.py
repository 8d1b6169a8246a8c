"""``dream explain``: why a memory is suspect, or why it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from shared_core.cli import options, term_options
from shared_core.cli.console import emit, moment, number, progress_bar, safe, say, show
from shared_core.cli.nearby import memories_offered
from shared_core.cli.runs import DECIDED

if TYPE_CHECKING:
    from shared_core.bank.explaining import Explanation, TermExplanation

LINE, WARNING = 300, 800
SHOWN_IDS = 8


def explain(
    memory_id: Annotated[str, typer.Argument(metavar="MEMORY_ID", help="The memory.")],
    location: options.Location,
    collection: options.Collection,
    preset: term_options.Preset = "hardened",
    agent: term_options.Agent = "structured",
    seed: term_options.Seed = 0,
    term: term_options.TermNames = None,
    without: term_options.Without = None,
    repeated: term_options.Repeated = "report",
    embedder: term_options.EmbedderName = None,
    value_key: term_options.ValueKey = None,
    origin_key: term_options.OriginKey = None,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what each term thinks of one memory, what it resembles, and which runs changed it. Changes nothing.

    Give the options of the sweep that it is about.

    Example: dream explain m42 ./chroma --collection memories --value-key answer
    """
    memory_id, location = options.sort_out(memory_id, location)
    config = term_options.configured(preset, agent, term, without, repeated, seed=seed)
    with options.open_bank(
        location, collection, state, where, value_key=value_key, origin_key=origin_key
    ) as bank:
        with memories_offered(bank, memory_id):
            bank.get([memory_id])  # an unknown id is told before a model is loaded
        bank.embedder = term_options.embedder_of(bank, embedder, config)
        with progress_bar():
            found = bank.explain(memory_id, config)
    if as_json:
        emit(found.to_dict())
        return
    _say_what_it_is(found)
    _say_what_terms_think(found)
    if found.nearest:
        say()
        show(["nearest", "cosine"], [(safe(one.id, LINE), one.similarity) for one in found.nearest])
    _say_what_changed_it(found)
    for warning in found.warnings:
        say(Text.assemble(("warning: ", "yellow"), safe(warning, WARNING)))


def _say_what_it_is(found: Explanation) -> None:
    say(Text("memory ").append(safe(found.id)).append(": ").append(safe(found.text, LINE)))
    if found.value is not None:
        say(Text("value: ").append(safe(found.value, LINE)))
    state = found.state
    say(
        f"weight {number(state.weight)}, suspicion {number(state.suspicion)}, consolidation "
        f"{number(state.consolidation)}" + (", softly deleted" if state.deleted else "")
    )
    if found.trusted:
        say("trusted: somebody restored it, and no sweep lowers it (dream distrust takes that back)")
    if found.ceiling < 1.0:
        say(f"its weight was set by hand: no sweep raises it above {number(found.ceiling)}")
    if found.quotes:
        say("it takes no part in a sweep: its weight follows those of the memories that it quotes")
        rows = [(safe(q.id, LINE), q.weight, q.suspicion, "yes" if q.flagged else "no") for q in found.quotes]
        show(["quotes", "weight", "suspicion", "flagged"], rows)
        return
    if not found.takes_part:
        say("it takes no part in a sweep: it is softly deleted, or its embedding has no direction")
        return
    judged = "flagged" if found.flagged else "not flagged"
    say(f"{judged}; score {number(found.score)}, rank {found.rank} of {found.memories}, 1 the most suspect")


def _say_what_terms_think(found: Explanation) -> None:
    if not found.terms:
        return
    rows = [
        (one.name, one.value, one.standard, one.rank, one.level, "yes" if one.flagged else "no", one.summary)
        for one in found.terms
    ]
    say()
    show(["term", "score", "standardised", "rank", "level", "flagged", "what it looks at"], rows)
    for one in found.terms:
        if one.text is not None:
            say(Text(f"{one.name}: it ").append(safe(one.text, LINE)))
            _say_details(one)


def _say_details(one: TermExplanation) -> None:
    for name, span in (("key", one.span), ("value", one.payload)):
        if span:
            say(Text(f"  in the {name}: ").append(safe(span, LINE)))
    if one.neighbours:
        shown = ", ".join(one.neighbours[:SHOWN_IDS])
        more = "" if len(one.neighbours) <= SHOWN_IDS else f" and {len(one.neighbours) - SHOWN_IDS} more"
        say(Text("  with: ").append(safe(shown, LINE)).append(more))


def _say_what_changed_it(found: Explanation) -> None:
    say()
    if not found.runs:
        say("no run ever changed it")
        return
    rows = []
    for run in found.runs:
        parts = [
            f"{name} {number(before)} to {number(after)}" for name, (before, after) in run.values.items()
        ]
        parts += ["text"] if run.rewrote else []
        parts += [DECIDED[run.kind]] if run.decided and run.kind in DECIDED else []
        # an addition is journalled as the end of a soft deletion
        what = "added" if run.kind == "add" else ", ".join(parts)
        rows.append((run.run_id, run.kind, run.status, moment(run.created_at), what))
    show(["run", "kind", "status", "when", "changed"], rows)
