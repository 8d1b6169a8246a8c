"""``dream eval stability``: many dreams in a row over long conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from shared_core.cli import complete, options
from shared_core.cli.console import emit, progress_bar, show
from shared_core.errors import ConfigError

DEFAULT_CYCLES = "1,2,3,5,8,12,16,20"
SHOWN = ("cycles", "nodes", "growth", "unsupported", "rare_facts", "rare_retention", "recall@10")


def stability(
    data: Annotated[Path, typer.Option(help="A file in LoCoMo's format.", show_default=False)],
    cycles: Annotated[str, typer.Option(help="After how many cycles to measure.")] = DEFAULT_CYCLES,
    embedder: Annotated[
        str, typer.Option(help=options.EMBEDDER_HELP, autocompletion=complete.embedders)
    ] = "minilm",
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Only the first conversations.", show_default=False),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Dream again and again: does the memory grow, invent facts, or lose rare ones? No LLM.

    Example: dream eval stability --data locomo.json --cycles 1,3,20 --limit 1
    """
    from shared_core.evaluation import CachedEmbedder
    from shared_core.evaluation.locomo.loader import load_locomo
    from shared_core.evaluation.locomo.stability import measure_stability

    try:
        counts = [int(count) for count in cycles.split(",")]
    except ValueError:
        raise ConfigError(f"--cycles {cycles!r} must be numbers with commas: {DEFAULT_CYCLES}") from None
    conversations = load_locomo(data, limit)
    model = CachedEmbedder(options.open_embedder(embedder))
    rows = []
    with progress_bar() as progress:
        for conversation in conversations:
            rows += [
                one.to_dict() for one in measure_stability(conversation, model, counts, progress=progress)
            ]
    if as_json:
        emit({"rows": rows})
        return
    show(["conversation", *SHOWN], [(row["conversation"], *(row[name] for name in SHOWN)) for row in rows])
