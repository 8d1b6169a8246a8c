"""``dream forget``: one forgetting sweep over a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.text import Text

from shared_core.cli import options
from shared_core.cli.console import emit, number, progress_bar, safe, say, show
from shared_core.config import ForgettingConfig
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.types import Embedder

SHOWN_SUSPECTS = 10
MINILM_DIMENSION = 384
WARNING_WIDTH = 300


def forget(
    location: options.Location,
    collection: options.Collection,
    preset: Annotated[str, typer.Option(help="Parameters: paper or hardened.")] = "paper",
    agent: Annotated[str, typer.Option(help="Whose: structured or open-ended.")] = "structured",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report, and change nothing.")] = False,
    iterations: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Probe, diagnose, update: how often; default: the preset's.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    embedder: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="For hardened: minilm, or the directory of the model that the collection was filled with; "
            "default: minilm where its dimension fits.",
            show_default=False,
        ),
    ] = None,
    value_key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME",
            help="For hardened: metadata field with the memories' values.",
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
    overrides = {"seed": seed} if iterations is None else {"seed": seed, "iterations": iterations}
    config = ForgettingConfig.preset(preset, agent.replace("-", "_"), **overrides)  # type: ignore[arg-type]
    with (
        options.open_bank(location, collection, state, where, value_key=value_key) as bank,
        progress_bar() as progress,
    ):
        if config.diagnosis == "coupling":
            bank.embedder = _embedder_of(bank, embedder)
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
    if report.run_id is not None:
        undo = options.command("undo", report.run_id, location, collection, state, where)
        say(f"run {report.run_id}; undo it with: {undo}")


def _embedder_of(bank: MemoryBank, name: str | None) -> Embedder:
    """Return the embedder that is named, or MiniLM where the collection may have been filled with it."""
    if name is None and (dimension := bank.content.dimension()) not in {None, MINILM_DIMENSION}:
        raise ConfigError(
            f"preset 'hardened' embeds parts of the memories again, and the collection has dimension "
            f"{dimension}, minilm has {MINILM_DIMENSION}: give --embedder DIR, the directory of its model"
        )
    model: Embedder = options.open_embedder(name or "minilm")
    return model
