"""``dream train sft``, ``grpo`` and ``joint``: adapters of the three agents, stage after stage."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from shared_core.cli import lora_options, options
from shared_core.cli.console import progress_bar
from shared_core.cli.interrupt import Interrupted, stop_on_interrupt
from shared_core.cli.lora_runs import check_free, draw, kept, run_folder, staged, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared_core.training.backbone import Backbone
    from shared_core.training.dataset_forms import AgentName
    from shared_core.training.run_card import RunCard

STOPPING = "dream: it ends after this step, and the same command goes on there; Ctrl-C again breaks it off"

Rate = Annotated[float, typer.Option("--learning-rate", help="Of AdamW.")]


def sft(
    data: lora_options.Data,
    out: lora_options.Out,
    agent: lora_options.Agent = lora_options.ALL,
    model: lora_options.Model = "smollm2",
    adapters: Annotated[
        Optional[Path],  # noqa: UP045 (read at run time, on Python 3.10 too)
        typer.Option(metavar="DIR", help="Adapters to begin with; default: new ones.", show_default=False),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Times that every example is seen.")] = 3,
    batch: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 4,
    learning_rate: Rate = 2e-4,
    examples: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Examples per agent at most.", show_default=False),
    ] = None,
    signal: lora_options.Signals = lora_options.BOTH,
    save_every: lora_options.SaveEvery = 25,
    in_8_bits: lora_options.Quantize8 = False,
    seed: lora_options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Teach each agent's adapter the replies of the set's teacher; the model itself stays as it is.

    Ctrl-C ends it after the step; the same command goes on there.

    Example: dream train sft data --agent all --out adapters
    """
    from shared_core.training.dataset import read_training_set
    from shared_core.training.sft import SftConfig, train_sft

    agents = lora_options.agents_of(agent)
    config = SftConfig(
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        max_examples=examples,
        signal=lora_options.signal_of(signal),
        save_every=save_every,
        seed=seed,
    )
    check_free(out, agents, adapters)
    training_set = read_training_set(data)
    backbone = lora_options.open_backbone(model, adapters, in_8_bits=in_8_bits, seed=seed)

    def train(one: AgentName, **watched: Any) -> RunCard:
        return train_sft(backbone, training_set, one, run_folder(out, one), config, **watched)

    _each(backbone, agents, out, adapters, train, as_json=as_json)


def grpo(
    data: lora_options.Data,
    adapters: lora_options.Adapters,
    out: lora_options.Out,
    agent: lora_options.Agent = lora_options.ALL,
    model: lora_options.Model = "smollm2",
    steps: Annotated[int, typer.Option(min=1, help="Updates per agent.")] = 500,
    group: lora_options.Group = 4,
    accumulation: lora_options.Accumulation = 4,
    learning_rate: Rate = 1e-3,
    temperature: lora_options.Temperature = 1.0,
    exploration: lora_options.Exploration = 0.2,
    signal: lora_options.Signals = lora_options.BOTH,
    top: lora_options.Top = 1.0,
    save_every: lora_options.SaveEvery = 10,
    embedder: lora_options.Embedder = None,
    in_8_bits: lora_options.Quantize8 = False,
    seed: lora_options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Train each agent's adapter on the rewards of its own replies, after ``dream train sft``.

    Ctrl-C ends it after the step; the same command goes on there.

    Example: dream train grpo data --adapters adapters --out adapters-grpo --top 0.3
    """
    from shared_core.training.dataset import read_training_set
    from shared_core.training.grpo import GrpoConfig, train_grpo

    agents = lora_options.agents_of(agent)
    config = GrpoConfig(
        steps=steps,
        group=group,
        accumulation=accumulation,
        learning_rate=learning_rate,
        temperature=temperature,
        exploration=exploration,
        signal=lora_options.signal_of(signal),
        top=top,
        save_every=save_every,
        seed=seed,
    )
    check_free(out, agents, adapters)
    lora_options.check_adapters(adapters, agents)
    training_set = read_training_set(data)
    practices = lora_options.open_practices(training_set, embedder)
    backbone = lora_options.open_backbone(model, adapters, in_8_bits=in_8_bits, seed=seed)

    def train(one: AgentName, **watched: Any) -> RunCard:
        return train_grpo(
            backbone,
            training_set,
            one,
            run_folder(out, one),
            practices.score_group,
            config,
            rewards=asdict(practices.rewards),
            **watched,
        )

    _each(backbone, agents, out, adapters, train, as_json=as_json)


def joint(
    data: lora_options.Data,
    adapters: lora_options.Adapters,
    out: lora_options.Out,
    model: lora_options.Model = "smollm2",
    steps: Annotated[int, typer.Option(min=1, help="Updates of both agents together.")] = 200,
    group: lora_options.Group = 4,
    accumulation: lora_options.Accumulation = 4,
    learning_rate: Rate = 1e-3,
    temperature: lora_options.Temperature = 1.0,
    exploration: lora_options.Exploration = 0.2,
    signal: lora_options.Signals = "dream",
    top: lora_options.Top = 1.0,
    save_every: lora_options.SaveEvery = 10,
    embedder: lora_options.Embedder = None,
    in_8_bits: lora_options.Quantize8 = False,
    seed: lora_options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Train Dreamer and Consolidator in turn on what repairs bring to fresh questions; the Analyst is frozen.

    Ctrl-C ends it after the step; the same command goes on there.

    Example: dream train joint data --adapters adapters-grpo --out adapters-joint
    """
    from shared_core.training.dataset import AGENTS, read_training_set
    from shared_core.training.joint import JointConfig, train_joint

    config = JointConfig(
        steps=steps,
        group=group,
        accumulation=accumulation,
        learning_rate=learning_rate,
        temperature=temperature,
        exploration=exploration,
        signal=lora_options.signal_of(signal),
        top=top,
        save_every=save_every,
        seed=seed,
    )
    check_free(out, list(AGENTS), adapters, run=out)
    lora_options.check_adapters(adapters, list(AGENTS))
    training_set = read_training_set(data)
    practices = lora_options.open_practices(training_set, embedder)
    backbone = lora_options.open_backbone(model, adapters, in_8_bits=in_8_bits, seed=seed)
    with progress_bar() as progress, stop_on_interrupt(STOPPING) as stop:
        card = train_joint(backbone, training_set, practices, out, config, stop=stop, progress=progress)
    tell(out, [(out, card, draw(card, out))], as_json=as_json)
    if not card.finished:
        raise Interrupted


# ---- inner


def _each(
    backbone: Backbone,
    agents: list[AgentName],
    out: Path,
    adapters: Path | None,
    train: Callable[..., RunCard],
    *,
    as_json: bool,
) -> None:
    """Train agents one after the other, and put their adapters where the next stage finds them."""
    runs: list[tuple[Path, RunCard, Path | None]] = []
    with progress_bar() as progress, stop_on_interrupt(STOPPING) as stop:
        for agent in agents:
            card = train(agent, stop=stop, progress=staged(progress, agent))
            folder = run_folder(out, agent)
            runs.append((folder, card, draw(card, folder)))
            if not card.finished:
                break
            backbone.save(out, [agent])
            if stop():
                break
    kept(backbone, out, adapters)
    tell(out, runs, as_json=as_json)
    if len(runs) < len(agents) or not runs[-1][1].finished:
        raise Interrupted
