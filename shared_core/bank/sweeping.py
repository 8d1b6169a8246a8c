"""One forgetting sweep over a stored bank: read, compute, commit as one run.

Joins ``dynamics`` (which knows no storage) to a bank's content and state. Reading and computing happen
before the transaction, under the bank's lock, so readers and feedback never wait for a sweep.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.bank.columns import can_have_state
from shared_core.bank.diagnosing import Diagnosed, diagnose
from shared_core.bank.intake import has_direction
from shared_core.bank.status import FORGOTTEN
from shared_core.config import ForgettingConfig
from shared_core.dynamics import SweepResult, SweepState, forgetting_sweep
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.types import BoolArray, FloatArray, Progress

REPORTED_SUSPECTS = 50


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A memory whose weight a sweep lowered."""

    id: str
    weight_before: float
    weight: float
    suspicion: float
    activation: float
    """R averaged over the iterations."""
    abnormal: int
    """In how many iterations R lay below the threshold, or the memory was flagged."""
    reason: str | None = None
    """Why the term that flags it most strongly does so; None for preset ``paper``."""
    terms: dict[str, float] = field(default_factory=dict)
    """Its score by each term, see ``MemoryBank.explain``; empty for preset ``paper``."""


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """What one sweep did, or would do."""

    run_id: str | None
    """For ``undo``; None for a dry run."""
    dry_run: bool
    memories: int
    """How many took part."""
    skipped: int
    """Softly deleted memories, embeddings without a direction (norm zero, or absurd), ids with null bytes."""
    lowered: int
    raised: int
    forgotten: int
    """Memories with w < 0.1 after the sweep."""
    suspects: list[Suspect]
    """The most lowered ones, lowest weight first, at most 50."""
    trace: list[dict[str, float | None]]
    """Per iteration: mean, std and threshold of R (None where terms decided), abnormal count, mean weight."""
    seconds: float
    config: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    """What keeps the terms of preset ``hardened`` from seeing everything."""
    ids: list[str] = field(default_factory=list, repr=False)
    """All memories that took part, in the order of ``activation``."""
    activation: FloatArray = field(default_factory=lambda: np.empty(0), repr=False)
    """R per memory, shape (memories,)."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the per-memory arrays."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        del values["ids"], values["activation"]
        return {**values, "suspects": [asdict(suspect) for suspect in self.suspects]}


def sweep_bank(
    bank: MemoryBank,
    config: ForgettingConfig,
    *,
    dry_run: bool,
    progress: Progress | None,
) -> SweepReport:
    """Run a sweep and commit it as one run, or only report it.

    Raises:
        BankLockedError: Another dreamer is at work (not raised for a dry run, which writes nothing).
        ConfigError: A term that needs an embedder without the one that the collection was filled with, an
            unknown term or one that failed, or a config that is none.
    """
    if not isinstance(config, ForgettingConfig):
        raise ConfigError(
            f"a sweep takes a ForgettingConfig, not {type(config).__name__}: "
            "for example ForgettingConfig.preset('hardened', iterations=5)"
        )
    content, state = bank.content, bank.state
    started = time.perf_counter()
    with nullcontext() if dry_run else state.lock("sweep", wait=0.0) as lock:
        ids, embeddings = content.embeddings()
        columns = state.columns()
        usable = usable_rows(ids, embeddings, columns.gather(ids, "deleted"))
        kept = [memory_id for memory_id, use in zip(ids, usable, strict=True) if use]
        before = SweepState(*(columns.gather(kept, n) for n in ("weight", "suspicion", "consolidation")))
        rng = np.random.Generator(np.random.SFC64(config.seed))
        diagnosed = diagnose(bank, kept, embeddings[usable], config)
        result = forgetting_sweep(
            embeddings[usable], before, config, rng, progress=progress, coupling=diagnosed.verdict
        )
        skipped = len(ids) - len(kept)
        report = _report(kept, before, result, config, diagnosed, dry_run=dry_run, skipped=skipped)
        run_id = None
        if not dry_run:
            with state.transaction("sweep", lock=lock) as run:
                changed = (result.weights != before.weights) | (result.suspicion != before.suspicion)
                run.set(
                    [kept[row] for row in np.flatnonzero(changed)],
                    {"weight": result.weights[changed], "suspicion": result.suspicion[changed]},
                )
                run.config = config.to_dict()
                run_id = run.run_id
                seconds = time.perf_counter() - started
                run.report = SweepReport(**{**report, "run_id": run_id, "seconds": seconds}).to_dict()
    seconds = time.perf_counter() - started
    return SweepReport(
        **{**report, "run_id": run_id, "seconds": seconds, "ids": kept, "activation": result.activation}
    )


def usable_rows(ids: list[str], embeddings: FloatArray, deleted: FloatArray) -> BoolArray:
    """Return which memories take part in a sweep, shape (len(ids),)."""
    if not ids:
        return np.zeros(0, bool)
    storable = np.fromiter(map(can_have_state, ids), bool, len(ids))
    usable: BoolArray = has_direction(embeddings) & (deleted == 0.0) & storable
    return usable


def _report(
    ids: list[str],
    before: SweepState,
    result: SweepResult,
    config: ForgettingConfig,
    diagnosed: Diagnosed,
    *,
    dry_run: bool,
    skipped: int,
) -> dict[str, Any]:
    lowered = np.flatnonzero(result.weights < before.weights)
    order = lowered[np.argsort(result.weights[lowered], kind="stable")][:REPORTED_SUSPECTS]
    return {
        "dry_run": dry_run,
        "memories": len(ids),
        "skipped": skipped,
        "lowered": len(lowered),
        "raised": int(np.count_nonzero(result.weights > before.weights)),
        "forgotten": int(np.count_nonzero(result.weights < FORGOTTEN)),
        "suspects": [
            Suspect(
                id=ids[row],
                weight_before=float(before.weights[row]),
                weight=float(result.weights[row]),
                suspicion=float(result.suspicion[row]),
                activation=float(result.activation[row]),
                abnormal=int(result.abnormal_counts[row]),
                reason=diagnosed.reason(int(row)),
                terms=diagnosed.values(int(row)),
            )
            for row in order
        ],
        "trace": [asdict(step) for step in result.trace],
        "config": config.to_dict(),
        "warnings": diagnosed.warnings,
    }
