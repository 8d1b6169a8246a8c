"""``dream eval locomo``: how much of the evidence of a long conversation each kind of retrieval brings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, progress_bar, show
from shared_core.errors import ConfigError

SHOWN = (
    "recall@5",
    "recall@10",
    "budget_recall@512",
    "budget_recall@1024",
    "answer_recall@1024",
    "latency_ms",
)
DEFAULT_ARMS = "dense,bm25,hybrid,context,dream"


def locomo(
    data: Annotated[Path, typer.Option(help="A file in LoCoMo's format.", show_default=False)],
    arms: Annotated[
        str, typer.Option(help="Which, separated by commas; also dream-no-decay.")
    ] = DEFAULT_ARMS,
    embedder: Annotated[str, typer.Option(help=options.EMBEDDER_HELP)] = "minilm",
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Only the first conversations.", show_default=False),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask every question of the conversations and count which evidence is retrieved. No LLM is asked.

    Example: dream eval locomo --data locomo.json --arms hybrid,context,dream
    """
    from shared_core.evaluation import CachedEmbedder
    from shared_core.evaluation.locomo.bench import check_arms, measure_arms
    from shared_core.evaluation.locomo.loader import load_locomo

    named = [name.strip() for name in arms.split(",") if name.strip()]
    if not named:
        raise ConfigError(f"--arms {arms!r} names none: {DEFAULT_ARMS}")
    check_arms(named)
    conversations = load_locomo(data, limit)
    model = CachedEmbedder(options.open_embedder(embedder))
    with progress_bar() as progress:
        rows = measure_arms(named, conversations, model, progress=progress)
    if as_json:
        emit({"rows": rows, "skipped": [line for one in conversations for line in one.skipped]})
        return
    show(["arm", "category", *SHOWN], [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["arm"], str(row["category"]), *(row.get(name) for name in SHOWN))
