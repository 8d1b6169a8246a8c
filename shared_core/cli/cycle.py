"""``dream cycle``: a memory asks itself, finds out what it misses, and repairs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from shared_core.cli import cycle_report, dream_options, lora_options, options
from shared_core.cli.console import emit, progress_bar
from shared_core.cli.interrupt import Interrupted, stop_on_interrupt
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.agents import DreamConfig, DreamCycle, DreamEvent
    from shared_core.agents.cycle_report import OnEvent
    from shared_core.agents.llm_agents import LlmAgents
    from shared_core.agents.protocol import Analyst
    from shared_core.bank import MemoryBank
    from shared_core.bank.graph import GraphKeys
    from shared_core.types import Progress

AGENTS = ("rules", "policy", "llm", "lora")
GROUNDWORK_STEPS = 4
LONGEST = 1e9
"""Seconds; infinity is no JSON."""
STOPPING = "dream: it ends at the next repair, and what it repaired stays; Ctrl-C again breaks it off"


def cycle(
    location: options.Location,
    collection: options.Collection,
    agents: Annotated[
        str,
        typer.Option(
            help="rules; policy: rules with what `dream train policy` learned of this bank; llm: a chat "
            "model asks, diagnoses and quotes; or lora: a model with adapters that `dream train sft` made."
        ),
    ] = "rules",
    model: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="For llm: smollm2 (weak, offline), or an import path package.module:object of a chat model, "
            "such as langchain_dream.as_chat(...). For lora: smollm2, or the model's folder.",
            show_default=False,
        ),
    ] = None,
    adapters: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="For lora: the trained adapters.", show_default=False),
    ] = None,
    calls: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            help="For llm, lora: calls at most, then the rules answer; default: 400.",
            show_default=False,
        ),
    ] = None,
    rounds: dream_options.Rounds = 3,
    probes: dream_options.Probes = 96,
    partitions: dream_options.Partitions = 3,
    repairs: Annotated[int, typer.Option(help="Repairs at most, groundwork apart.")] = 20,
    seconds: Annotated[float, typer.Option(max=LONGEST, help="No repair is tried after them.")] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of parts and questions.")] = 0,
    no_groundwork: Annotated[
        bool,
        typer.Option("--no-groundwork", help="Write no keys, bridges and graded weights for all memories."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report, and change nothing.")] = False,
    embedder: dream_options.EmbedderName = None,
    session_key: dream_options.SessionKey = None,
    speaker_key: dream_options.SpeakerKey = None,
    time_key: dream_options.TimeKey = None,
    tenant_key: dream_options.TenantKeys = None,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask the memory about its weak places and repair what retrieval misses, each repair with its own undo.

    Ctrl-C ends it at the next repair; what it repaired until then stays.

    Example: dream cycle ./chroma --collection memories --dry-run
    """
    from shared_core.agents import DreamConfig

    chosen = {"rounds": rounds, "probes": probes, "partitions": partitions, "repairs": repairs}
    config = DreamConfig(
        **chosen,
        seconds=seconds,
        seed=seed,
        groundwork=not no_groundwork,
        tenant_keys=tuple(tenant_key) if tenant_key else None,
    )
    opened = _opened(agents, model, adapters, calls, config)
    with options.open_bank(location, collection, state, where) as bank:
        bank.embedder = options.fitting_embedder(bank, embedder, "a dream embeds its questions")
        keys = dream_options.graph_keys_of(session=session_key, speaker=speaker_key, time=time_key)
        with progress_bar() as progress, stop_on_interrupt(STOPPING) as stop:
            report = _dream(bank, agents, opened, config, keys).run(
                dry_run=dry_run, stop=stop, on_event=_observer(progress, config)
            )
    if as_json:
        emit(report.to_dict())
    else:
        undo = options.command("undo", report.run_id or "", location, collection, state, where)
        cycle_report.show_report(report, model, undo)
    if report.stopped_by == "cancelled":
        raise Interrupted


