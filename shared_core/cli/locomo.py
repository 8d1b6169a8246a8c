"""``dream eval locomo``: how much of the evidence of a long conversation each kind of retrieval brings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from shared_core.cli import complete, options
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
ANSWERED = ("f1", "bleu1", "rouge_l")
DEFAULT_ARMS = "dense,bm25,hybrid,context,dream"


def locomo(
    data: Annotated[Path, typer.Option(help="A file in LoCoMo's format.", show_default=False)],
    arms: Annotated[
        str,
        typer.Option(
            help="Which, separated by commas; also context-stemmed, dream-hybrid, dream-rounds-only, "
            "dream-groundwork-only, dream-no-dreamer, dream-no-analyst, dream-no-decay."
        ),
    ] = DEFAULT_ARMS,
    embedder: Annotated[
        str, typer.Option(help=options.EMBEDDER_HELP, autocompletion=complete.embedders)
    ] = "minilm",
    limit: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Only the first conversations.", show_default=False),
    ] = None,
    reader: Annotated[
        str,
        typer.Option(help="none, smollm2 (weak, offline), or package.module:object of a chat model."),
    ] = "none",
    questions: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Only so many per conversation, evenly spread.", show_default=False),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask the questions of the conversations and count which evidence is retrieved. No LLM without --reader.

    Example: dream eval locomo --data locomo.json --arms hybrid,context,dream
    """
    from shared_core.chat import open_chat
    from shared_core.evaluation import CachedEmbedder
    from shared_core.evaluation.locomo.bench import check_arms, measure_arms
    from shared_core.evaluation.locomo.loader import load_locomo
    from shared_core.evaluation.locomo.reader import ChatReader

    named = [name.strip() for name in arms.split(",") if name.strip()]
    if not named:
        raise ConfigError(f"--arms {arms!r} names none: {DEFAULT_ARMS}")
    check_arms(named)
    conversations = load_locomo(data, limit)
    answers = None if reader == "none" else ChatReader(open_chat(reader))
    model = CachedEmbedder(options.open_embedder(embedder))
    with progress_bar() as progress:
        rows = measure_arms(
            named, conversations, model, reader=answers, questions=questions, progress=progress
        )
    if as_json:
        emit({"rows": rows, "skipped": [line for one in conversations for line in one.skipped]})
        return
    columns = SHOWN if answers is None else (*SHOWN, *ANSWERED)
    show(["arm", "category", *columns], [_cells(row, columns) for row in rows])


def _cells(row: dict[str, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    return (row["arm"], str(row["category"]), *(row.get(name) for name in columns))
