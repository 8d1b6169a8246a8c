"""``dream demo``: an agent's memory is attacked, swept, undone and redone, on real parts.

The memory and the attack are bundled; Chroma, the embedder and every number are real. What is printed is
what was measured, good or bad.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.text import Text

from shared_core.cli import complete, options
from shared_core.cli.console import emit, progress_bar, safe, say, show
from shared_core.config import ForgettingConfig
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.evaluation import AttackCase
    from shared_core.types import Hit

    Answers = dict[tuple[str, str], list[Hit]]

COLLECTION = "agent-memory"
SHOWN_QUERIES = 2
SHOWN_REASON = 300


def demo(
    keep: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Keep the collection in this new directory, to try other commands on it."),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Parameters of the sweep: paper or hardened.", autocompletion=complete.presets)
    ] = "hardened",
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Poison a small agent memory and watch what a sweep does about it; needs no network.

    Example: dream demo --keep ./demo
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    config = ForgettingConfig.preset(preset, seed=seed)  # type: ignore[arg-type]
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"--keep {keep} exists and is not an empty directory: choose a new one")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dream-demo-") if keep is None else nullcontext(keep) as folder:
        result = _run(Path(folder), config, preset, quiet=as_json)
    result["seconds"] = round(time.perf_counter() - started, 1)
    if as_json:
        emit(result)
        return
    _what_next(result, preset, keep)


def _run(folder: Path, config: ForgettingConfig, preset: str, *, quiet: bool) -> dict[str, Any]:
    from shared_core.bank import MemoryBank
    from shared_core.embedding import packaged_embedder
    from shared_core.evaluation import (
        CachedEmbedder,
        bundled_case,
        fill_collection,
        measure_bank,
        retrieve,
    )

    case = bundled_case()
    embedder = CachedEmbedder(packaged_embedder())
    with MemoryBank.open(folder, COLLECTION, create=True, embedder=embedder, value_key="value") as bank:
        fill_collection(bank, case)
        before, shown = retrieve(bank, case), _answers(bank, case)
        if not quiet:
            _print(
                f"Before: {len(case.memories)} memories, {len(case.poison_ids)} of them poison", case, shown
            )
        with progress_bar() as progress:
            report = bank.sweep(config, progress=progress)
        after = retrieve(bank, case)
        if not quiet:
            _print(f"After one sweep ({report.seconds:.2f} s)", case, _answers(bank, case), shown)
            for line in [*report.warnings, *dict.fromkeys(s.reason for s in report.suspects if s.reason)]:
                say(safe(line, SHOWN_REASON))
        row = measure_bank(bank, case, before, after, report=report, defence=preset, embedder="minilm")
        undo = bank.undo(report.run_id or "")
        undone = retrieve(bank, case)
        redo = bank.undo(undo.run_id)
        redone = retrieve(bank, case)
        # a kept bank is left as the user's own would be: nothing swept yet
        bank.undo(redo.run_id)
    return {
        **row.to_dict(),
        "undo_restores_retrieval": undone == before,
        "redo_repeats_retrieval": redone == after,
    }


def _answers(bank: MemoryBank, case: AttackCase) -> Answers:
    from shared_core.retrieval import BankRetriever

    retriever = BankRetriever(bank, track_access=False)
    asked = [("triggered", query) for query in case.triggered_queries[:SHOWN_QUERIES]]
    asked += [("benign", query) for query in case.benign_queries[:SHOWN_QUERIES]]
    return {(kind, query): retriever.search(query) for kind, query in asked}


def _print(title: str, case: AttackCase, answers: Answers, before: Answers | None = None) -> None:
    say(Text(f"\n{title}", style="bold"))
    for (kind, query), hits in answers.items():
        say(Text.assemble((f"{kind}: ", "bold"), safe(query, 68, tail=kind == "triggered")))
        show(["", "score", "weight", "memory"], [_line(case, hit) for hit in hits])
        found = {hit.id for hit in hits} | case.poison_ids
        lost = [hit for hit in (before or answers)[kind, query] if hit.id not in found]
        if kind == "benign" and lost:
            say(Text.assemble(("  LOST: ", "yellow"), safe(lost[0].text, 70)))


def _line(case: AttackCase, hit: Hit) -> tuple[Any, ...]:
    if hit.id in case.poison_ids:
        # its end shows the trigger, its beginning looks like any other request
        return Text("  POISON", "red"), hit.score, hit.weight, safe(hit.text, 56, tail=True)
    return Text("  benign", "green"), hit.score, hit.weight, safe(hit.text, 56)


def _what_next(result: dict[str, Any], preset: str, keep: Path | None) -> None:
    say(Text(f"\nMeasured just now, preset {preset}", style="bold"))
    rows = [
        (result["asr_r_undefended"], "of the triggered queries retrieve poison, before"),
        (result["asr_r"], "of the triggered queries retrieve poison, after"),
        (result["poison_forget"], "of the poison is forgotten (w < 0.1)"),
        (result["benign_retention"], "of what benign queries retrieved is still retrieved"),
        (result["false_forget"], "of the benign memories are wrongly weakened (w < 0.5)"),
        (result["auroc"], "AUROC of the activation (0.5 is chance, 1 is perfect)"),
    ]
    show(["", ""], rows)
    restored = "brought back exactly" if result["undo_restores_retrieval"] else "did NOT bring back"
    repeated = "repeated it exactly" if result["redo_repeats_retrieval"] else "did NOT repeat it"
    say(f"Undoing the sweep {restored} what was retrieved before; redoing it {repeated}.")
    if preset == "paper":
        say("Preset paper follows the publication; it weakens benign memories too, see docs/results.md.")
    else:
        say("Preset hardened is ours; docs/concepts.md says what it does not catch.")
    say(f"{result['seconds']} s in all.")
    dream = "dream" if shutil.which("dream") else sys.argv[0]
    place = f"{keep} --collection {COLLECTION}" if keep is not None else "PATH --collection NAME"
    say(Text("\nNext, on " + ("the kept collection:" if keep else "your own collection:"), style="bold"))
    how = f" --preset {preset}" if preset == "paper" else " --value-key " + ("value" if keep else "FIELD")
    say(f"  {dream} forget {place}{how} --dry-run   # what a sweep would do")
    say(f"  {dream} forget {place}{how}             # do it")
    say(f"  {dream} status {place}             # weights and suspects")
    say(f"  {dream} log    {place}             # every change, each can be undone")
