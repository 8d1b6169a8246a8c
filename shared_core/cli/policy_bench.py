"""``dream eval policy``: what the small policy gains over the rules, and what of its training matters."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from shared_core.cli import complete, options
from shared_core.cli.console import emit, progress_bar, say, show
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.evaluation.policy_bench import Comparison, PolicyBank, PolicyRow

DEFAULT_ARMS = "imitation,group-relative,no-prior"
SHOWN = ("bank", "seed", "arm", "cases", "reward", "reward_best", "gain", "fresh_gain", "repairs", "used")
COMPARED = ("kind", "arm", "runs", "gain", "difference", "deviation", "better", "worse", "used")


def policy(
    locomo: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A file in LoCoMo's format: a bank of each conversation.", show_default=False),
    ] = None,
    msc: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="The folder of Multi-Session Chat: its test dialogues are pooled into banks.",
            show_default=False,
        ),
    ] = None,
    banks: Annotated[int, typer.Option(min=1, help="Banks of each data set, the first ones.")] = 2,
    dialogues: Annotated[int, typer.Option(min=1, help="Dialogues in a bank of --msc.")] = 8,
    seeds: Annotated[int, typer.Option(min=1, help="Runs on each bank: seeds 0, 1, ...")] = 4,
    arms: Annotated[
        str, typer.Option(help="Which, separated by commas; the rules are always measured.")
    ] = DEFAULT_ARMS,
    steps: Annotated[int, typer.Option(min=1, help="Steps over all failed questions.")] = 1000,
    embedder: Annotated[
        str, typer.Option(help=options.EMBEDDER_HELP, autocompletion=complete.embedders)
    ] = "minilm",
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Keep rows in this file after each bank and seed; those it holds are not measured again.",
            show_default=False,
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Train the small policy on a half of each memory and compare it with the rules on what it never saw.

    Arms: imitation (of each case's best verified choice, without GRPO), group-relative (Eq. 11), no-prior
    (Eq. 11, not begun as the rules).

    Example: dream eval policy --locomo locomo.json --banks 2 --seeds 4 --out rows.jsonl
    """
    from shared_core.evaluation import CachedEmbedder
    from shared_core.evaluation.policy_bench import PolicyBench, check_arms, compare
    from shared_core.evaluation.policy_saved import SavedPolicyRows
    from shared_core.training.policy_training import PolicyTraining

    named = [name.strip() for name in arms.split(",") if name.strip()]
    check_arms(named)
    saved = SavedPolicyRows(out)
    model = CachedEmbedder(options.open_embedder(embedder))
    measured = _banks(locomo, msc, banks, dialogues)
    benches: dict[str, PolicyBench] = {}
    rows: list[PolicyRow] = []
    with progress_bar() as progress:
        # every bank has a run before one has two, so that what a stopped run leaves can be compared
        for done, (seed, bank) in enumerate(product(range(seeds), measured), start=1):
            settings = f"{embedder}, {steps} steps, {len(bank.pages)} pages"
            found = saved.find(bank.name, seed, settings, named)
            if found is None:
                if bank.name not in benches:
                    training = PolicyTraining(steps=steps)
                    benches[bank.name] = PolicyBench(bank, model, training=training, settings=settings)
                found = benches[bank.name].measure(seed, named, progress=progress)
                saved.append(found)
            rows += found
            if progress is not None:
                progress("runs", done, seeds * len(measured))
    rows.sort(key=lambda row: (row.kind, row.bank, row.seed))
    compared = compare(rows)
    if as_json:
        emit({"rows": [row.to_dict() for row in rows], "compared": [one.to_dict() for one in compared]})
        return
    _show(rows, compared)


def _banks(locomo: Path | None, msc: Path | None, banks: int, dialogues: int) -> list[PolicyBank]:
    from shared_core.evaluation.locomo.loader import load_locomo
    from shared_core.evaluation.policy_bench import locomo_banks, msc_banks
    from shared_core.training.msc import read_msc

    if locomo is None and msc is None:
        raise ConfigError("nothing to learn from: give --locomo FILE, --msc DIR, or both")
    found = [] if locomo is None else locomo_banks(load_locomo(locomo, banks))
    if msc is not None:
        talks = [talk for talk in read_msc(msc, limit=banks * dialogues) if talk.split == "test"]
        found += msc_banks(talks, dialogues, banks)
    return found


def _show(rows: list[PolicyRow], compared: list[Comparison]) -> None:
    told = [row.to_dict() for row in rows]
    show(SHOWN, [[_cell(row[name]) for name in SHOWN] for row in told])
    say()
    say("less the rules, on the last quarter of the memories:")
    show(COMPARED, [[one.to_dict()[name] for name in COMPARED] for one in compared])


def _cell(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value
