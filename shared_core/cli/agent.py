"""``dream eval agent``: an agent with a poisoned memory, end to end, with a chat model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from shared_core.cli import complete, options
from shared_core.cli.console import emit, progress_bar, safe, say, show
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.chat import ChatModel
    from shared_core.evaluation.agent_tasks import AgentCase
    from shared_core.types import Progress

DEFAULT_FAMILIES = ("agentpoison-ehr500-in", "agentpoison-strategyqa-in")
SHOWN = ("asr_r", "asr_a", "asr_t", "acc", "tokens", "seconds", "defence_seconds")


def agent(
    model: Annotated[
        str,
        typer.Option(
            help="smollm2 (weak, offline), copycat (a script that copies its demonstrations), or an import "
            "path package.module:object of a chat model, such as langchain_dream.as_chat(...).",
            show_default=False,
        ),
    ],
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Directory of the published attacks.", show_default=False),
    ] = None,
    case: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="A case file with task and markers; may be repeated.", show_default=False),
    ] = None,
    defence: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="A defence of `dream eval poison`, or auditor; may be repeated. Default: none and paper.",
            show_default=False,
        ),
    ] = None,
    auditor: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Model of the defence auditor, as for --model. Default: the same.", show_default=False
        ),
    ] = None,
    family: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help=f"Families of --data. Default: {' and '.join(DEFAULT_FAMILIES)}.", show_default=False
        ),
    ] = None,
    triggers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Only the first cases of each family.", show_default=False),
    ] = None,
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1, help="Only the first queries of a case, with and without the trigger.", show_default=False
        ),
    ] = None,
    injected: Annotated[int, typer.Option(min=1, help="Poisons per case of --data.")] = 4,
    embedder: Annotated[
        str, typer.Option(help=options.EMBEDDER_HELP, autocompletion=complete.embedders)
    ] = "minilm",
    agent: Annotated[str, typer.Option(help="structured or open-ended.")] = "structured",
    small: Annotated[bool, typer.Option("--small", help="Small memories, one case per family.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Let an agent answer from a poisoned memory: ASR-r, ASR-a, ASR-t, ACC, tokens and seconds per defence.

    Example: dream eval agent --data DIR --model copycat --triggers 2 --json
    """
    from shared_core.evaluation import CachedEmbedder
    from shared_core.evaluation.agent import AUDITOR, check_agent_defence, evaluate_agent
    from shared_core.evaluation.agent_tasks import load_agent_case
    from shared_core.evaluation.defences import DEFAULT_DEFENCES

    defences = defence or list(DEFAULT_DEFENCES)
    for name in defences:
        check_agent_defence(name)
    if data is None and not case:
        raise ConfigError("nothing to evaluate: give --data DIR or --case FILE")
    if AUDITOR in defences and (auditor or model) == "copycat":
        raise ConfigError(
            "the copycat cannot judge a memory: give --auditor smollm2 or package.module:object"
        )
    if auditor is not None and AUDITOR not in defences:
        raise ConfigError("--auditor is the model of --defence auditor: give that too")
    answers = _open_model(model)
    judges = _open_model(auditor) if auditor is not None and auditor != model else None
    cases = [load_agent_case(path, limit=limit) for path in case or []]
    cached = CachedEmbedder(options.open_embedder(embedder))
    if data is not None:
        asked = {"injected": [injected], "small": small, "embedder": cached, "seed": seed}
        cases += _of_data(data, family, triggers=triggers, limit=limit, **asked)
    rows: list[dict[str, Any]] = []
    with progress_bar() as progress:
        for number, attack in enumerate(cases, start=1):
            found = evaluate_agent(
                attack,
                defences,
                cached,
                answers,
                embedder_name=embedder,
                model_name=model,
                auditor=judges,
                agent=agent.replace("-", "_"),  # type: ignore[arg-type]
                seed=seed,
                progress=_numbered(progress, f"case {number} of {len(cases)}"),
            )
            rows += [row.to_dict() for row in found]
    if as_json:
        emit({"rows": rows})
        return
    cells = [[safe(row["case"], 44), row["defence"], *(row[name] for name in SHOWN)] for row in rows]
    show(["case", "defence", *SHOWN], cells)
    if model == "copycat":
        say("copycat is a script that copies its most similar memory, not a language model")


def _of_data(
    data: Path, families: list[str] | None, *, triggers: int | None, limit: int | None, **suite: Any
) -> Iterator[AgentCase]:
    from shared_core.evaluation import attack_suite
    from shared_core.evaluation.agent_tasks import agent_case, task_of
    from shared_core.evaluation.suite import select_families

    selected = select_families(families or list(DEFAULT_FAMILIES), searching=False)
    usable = [name for name in selected if task_of(name) is not None]
    if not usable:
        raise ConfigError(f"--family {', '.join(families or [])}: no end-to-end markers are published for it")
    for name in usable:
        for found in islice(attack_suite(data, families=[name], **suite), triggers):
            yield agent_case(found, data, limit=limit)


def _open_model(name: str) -> ChatModel:
    from shared_core.evaluation.agent_copycat import Copycat

    if name == "copycat":
        return Copycat()
    if name != "smollm2" and ":" not in name:
        raise ConfigError(f"model {name!r} is none of copycat, smollm2, package.module:object")
    return options.open_model(name)


def _numbered(progress: Progress | None, prefix: str) -> Progress | None:
    if progress is None:
        return None
    return lambda stage, done, total: progress(f"{prefix}, {stage}", done, total)
