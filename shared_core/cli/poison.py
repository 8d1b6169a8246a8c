"""``dream eval poison``: attack cases, undefended and defended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional, get_args

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, progress_bar, show
from shared_core.errors import ConfigError

SHOWN = ("asr_r", "asr_r_majority", "auroc", "benign_retention", "false_forget", "poison_forget")


def poison(
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Directory with mextra/, agentpoison/ and minja/.", show_default=False),
    ] = None,
    case: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="A case file of your own; may be repeated.", show_default=False),
    ] = None,
    defence: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="none or paper; may be repeated. Default: both.", show_default=False),
    ] = None,
    embedder: Annotated[str, typer.Option(help="minilm, or the directory of a model.")] = "minilm",
    agent: Annotated[str, typer.Option(help="structured or open-ended.")] = "structured",
    injected: Annotated[int, typer.Option(min=1, help="Poisons per case of --data.")] = 4,
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
    from shared_core.evaluation import (
        CachedEmbedder,
        Defence,
        agentpoison_ehr_cases,
        evaluate_case,
        load_case,
    )

    defences: list[Any] = defence or list(get_args(Defence))
    for name in defences:
        if name not in get_args(Defence):
            raise ConfigError(f"--defence {name!r} is not one of {', '.join(get_args(Defence))}")
    cases = [load_case(path) for path in case or []]
    if data is not None:
        cases += agentpoison_ehr_cases(data, injected=injected)
    if not cases:
        raise ConfigError("nothing to evaluate: give --data DIR or --case FILE")
    model = CachedEmbedder(open_embedder(embedder))
    rows = []
    with progress_bar() as progress:
        for done, attack in enumerate(cases[:limit], start=1):
            rows += evaluate_case(
                attack,
                defences,
                model,
                embedder_name=embedder,
                agent=agent.replace("-", "_"),  # type: ignore[arg-type]
                seed=seed,
            )
            if progress is not None:
                progress("cases", done, len(cases[:limit]))
    if as_json:
        emit({"rows": [row.to_dict() for row in rows]})
        return
    cells = [(row.case, row.defence, *(row.to_dict()[name] for name in SHOWN)) for row in rows]
    show(["case", "defence", *SHOWN], cells)


def open_embedder(name: str) -> Any:
    """Return the packaged MiniLM, or a sentence-transformers model of a directory.

    Raises:
        ConfigError: There is no such directory.
        MissingExtraError: The extra is not installed.
    """
    from shared_core.embedding import SentenceTransformerEmbedder, packaged_embedder

    if name == "minilm":
        return packaged_embedder()
    if not Path(name).is_dir():
        raise ConfigError(f"--embedder {name!r} is neither minilm nor the directory of a model")
    return SentenceTransformerEmbedder(name)
