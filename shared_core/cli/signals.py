"""``dream eval signals``: which questions teach a trained agent most."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from shared_core.cli import lora_options, options
from shared_core.cli.console import emit, progress_bar, show
from shared_core.cli.interrupt import Interrupted, stop_on_interrupt
from shared_core.errors import ConfigError

STOPPING = "dream: it ends after this step and goes on with the same command; Ctrl-C again breaks it off"


def signals(
    data: lora_options.Data,
    adapters: lora_options.Adapters,
    out: lora_options.Out,
    agent: Annotated[str, typer.Option(help="dreamer, analyst or consolidator.")] = "consolidator",
    model: lora_options.Model = "smollm2",
    arms: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Names with semicolons; default: all of them.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each arm.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Of each training.")] = 500,
    accumulation: Annotated[int, typer.Option(min=1, help="Groups per step.")] = 4,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW.")] = 1e-3,
    temperature: lora_options.Temperature = 1.0,
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Held-out queries at most.", show_default=False),
    ] = None,
    embedder: lora_options.Embedder = None,
    as_json: options.AsJson = False,
) -> None:
    """Train an agent on dreams' questions, the best of them, or real ones, and judge each on real ones.

    Example: dream eval signals data --adapters runs/sft --out runs/signals --seeds 3 --steps 20
    """
    from shared_core.evaluation.signals import compare_signals, summarise
    from shared_core.training.dataset import read_training_set
    from shared_core.training.grpo import GrpoConfig

    names = lora_options.agents_of(agent)
    if len(names) > 1:
        raise ConfigError("--agent all is too much at once: name one agent")
    lora_options.check_adapters(adapters, names)
    config = GrpoConfig(
        steps=steps, accumulation=accumulation, learning_rate=learning_rate, temperature=temperature
    )
    training_set = read_training_set(data)
    practices = lora_options.open_practices(training_set, embedder)
    backbone = lora_options.open_backbone(model, adapters)
    with progress_bar() as progress, stop_on_interrupt(STOPPING) as stop:
        rows = compare_signals(
            backbone,
            training_set,
            practices,
            names[0],
            adapters / names[0],
            out,
            seeds=seeds,
            config=config,
            limit=limit,
            arms=None if arms is None else [name.strip() for name in arms.split(";")],
            stop=stop,
            progress=progress,
        )
        stopped = stop()
    found = summarise(rows)
    if as_json:
        emit({"rows": [row.to_dict() for row in rows], "arms": [vars(one) for one in found]})
    else:
        show(
            ["signal", "seeds", "mean reward", "deviation", "between talks", "seeds above the baseline"],
            [
                [one.arm, one.seeds, one.reward, one.deviation, one.talk_deviation, one.better]
                for one in found
            ],
        )
    if stopped:
        raise Interrupted
