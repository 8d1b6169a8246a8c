"""``dream eval poison``: attack cases, undefended and defended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, progress_bar, show
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.evaluation import AttackCase

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
            help="none, paper, hardened, amemguard or ppl; may be repeated. Default: none and paper.",
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
    embedder: Annotated[str, typer.Option(help="minilm, or the directory of a model.")] = "minilm",
    agent: Annotated[str, typer.Option(help="structured or open-ended.")] = "structured",
    injected: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option(
            min=1, help="Poisons per case of --data; may be repeated. Default: 4.", show_default=False
        ),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="One cheap case per family of --data.")] = False,
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Only the first cases.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Build a real collection per attack case, sweep it, and report what is still retrieved.

    Example: dream eval poison --case my_case.json --json
    """
    from shared_core.evaluation import CachedEmbedder, attack_suite, evaluate_case, load_case
    from shared_core.evaluation.agentpoison import INJECTED
    from shared_core.evaluation.defences import DEFAULT_DEFENCES, check_defence
    from shared_core.evaluation.suite import select_families

    defences = defence or list(DEFAULT_DEFENCES)
    for name in defences:
        check_defence(name)
    families = select_families(family, searching=False)
    cases: Iterator[AttackCase] = iter([load_case(path) for path in case or []])
    if data is None and not case:
        raise ConfigError("nothing to evaluate: give --data DIR or --case FILE")
    model = CachedEmbedder(options.open_embedder(embedder))
    if data is not None:
        counts = injected or [INJECTED]
        suite = attack_suite(data, families=families, injected=counts, small=small, embedder=model, seed=seed)
        cases = chain(cases, suite)
    rows = []
    with progress_bar() as progress:
        for done, attack in enumerate(islice(cases, limit), start=1):
            rows += evaluate_case(
                attack,
                defences,
                model,
                embedder_name=embedder,
                agent=agent.replace("-", "_"),  # type: ignore[arg-type]
                seed=seed,
            )
            if progress is not None:
                progress("cases", done, limit or done + 1)
    if as_json:
        emit({"rows": [row.to_dict() for row in rows]})
        return
    cells = [(row.case, row.defence, *(row.to_dict()[name] for name in SHOWN)) for row in rows]
    show(["case", "defence", *SHOWN], cells)
