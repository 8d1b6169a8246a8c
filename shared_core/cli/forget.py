"""``dream forget``: one forgetting sweep over a collection."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, number, progress_bar, safe, say, show
from shared_core.config import ForgettingConfig

SHOWN_SUSPECTS = 10


def forget(
    location: options.Location,
    collection: options.Collection,
    preset: Annotated[str, typer.Option(help="Parameters: paper.")] = "paper",
    agent: Annotated[str, typer.Option(help="Whose: structured or open-ended.")] = "structured",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report, and change nothing.")] = False,
    iterations: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Probe, diagnose, update: how often; default: the preset's.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Probe every memory with noise; those that respond abnormally lose weight. Nothing is deleted.

    Example: dream forget ./chroma --collection memories --dry-run
    """
    overrides = {"seed": seed} if iterations is None else {"seed": seed, "iterations": iterations}
    config = ForgettingConfig.preset(preset, agent.replace("-", "_"), **overrides)  # type: ignore[arg-type]
    with options.open_bank(location, collection, state, where) as bank, progress_bar() as progress:
        report = bank.sweep(config, dry_run=dry_run, progress=progress)
        shown = report.suspects[:SHOWN_SUSPECTS]
        texts = bank.content.get([suspect.id for suspect in shown])
    if as_json:
        emit(report.to_dict())
        return
    say(
        f"{report.memories} memories, {report.lowered} lowered, {report.raised} raised, "
        f"{report.forgotten} forgotten (w < 0.1), in {report.seconds:.1f} s"
        + ("; dry run, nothing was changed" if dry_run else "")
    )
    if shown:
        rows = [
            (safe(s.id, 24), s.weight_before, s.weight, s.activation, safe(texts[s.id].text, 60))
            for s in shown
            if s.id in texts
        ]
        show(["memory", "before", "weight", "activation", "text"], rows)
    if len(report.suspects) > len(shown):
        say(f"and {number(report.lowered - len(shown))} more: --json, or dream status")
    if report.run_id is not None:
        undo = options.command("undo", report.run_id, location, collection, state, where)
        say(f"run {report.run_id}; undo it with: {undo}")
