"""``dream train check``: what trained agents are worth on conversations that they never saw."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from shared_core.cli import lora_options, options
from shared_core.cli.console import emit, progress_bar, safe, say, show
from shared_core.cli.interrupt import Interrupted, stop_on_interrupt
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.training.dataset import TrainingSet
    from shared_core.training.dataset_forms import AgentName, Signal
    from shared_core.training.held_out import HeldOut

STOPPING = "dream: it tells what was answered by now; Ctrl-C again breaks it off"


def check(
    data: lora_options.Data,
    adapters: Annotated[Path, typer.Option(metavar="DIR", help="The trained adapters.", show_default=False)],
    agent: Annotated[
        Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
        typer.Option(
            help="dreamer, analyst, consolidator, or all; default: those whose adapters are there.",
            show_default=False,
        ),
    ] = None,
    model: lora_options.Model = "smollm2",
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Cases per agent at most, spread over the set.", show_default=False),
    ] = None,
    signal: lora_options.Signals = lora_options.BOTH,
    no_backbone: Annotated[
        bool, typer.Option("--no-backbone", help="Only the adapters; halves the time.")
    ] = False,
    embedder: lora_options.Embedder = None,
    in_8_bits: lora_options.Quantize8 = False,
    as_json: options.AsJson = False,
) -> None:
    """Ask the model without and with adapters about held-out conversations, greedily, and reward the replies.

    Example: dream train check data --adapters adapters --limit 40
    """
    from shared_core.training.dataset import read_training_set
    from shared_core.training.held_out import evaluate

    agents = lora_options.agents_of(agent) if agent else lora_options.with_adapters(adapters)
    lora_options.check_adapters(adapters, agents or lora_options.agents_of(lora_options.ALL))
    kind = lora_options.signal_of(signal)
    training_set = read_training_set(data)
    agents = _asked(training_set, agents, kind, all_needed=agent is not None)
    practices = lora_options.open_practices(training_set, embedder)
    backbone = lora_options.open_backbone(model, adapters, in_8_bits=in_8_bits)
    found: list[HeldOut] = []
    with progress_bar() as progress, stop_on_interrupt(STOPPING) as stop:
        for one in agents:
            for adapter in (True,) if no_backbone else (False, True):
                if stop():
                    break
                found.append(
                    evaluate(
                        backbone,
                        training_set,
                        practices,
                        one,
                        adapter=adapter,
                        signal=kind,
                        limit=limit,
                        stop=stop,
                        progress=progress,
                    )
                )
        stopped = stop()
    if as_json:
        emit({"rows": [one.to_dict() for one in found], "data": training_set.digest})
    else:
        _show(found)
    if stopped:
        raise Interrupted


def _asked(
    training_set: TrainingSet, agents: list[AgentName], signal: Signal | None, *, all_needed: bool
) -> list[AgentName]:
    """Return the agents that have a case to test on; says which have none, unless all were asked for."""
    from shared_core.training.held_out import held_out_examples

    found: list[AgentName] = []
    complaint: ConfigError | None = None
    for one in agents:
        try:
            held_out_examples(training_set, one, signal=signal)
            found.append(one)
        except ConfigError as error:
            complaint = error
            if all_needed:
                raise
            typer.echo(f"dream: left out: {error}", err=True)
    if not found and complaint is not None:
        raise complaint
    return found


def _show(found: list[HeldOut]) -> None:
    rows: list[list[Any]] = []
    for one in found:
        reasons = ", ".join(f"{count} {why}" for why, count in Counter(one.reasons).most_common()) or "-"
        who = "adapter" if one.adapter else "backbone"
        rows.append([one.agent, who, one.n, one.valid_share, one.mean_reward, one.deviation, safe(reasons)])
    show(["agent", "who", "cases", "usable", "mean reward", "deviation", "not usable because"], rows)
    if found:
        say(f"{sum(one.seconds for one in found):.0f} s; an unusable reply has reward 0")
