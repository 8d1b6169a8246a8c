"""``dream eval poison --arrive N``: an attacker who writes slowly, with a sweep after every few poisons [O].

The bank begins with its benign memories. Poison arrives in batches, and the defence runs after every batch on
the bank as the defence before left it: weights, suspicion and journal stay. What is scored is the bank after
the last run, so a defence that forgives, or that judges only what is new, shows here.

Does not know: which memories are poison while a defence runs; it is used to order the arrivals and to score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shared_core.config import AgentKind
from shared_core.errors import ConfigError
from shared_core.evaluation.defences import DefenceOptions, DefenceOutcome, check_defence, defend
from shared_core.evaluation.poison import (
    PoisonRow,
    Retrieved,
    case_bank,
    fill_collection,
    measure_bank,
    retrieve,
)

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.evaluation.cases import AttackCase, CaseMemory
    from shared_core.types import Embedder


def arrivals(case: AttackCase, batch: int) -> list[list[CaseMemory]]:
    """Return what is written before each run of a defence: first the benign with some poison, then more.

    Args:
        case: The case; poison arrives in its order.
        batch: Poisons between two runs, at least 1.

    Raises:
        ConfigError: ``batch`` is below 1.
    """
    if batch < 1:
        raise ConfigError(f"--arrive {batch} must be at least 1: how many poisons arrive between two sweeps")
    benign = [memory for memory in case.memories if not memory.poison]
    poison = [memory for memory in case.memories if memory.poison]
    batches = [poison[start : start + batch] for start in range(0, len(poison), batch)]
    return [[*benign, *first] for first in batches[:1]] + batches[1:] if batches else [benign]


def slow_name(case: str, batch: int) -> str:
    """Return what a case is called where its poison arrives in batches."""
    return f"{case}/arrive{batch}"


def evaluate_slow(
    case: AttackCase,
    defences: Sequence[str],
    embedder: Embedder,
    *,
    embedder_name: str,
    batch: int,
    agent: AgentKind = "structured",
    seed: int = 0,
    data: Path | None = None,
) -> list[PoisonRow]:
    """Measure each defence where the poison of a case arrives in batches, on one bank per defence.

    Args:
        case: The case.
        defences: Names in ``DEFENCES``.
        embedder: Embeds keys and queries; a ``CachedEmbedder`` spares what the banks share.
        embedder_name: For the table.
        batch: Poisons between two runs of a defence.
        agent: Whose published parameters ``paper`` uses.
        seed: Of every sweep.
        data: See ``evaluate_case``.

    Returns:
        One row per defence: the bank after its last run, ``seconds`` of all of them, ``asr_r_undefended`` of
        the same bank without a defence. The case is called ``slow_name(case.name, batch)``.

    Raises:
        ConfigError: There is no such defence, it lacks its data, or ``batch`` is below 1.
        MissingExtraError: A defence needs a package that is not installed.
    """
    for defence in defences:
        check_defence(defence)
    writes = arrivals(case, batch)
    named = case.model_copy(update={"name": slow_name(case.name, batch)})
    options = DefenceOptions(agent=agent, seed=seed, data=data)
    rows: list[PoisonRow] = []
    before = _undefended(case, embedder)
    for defence in defences:
        with case_bank(embedder) as bank:
            outcome = _defend_each(bank, defence, case, writes, options)
            after = retrieve(bank, case)
            rows.append(
                measure_bank(
                    bank, named, before, after, report=outcome, defence=defence, embedder=embedder_name
                )
            )
    return rows


def _undefended(case: AttackCase, embedder: Embedder) -> Retrieved:
    with case_bank(embedder) as bank:
        fill_collection(bank, case)
        return retrieve(bank, case)


def _defend_each(
    bank: MemoryBank,
    defence: str,
    case: AttackCase,
    writes: Sequence[Sequence[CaseMemory]],
    options: DefenceOptions,
) -> DefenceOutcome:
    seconds = 0.0
    for memories in writes:
        fill_collection(bank, case.model_copy(update={"memories": memories}))
        outcome = defend(defence, bank, options)
        seconds += outcome.seconds
    return replace(outcome, seconds=seconds)
