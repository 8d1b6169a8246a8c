"""``dream eval stream``: tasks, feedback and sweeps over the bundled memory."""

from __future__ import annotations

import tempfile
from typing import Annotated, Any, Optional

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, show
from shared_core.config import ForgettingConfig

SHOWN = ("success", "asr_r", "retained", "poison_c", "poison_w", "benign_c", "benign_w", "false_forget")


def stream(
    preset: Annotated[str, typer.Option(help="Of the sweeps: paper or hardened.")] = "hardened",
    law: Annotated[str, typer.Option(help="Decay law: additive or multiplicative.")] = "additive",
    theta_c: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Consolidation above which a stable memory recovers; default: the preset's.",
            show_default=False,
        ),
    ] = None,
    attacker: Annotated[str, typer.Option(help="none, praise or blame.")] = "none",
    forged: Annotated[int, typer.Option(help="Feedbacks of the attacker before each sweep.")] = 300,
    tasks: Annotated[int, typer.Option(help="How many tasks.")] = 200,
    sweep_every: Annotated[int, typer.Option(help="Tasks between two sweeps.")] = 50,
    wrong: Annotated[float, typer.Option(help="Share of the feedback that says the opposite.")] = 0.1,
    missing: Annotated[float, typer.Option(help="Share of the tasks without feedback.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of the tasks and of the sweeps.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Let an agent work on the bundled memory, tell the bank how it went, and sweep now and then.

    Example: dream eval stream --attacker praise --law multiplicative
    """
    from shared_core.bank import MemoryBank
    from shared_core.evaluation import CachedEmbedder, bundled_case, fill_collection
    from shared_core.evaluation.stream import StreamConfig, run_stream

    chosen: dict[str, Any] = {"decay_law": law, "seed": seed}
    if theta_c is not None:
        chosen["theta_c"] = theta_c
    sweep = ForgettingConfig.preset(preset, **chosen)  # type: ignore[arg-type]
    config = StreamConfig(
        tasks=tasks,
        sweep_every=sweep_every,
        wrong=wrong,
        missing=missing,
        attacker=attacker,  # type: ignore[arg-type]
        forged=forged,
        seed=seed,
    )
    case = bundled_case()
    embedder = CachedEmbedder(options.open_embedder("minilm"))
    with (
        tempfile.TemporaryDirectory(prefix="dream-stream-") as folder,
        MemoryBank.open(folder, "stream", create=True, embedder=embedder, value_key="value") as bank,
    ):
        fill_collection(bank, case)
        rows = run_stream(bank, case, sweep, config)
    if as_json:
        emit({"rows": [row.to_dict() for row in rows]})
        return
    show(
        ["tasks", "moment", *SHOWN],
        [(row.tasks, row.moment, *(getattr(row, n) for n in SHOWN)) for row in rows],
    )