def _opened(
    agents: str, model: str | None, adapters: Path | None, calls: int | None, config: DreamConfig
) -> LlmAgents | None:
    """Return the agents that ask a model; None where the rules are asked."""
    if agents not in AGENTS:
        raise ConfigError(f"agents={options.shortened(agents)!r} is not one of {', '.join(AGENTS)}")
    if adapters is not None and agents != "lora":
        raise ConfigError("--adapters are for a trained model: give --agents lora too")
    if agents in {"rules", "policy"}:
        for name, given in (("--model", model), ("--calls", calls)):
            if given is not None:
                raise ConfigError(f"{name} is for a chat model: give --agents llm too")
        return None
    return _lora(model, adapters, calls, config) if agents == "lora" else _llm(model, calls, config)


def _llm(model: str | None, calls: int | None, config: DreamConfig) -> LlmAgents:
    from shared_core.agents.asking import AskingLimits
    from shared_core.agents.llm_agents import llm_agents

    if model is None:
        raise ConfigError("--agents llm asks a chat model: give --model smollm2 or package.module:object")
    limits = AskingLimits() if calls is None else AskingLimits(calls=calls)
    return llm_agents(options.open_model(model), limits, gamma=config.gamma)


def _lora(model: str | None, adapters: Path | None, calls: int | None, config: DreamConfig) -> LlmAgents:
    from shared_core.training.backbone import Backbone
    from shared_core.training.lora_agents import LIMITS, lora_agents

    if model is None or adapters is None:
        raise ConfigError(
            "--agents lora needs --model smollm2 or FOLDER, and --adapters DIR of dream train sft"
        )
    # a new adapter writes nothing that can be used: every question would be asked twice for nothing
    lora_options.check_adapters(adapters, lora_options.agents_of(lora_options.ALL))
    limits = LIMITS if calls is None else replace(LIMITS, calls=calls)
    return lora_agents(Backbone.load(model, adapters=adapters), limits, gamma=config.gamma)


def _dream(
    bank: MemoryBank, agents: str, opened: LlmAgents | None, config: DreamConfig, keys: GraphKeys
) -> DreamCycle:
    from shared_core.agents import DreamCycle

    if opened is not None:
        return DreamCycle.with_agents(bank, opened, config=config, graph_keys=keys)
    analyst = _trained(bank) if agents == "policy" else None
    return DreamCycle(bank, analyst=analyst, config=config, graph_keys=keys)


def _trained(bank: MemoryBank) -> Analyst:
    from shared_core.training import PolicyAnalyst, trained_analyst

    analyst = trained_analyst(bank)
    if not isinstance(analyst, PolicyAnalyst):
        raise ConfigError(
            "this bank's policy did no better than the rules on its held-out questions, so it is not used: "
            "dream by rules (leave --agents out), or train it anew with dream train policy --overwrite"
        )
    return analyst


def _observer(progress: Progress | None, config: DreamConfig) -> OnEvent | None:
    """Return what draws a cycle's steps: groundwork, rounds, and repairs kept so far."""
    if progress is None:
        return None
    kept = steps = 0

    def observe(event: DreamEvent) -> None:
        nonlocal kept, steps
        if event.kind == "start" and config.groundwork:
            progress("groundwork", 0, GROUNDWORK_STEPS)
        elif event.kind == "round" and event.data["number"] == 0:
            progress("groundwork", GROUNDWORK_STEPS, GROUNDWORK_STEPS)
        elif event.kind in ("repair", "rejected") and event.round == 0:
            steps += 1
            progress("groundwork", min(steps, GROUNDWORK_STEPS), GROUNDWORK_STEPS)
        elif event.kind == "repair":
            kept += 1
            progress("repairs", kept, config.repairs)
        if event.kind in ("start", "round"):
            progress("rounds", event.round, config.rounds)

    return observe
