"""``dream forget``: one forgetting sweep over a collection."""

from __future__ import annotations

from typing import Annotated, Optional

import typer
from rich.text import Text

from shared_core.cli import options, term_options
from shared_core.cli.console import emit, number, progress_bar, safe, say, show
from shared_core.errors import ConfigError
from shared_core.language.counting import counted

SHOWN_SUSPECTS = 10
WARNING_WIDTH = 800


def forget(
    location: options.Location,
    collection: options.Collection,
    preset: term_options.Preset = "hardened",
    agent: term_options.Agent = "structured",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report, and change nothing.")] = False,
    iterations: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Probe, diagnose, update: how often; default: the preset's.", show_default=False),
    ] = None,
    seed: term_options.Seed = 0,
    device: Annotated[
        str, typer.Option(help="For paper: cpu (numpy), cuda (torch), or auto: cuda where there is one.")
    ] = "cpu",
    term: term_options.TermNames = None,
    without: term_options.Without = None,
    repeated: term_options.Repeated = "report",
    embedder: term_options.EmbedderName = None,
    value_key: term_options.ValueKey = None,
    origin_key: term_options.OriginKey = None,
    quarantine: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="From now on, weight of memories that no sweep has seen; 1 ends it. "
            "Default: as the bank has it, which is off at first.",
            show_default=False,
        ),
    ] = None,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Probe every memory with noise; those that respond abnormally lose weight. Nothing is deleted.

    Preset hardened reads texts instead: memories of different requests that share a trigger and a payload.

    Example: dream forget ./chroma --collection memories --dry-run
    """
    given = {"seed": seed, "device": device, "iterations": iterations}
    overrides = {name: value for name, value in given.items() if value is not None}
    config = term_options.configured(preset, agent, term, without, repeated, **overrides)
    if dry_run and quarantine is not None:
        raise ConfigError("--dry-run changes nothing and --quarantine does: give one of them")
    opened = {"value_key": value_key, "origin_key": origin_key, "quarantine": quarantine}
    with (
        options.open_bank(location, collection, state, where, **opened) as bank,
        progress_bar() as progress,
    ):
        bank.embedder = term_options.embedder_of(bank, embedder, config)
        waiting = bank.status().quarantined
        report = bank.sweep(config, dry_run=dry_run, progress=progress)
        shown = report.suspects[:SHOWN_SUSPECTS]
        texts = bank.content.get([suspect.id for suspect in shown])
    if as_json:
        emit({**report.to_dict(), "quarantined_before": waiting})
        return
    say(
        f"{counted(report.memories, 'memory')}, {report.lowered} lowered, {report.raised} raised, "
        f"{report.forgotten} forgotten (w < 0.1), in {report.seconds:.1f} s"
        + (f"; following sources: {counted(report.followed, 'derived memory')}" if report.followed else "")
        + (f"; {report.trusted} trusted" if report.trusted else "")
        + ("; dry run, nothing was changed" if dry_run else "")
    )
    if waiting:
        say(f"{waiting} of them {'are' if dry_run else 'were'} in quarantine")
    for warning in report.warnings:
        say(Text.assemble(("warning: ", "yellow"), safe(warning, WARNING_WIDTH)))
    if shown:
        rows = [
            (safe(s.id, 24), s.weight_before, s.weight, s.activation, safe(texts[s.id].text, 60))
            for s in shown
            if s.id in texts
        ]
        show(["memory", "before", "weight", "activation", "text"], rows)
    for reason in dict.fromkeys(suspect.reason for suspect in shown if suspect.reason):
        say(Text("each ").append(safe(reason, WARNING_WIDTH)))
    if len(report.suspects) > len(shown):
        say(f"and {number(report.lowered - len(shown))} more: --json, or dream status")
    if shown:
        say("why a memory is suspect: dream explain MEMORY_ID, with the same options")
    if report.run_id is not None:
        undo = options.command("undo", report.run_id, location, collection, state, where)
        say(f"run {report.run_id}; undo it with: {undo}")
