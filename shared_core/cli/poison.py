"""``dream eval poison``: attack cases, undefended and defended."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, progress_bar, show

SHOWN = ("asr_r", "asr_r_majority", "auroc", "benign_retention", "false_forget", "poison_forget")


def poison(
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Directory of the published attacks.", show_default=False),
    ] = None,
    case: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="A case file of your own; may be repeated.", show_default=False),
    ] = None,
    defence: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="none, paper, hardened, hardened-flag, amemguard, ppl or classifier; repeatable. "
            "Default: the first three.",
            show_default=False,
        ),
    ] = None,
    family: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="Families of --data, such as minja or agentpoison-ehr500-in; all has searched triggers too.",
            show_default=False,
        ),
    ] = None,
    embedder: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help=f"{options.EMBEDDER_HELP} May be repeated. Default: minilm.", show_default=False),
    ] = None,
    agent: Annotated[str, typer.Option(help="structured or open-ended.")] = "structured",
    injected: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option(
            min=1, help="Poisons per case of --data; may be repeated. Default: 4.", show_default=False
        ),
    ] = None,
    cases_per_family: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            help="Draw at most so many cases of each family, by --seed, and the same ones for every count.",
            show_default=False,
        ),
    ] = None,
    arrive: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            help="A slow attacker: poison arrives so many at a time, and the defence runs after each batch.",
            show_default=False,
        ),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            help="How memories are stored: request and value apart; both, the text holding the value too; or "
            "as one note."
        ),
    ] = "apart",
    small: Annotated[bool, typer.Option("--small", help="One cheap case per family of --data.")] = False,
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Only the first cases, of each embedder.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise and of every draw.")] = 0,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Append each row to this file as a JSON line at once; rows it holds are not measured again.",
            show_default=False,
        ),
    ] = None,
    triggers: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="File of searched triggers: those it holds are used, new ones are added.", show_default=False
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Build a real collection per attack case, sweep it, and report what is still retrieved.

    Example: dream eval poison --case my_case.json --json
    """
    from shared_core.evaluation import load_case
    from shared_core.evaluation.agentpoison import INJECTED
    from shared_core.evaluation.defences import DEFAULT_DEFENCES, check_defence
    from shared_core.evaluation.runner import BenchmarkPlan, run_benchmark
    from shared_core.evaluation.saved import SavedRows, SavedTriggers

    for name in defence or ():
        # a typing error is told before cases are read and models loaded
        check_defence(name)
    plan = BenchmarkPlan(
        defences=defence or DEFAULT_DEFENCES,
        cases=[load_case(path) for path in case or []],
        data=data,
        families=family,
        injected=injected or [INJECTED],
        per_family=cases_per_family,
        small=small,
        agent=agent.replace("-", "_"),  # type: ignore[arg-type]
        seed=seed,
        limit=limit,
        arrive=arrive,
        layout=layout,  # type: ignore[arg-type]
    )
    opened = {name: partial(options.open_embedder, name) for name in embedder or ["minilm"]}
    with progress_bar() as progress:
        rows = run_benchmark(
            plan, opened, rows=SavedRows(out), triggers=SavedTriggers(triggers), progress=progress
        )
    if as_json:
        emit({"rows": rows})
        return
    cells = [(row["case"], row["embedder"], row["defence"], *(row[name] for name in SHOWN)) for row in rows]
    show(["case", "embedder", "defence", *SHOWN], cells)
