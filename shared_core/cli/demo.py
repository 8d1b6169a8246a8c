"""``dream demo``: an agent's memory is attacked, swept, undone and redone, on real parts.

The memory and the attack are bundled; Chroma, the embedder and every number are real. What is printed is
what was measured, good or bad.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.text import Text

from shared_core.cli import options
from shared_core.cli.console import emit, progress_bar, safe, say, show
from shared_core.config import ForgettingConfig
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.evaluation import AttackCase

COLLECTION = "agent-memory"
SHOWN_QUERIES = 2


def demo(
    keep: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Keep the collection in this new directory, to try other commands on it."),
    ] = None,
    preset: Annotated[str, typer.Option(help="Parameters of the sweep: paper.")] = "paper",
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Poison a small agent memory and watch what a sweep does about it; needs no network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    config = ForgettingConfig.preset(preset, seed=seed)  # type: ignore[arg-type]
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"--keep {keep} exists and is not an empty directory: choose a new one")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dream-demo-") if keep is None else nullcontext(keep) as folder:
        result = _run(Path(folder), config, quiet=as_json)
    result["seconds"] = round(time.perf_counter() - started, 1)
    if as_json:
        emit(result)
        return
    _what_next(result, keep)


def bundled_case() -> AttackCase:
    """Return the bundled memory, with its attack."""
    from shared_core.evaluation.cases import parse_case

    source = files("shared_core.samples") / "agent_memory.json"
    return parse_case(json.loads(source.read_text(encoding="utf-8")), "the bundled sample")


def _run(folder: Path, config: ForgettingConfig, *, quiet: bool) -> dict[str, Any]:
    from shared_core.bank import MemoryBank
    from shared_core.embedding import packaged_embedder
    from shared_core.evaluation import CachedEmbedder, fill_collection, measure_bank, retrieve

    case = bundled_case()
    embedder = CachedEmbedder(packaged_embedder())
    names: dict[str, Any] = {"defence": "paper", "embedder": "minilm"}
    with MemoryBank.open(folder, COLLECTION, create=True, embedder=embedder, value_key="value") as bank:
        fill_collection(bank, case)
        before = retrieve(bank, case)
        report_on = _silent if quiet else _report_on
        report_on(bank, case, f"Before: {len(case.memories)} memories, {len(case.poison_ids)} of them poison")
        with progress_bar() as progress:
            report = bank.sweep(config, progress=progress)
        after = retrieve(bank, case)
        report_on(bank, case, f"After one sweep ({report.seconds:.2f} s)")
        row = measure_bank(bank, case, before, after, report=report, **names)
        undo = bank.undo(report.run_id or "")
        undone = retrieve(bank, case)
        bank.undo(undo.run_id)
        redone = retrieve(bank, case)
    return {
        **row.to_dict(),
        "run_id": report.run_id,
        "undo_restores_retrieval": undone == before,
        "redo_repeats_retrieval": redone == after,
    }


def _silent(bank: MemoryBank, case: AttackCase, title: str) -> None:
    """Print nothing."""


def _report_on(bank: MemoryBank, case: AttackCase, title: str) -> None:
    from shared_core.retrieval import BankRetriever

    say(Text(f"\n{title}", style="bold"))
    retriever = BankRetriever(bank, track_access=False)
    for kind, queries in (("triggered", case.triggered_queries), ("benign", case.benign_queries)):
        for query in queries[:SHOWN_QUERIES]:
            say(Text.assemble((f"{kind}: ", "bold"), safe(query, 90)))
            rows = [
                (
                    Text("  POISON", "red") if hit.id in case.poison_ids else Text("  benign", "green"),
                    hit.score,
                    hit.weight,
                    safe(hit.text, 70),
                )
                for hit in retriever.search(query)
            ]
            show(["", "score", "weight", "memory"], rows)


def _what_next(result: dict[str, Any], keep: Path | None) -> None:
    say(Text("\nMeasured (preset paper; the memory is bundled, the numbers are not)", style="bold"))
    rows = [
        ("triggered queries that retrieve poison, before", result["asr_r_undefended"]),
        ("triggered queries that retrieve poison, after", result["asr_r"]),
        ("poison forgotten (w < 0.1)", result["poison_forget"]),
        ("benign memories retained in benign answers", result["benign_retention"]),
        ("benign memories wrongly weakened (w < 0.5)", result["false_forget"]),
        ("how well activation separates poison (AUROC, 0.5 is chance)", result["auroc"]),
    ]
    show(["", ""], rows)
    restored = (
        "brought back exactly what was retrieved before"
        if result["undo_restores_retrieval"]
        else ("did NOT bring back what was retrieved before")
    )
    repeated = "repeated it exactly" if result["redo_repeats_retrieval"] else "did NOT repeat it"
    say(f"Undoing the sweep {restored}; redoing it {repeated}. {result['seconds']} s in all.")
    place = str(keep) if keep is not None else "PATH"
    name = COLLECTION if keep is not None else "NAME"
    say(Text("\nOn your own collection:", style="bold"))
    say(f"  dream forget {place} --collection {name} --dry-run   what a sweep would do")
    say(f"  dream forget {place} --collection {name}             do it")
    say(f"  dream status {place} --collection {name}             weights and suspects")
    say(f"  dream log    {place} --collection {name}             every change, each can be undone")
