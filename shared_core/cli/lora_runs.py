"""Folders of training runs, and what is told of them.

An output folder has each agent's adapter in a folder of its name, as every later stage reads it; the runs of
single agents are in ``runs``, each with its card and curve.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from shared_core.cli.console import emit, say, show
from shared_core.cli.lora_options import with_adapters
from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_core.training.backbone import Backbone
    from shared_core.training.dataset_forms import AgentName
    from shared_core.training.run_card import RunCard
    from shared_core.types import Progress

RUNS = "runs"
MAIN = {"sft": ["loss"], "grpo": ["reward"], "joint": ["dreamer reward", "consolidator reward"]}
"""The curve of each kind of run whose ends are shown."""
END = 10
"""Steps at either end of a curve that are averaged for people, at most."""


def run_folder(out: Path, agent: AgentName) -> Path:
    """Return where the run of a single agent is."""
    return out / RUNS / agent


def check_free(out: Path, agents: list[AgentName], adapters: Path | None, run: Path | None = None) -> None:
    """Refuse an output folder in which other adapters would be lost.

    Args:
        out: The folder.
        agents: Whose adapters will be written.
        adapters: What training begins with.
        run: The run's folder, where all agents share one.

    Raises:
        ConfigError: It is the folder of ``adapters``, or has an adapter that no run here made.
    """
    if adapters is not None and out.resolve() == adapters.resolve():
        raise ConfigError(f"--out {out} is --adapters: give another folder, so that both stages stay")
    for agent in agents:
        card = (run or run_folder(out, agent)) / "card.json"
        if agent in with_adapters(out) and not card.is_file():
            raise ConfigError(
                f"{out} has an adapter of the {agent} that this run did not make: give another --out"
            )


def kept(backbone: Backbone, out: Path, adapters: Path | None) -> None:
    """Put the adapters that were not trained beside those that were, for the next stage."""
    if adapters is None:
        return
    if lost := [agent for agent in with_adapters(adapters) if agent not in with_adapters(out)]:
        backbone.save(out, lost)


def staged(progress: Progress | None, agent: str) -> Progress | None:
    """Return a progress that names the agent."""
    if progress is None:
        return None

    def report(stage: str, done: int, total: int) -> None:
        progress(f"{stage} {agent}", done, total)

    return report


def draw(card: RunCard, folder: Path) -> Path | None:
    """Draw a run's curves beside its card; None, and a word about it, where matplotlib is missing."""
    from shared_core.reporting.training_curves import FILE, draw_training, save_png

    if not card.curves.get("step"):
        return None
    try:
        figure = draw_training(card)
    except MissingExtraError as error:
        typer.echo(f"dream: the curves are in {folder / 'card.json'}, not drawn: {error}", err=True)
        return None
    save_png(figure, folder / FILE)
    return folder / FILE


def tell(out: Path, runs: Sequence[tuple[Path, RunCard, Path | None]], *, as_json: bool) -> None:
    """Print what came of runs: folder, card and drawn curve of each."""
    if as_json:
        told = [
            {**card.to_dict(), "folder": str(folder), "curve": None if curve is None else str(curve)}
            for folder, card, curve in runs
        ]
        emit({"adapters": str(out), "runs": told})
        return
    rows: list[list[Any]] = []
    for _, card, _ in runs:
        for name in MAIN[card.kind]:
            first, last = _ends(card, name)
            who = card.agents[0] if len(card.agents) == 1 else name.partition(" ")[0]
            what = name.rpartition(" ")[2]
            rows.append([who, what, f"{card.done} of {card.steps}", first, last, f"{card.seconds:.0f} s"])
    show(["agent", "curve", "steps", "first", "last", "time"], rows)
    if all(card.finished for _, card, _ in runs):
        say(f"adapters in {out}: see `dream train check DATA --adapters {out}`")
    else:
        say("not finished: the same command goes on where it stopped")


def _ends(card: RunCard, name: str) -> tuple[float | None, float | None]:
    """Return the means of the first and of the last steps of a curve."""
    values = [value for value in card.curves.get(name, ()) if value is not None]
    if not values:
        return None, None
    most = max(1, min(END, len(values) // 2))
    return float(np.mean(values[:most])), float(np.mean(values[-most:]))
