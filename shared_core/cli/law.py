"""``dream eval law``: how the update of weights behaves, law by law."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from shared_core.cli import complete, options
from shared_core.cli.console import emit, progress_bar, show

if TYPE_CHECKING:
    from shared_core.evaluation.cases import AttackCase

SHOWN = ("poison_weight", "poison_forgotten", "forgotten_after", "false_forget", "recovered_after")
VARIED = ("law", "probes", "momentum", "poison_c", "benign_c", "start")
AT = 10
"""Iterations that people are shown; ``--json`` has all."""


def law(
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Directory of the published attacks; the bundled one is always measured."),
    ] = None,
    family: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Families of --data.", show_default=False),
    ] = None,
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Only the first cases of each family.", show_default=False),
    ] = None,
    embedder: Annotated[
        str, typer.Option(help=options.EMBEDDER_HELP, autocompletion=complete.embedders)
    ] = "minilm",
    agent: Annotated[str, typer.Option(help="structured or open-ended.")] = "structured",
    seed: Annotated[int, typer.Option(help="Seed of the probes.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Compare decay laws, probes per iteration and consolidations, on attacks and on clean banks.

    Example: dream eval law --data DIR --family agentpoison-ehr500-in --limit 3
    """
    from shared_core.evaluation import CachedEmbedder
    from shared_core.evaluation.update_law import measure_laws

    model = CachedEmbedder(options.open_embedder(embedder))
    cases = cases_of(data, family, limit, model, seed)
    kind: Any = agent.replace("-", "_")
    rows = []
    with progress_bar() as progress:
        for done, case in enumerate(cases, start=1):
            rows += measure_laws(case, model, agent=kind, seed=seed)
            if progress is not None:
                progress("cases", done, len(cases))
        for case in {len(case.memories): case for case in reversed(cases)}.values():
            rows += measure_laws(case, model, agent=kind, seed=seed, clean=True)
    if as_json:
        emit({"rows": [row.to_dict() for row in rows]})
        return
    shown = [row for row in rows if row.iterations == AT]
    cells = [[getattr(row, name) for name in ("case", "preset", *VARIED, *SHOWN)] for row in shown]
    show(["case", "preset", *VARIED, *SHOWN], cells)


def cases_of(
    data: Path | None, family: list[str] | None, limit: int | None, embedder: Any, seed: int
) -> list[AttackCase]:
    """Return the bundled case, and the first ones of each family where there is a data directory."""
    from itertools import islice

    from shared_core.evaluation import attack_suite, bundled_case

    found = [bundled_case()]
    for name in (family or ["agentpoison-ehr500-in", "optimised-ehr500-in"]) if data is not None else []:
        suite = attack_suite(data, families=[name], embedder=embedder, seed=seed)  # type: ignore[arg-type]
        found += islice(suite, limit)
    return found
