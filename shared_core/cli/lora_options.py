"""Options of the commands that train and check adapters, and opening what they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, cast

import typer

from shared_core.cli import options
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.training.backbone import Backbone, Quantize
    from shared_core.training.dataset import TrainingSet
    from shared_core.training.dataset_forms import AgentName, Signal
    from shared_core.training.practice import Practices

ALL, BOTH = "all", "both"

Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="Folder of a set of `dream train data`.", show_default=False)
]
Agent = Annotated[str, typer.Option(help="dreamer, analyst, consolidator, or all one after the other.")]
Model = Annotated[
    str,
    typer.Option(help="smollm2 (packaged), or the folder of a model that transformers loads."),
]
Quantize8 = Annotated[bool, typer.Option("--8bit", help="Load the model in 8 bits; on CUDA only.")]
Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Where the adapters go, each in a folder of its agent's name; the runs' cards and curves too.",
        show_default=False,
    ),
]
Adapters = Annotated[
    Path,
    typer.Option(metavar="DIR", help="Adapters of an earlier stage, to begin with.", show_default=False),
]
Signals = Annotated[str, typer.Option("--signal", help="Only cases of a kind: dream, real, or both.")]
Top = Annotated[float, typer.Option(help="Share of the cases, the most discriminative ones.")]
Group = Annotated[int, typer.Option(min=2, help="Replies drawn per prompt.")]
Accumulation = Annotated[int, typer.Option(min=1, help="Prompts per update.")]
Exploration = Annotated[
    float, typer.Option(min=0.0, help="Replies are drawn so much warmer, as a share; it falls to 0.")
]
Temperature = Annotated[
    float, typer.Option(help="At which replies are drawn and learnt; a small model copies better below 1.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of order and draws.")]
SaveEvery = Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")]
Embedder = Annotated[
    Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
    typer.Option(
        help=f"What memories are searched with: {options.EMBEDDER_HELP} Default: that of the set.",
        show_default=False,
    ),
]


def agents_of(name: str) -> list[AgentName]:
    """Return the agents that ``--agent`` names.

    Raises:
        ConfigError: It names none.
    """
    from shared_core.training.dataset import AGENTS

    if name == ALL:
        return list(AGENTS)
    if name not in AGENTS:
        raise ConfigError(f"--agent {options.shortened(name)!r} is not one of {', '.join(AGENTS)}, or {ALL}")
    return [name]


def signal_of(name: str) -> Signal | None:
    """Return the kind of cases that ``--signal`` names; None for both.

    Raises:
        ConfigError: It names none.
    """
    if name not in {"dream", "real", BOTH}:
        raise ConfigError(f"--signal {options.shortened(name)!r} is not one of dream, real, {BOTH}")
    return None if name == BOTH else cast("Signal", name)


def open_backbone(model: str, adapters: Path | None, *, in_8_bits: bool = False, seed: int = 0) -> Backbone:
    """Load a model with its adapters.

    Raises:
        ConfigError: As for ``Backbone.load``.
        MissingExtraError: The extra ``train`` is not installed.
    """
    from shared_core.training.backbone import Backbone

    quantize: Quantize = "8bit" if in_8_bits else "none"
    return Backbone.load(model, adapters=adapters, quantize=quantize, seed=seed)


def with_adapters(folder: Path) -> list[AgentName]:
    """Return the agents whose adapters a folder has."""
    from shared_core.training.dataset import AGENTS

    return [agent for agent in AGENTS if (folder / agent / "adapter_config.json").is_file()]


def check_adapters(folder: Path, agents: list[AgentName]) -> None:
    """Check that a folder has the adapters of some agents.

    Raises:
        ConfigError: One is missing; the message says how to make it.
    """
    there = with_adapters(folder)
    if lost := [agent for agent in agents if agent not in there]:
        raise ConfigError(
            f"{folder} has no adapter of the {', the '.join(lost)}: make it with `dream train sft DATA "
            f"--agent {lost[0] if len(lost) == 1 else ALL} --out {folder}`"
        )


def open_practices(training_set: TrainingSet, embedder: str | None) -> Practices:
    """Return the memories of a set, searched with an embedder of that name, or with the set's own.

    Raises:
        ConfigError: There is no such embedder.
        MissingExtraError: Its extra is not installed.
    """
    from shared_core.training.practice import Practices

    named = embedder or training_set.card.get("embedder") or "minilm"
    return Practices(training_set, options.open_embedder(str(named)))
