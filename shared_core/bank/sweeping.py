"""One forgetting sweep over a stored bank: read, compute, commit as one run.

Derived memories take no part; they follow what they quote, see ``following``.

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
from shared_core.bank.deciding import Decisions, read_decisions
from shared_core.bank.derived import is_derived
from shared_core.bank.diagnosing import Diagnosed, diagnose
from shared_core.bank.following import Followed, follow_sources
from shared_core.bank.status import FORGOTTEN
from shared_core.bank.stored_vectors import read_vectors
from shared_core.config import ForgettingConfig
from shared_core.device import opened
from shared_core.dynamics import SweepResult, SweepState, forgetting_sweep
from shared_core.errors import ConfigError
from shared_core.telemetry import told, traced

if TYPE_CHECKING:
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.types import BoolArray, FloatArray, Progress

REPORTED_SUSPECTS = 50


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A memory whose weight a sweep lowered, or would have lowered were it not trusted."""

    id: str
    weight_before: float
    weight: float
    suspicion: float
    activation: float | None
    """R averaged over the iterations; None for a derived memory, which follows its sources."""
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
    followed: int
    """Derived memories: they take no part, and have the weight that their sources allow."""
    lowered: int
    """Of those that took part and of the derived ones, as the next two."""
    raised: int
    forgotten: int
    """Memories with w < 0.1 after the sweep."""
    suspects: list[Suspect] = field(repr=False)
    """The most lowered ones, lowest weight first, at most 50."""
    trusted: int
    """Memories that a person restored and that are as they were then: a sweep never lowers them."""
    spared: int
    """Of those that took part, how many it doubts all the same: trust is all that keeps their weight."""
    spared_suspects: list[Suspect] = field(repr=False)
    """These, in the bank's order, at most 50; they have the weight that they keep."""
    trace: list[dict[str, float | None]] = field(repr=False)
    """Per iteration: mean, std and threshold of R (None where terms decided), abnormal count, mean weight.

    As if nobody had decided anything.
    """
    seconds: float
    config: dict[str, Any] = field(repr=False)
    warnings: list[str] = field(default_factory=list, repr=False)
    """What keeps the terms of preset ``hardened`` from seeing everything."""
    ids: list[str] = field(default_factory=list, repr=False)
    """All memories that took part, in the order of ``activation``."""
    activation: FloatArray = field(default_factory=lambda: np.empty(0), repr=False)
    """R per memory, shape (memories,)."""
    weights: FloatArray = field(default_factory=lambda: np.empty(0), repr=False)
    """w per memory after the sweep, as ``activation``; of a dry run what it would be."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the per-memory arrays."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        del values["ids"], values["activation"], values["weights"]
        lists = {
            name: [asdict(one) for one in getattr(self, name)] for name in ("suspects", "spared_suspects")
        }
        return {**values, **lists}


@traced("dream.sweep", told.sweep, logged=True)
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
    arrays = opened(config)
    started = time.perf_counter()
    with nullcontext() if dry_run else state.lock("sweep", wait=0.0) as lock:
        vectors = read_vectors(content)
        ids = vectors.ids
        columns = state.columns()
        usable = usable_rows(ids, vectors.directed, columns.gather(ids, "deleted"))
        part = vectors.only(usable)
        kept = part.ids
        before = SweepState(*(columns.gather(kept, n) for n in ("weight", "suspicion", "consolidation")))
        rng = np.random.Generator(np.random.SFC64(config.seed))
        decisions = read_decisions(content, state)
        diagnosed = diagnose(bank, kept, part.as_stored, config, decisions)
        result = forgetting_sweep(
            part.rows,
            before,
            config,
            rng,
            progress=progress,
            coupling=diagnosed.verdict,
            norms=part.norms,
            unit_moments=part.moments,
            arrays=arrays,
        )
        result, spared = decisions.heeded(kept, before, result, config)
        new = zip(result.weights.tolist(), result.suspicion.tolist(), strict=True)
        followed = follow_sources(bank, ids, dict(zip(kept, new, strict=True)), decisions.trusted)
        skipped = sum(not is_derived(memory_id) for memory_id in ids) - len(kept)
        report = _report(kept, before, result, config, diagnosed, followed, dry_run=dry_run, skipped=skipped)
        report |= _trust(kept, before, result, diagnosed, decisions, spared)
        run_id = None
        if not dry_run:
            with state.transaction("sweep", lock=lock) as run:
                for changed in (
                    _changed(kept, before, result),
                    _changed(followed.ids, followed.before, followed),
                ):
                    run.set(*changed)
                run.config = {**config.to_dict(), **diagnosed.told}
                run_id = run.run_id
                seconds = time.perf_counter() - started
                run.report = SweepReport(**{**report, "run_id": run_id, "seconds": seconds}).to_dict()
    seconds = time.perf_counter() - started
    return SweepReport(
        **{
            **report,
            "run_id": run_id,
            "seconds": seconds,
            "ids": kept,
            "activation": result.activation,
            "weights": result.weights,
        }
    )


def _changed(
    ids: list[str], before: SweepState, after: SweepResult | Followed
) -> tuple[list[str], dict[str, FloatArray]]:
    """Return what differs, as ``StateTransaction.set`` takes it."""
    rows = (after.weights != before.weights) | (after.suspicion != before.suspicion)
    values = {"weight": after.weights[rows], "suspicion": after.suspicion[rows]}
    return [ids[row] for row in np.flatnonzero(rows)], values


def usable_rows(ids: list[str], directed: BoolArray, deleted: FloatArray) -> BoolArray:
    """Return which memories take part in a sweep, shape (len(ids),); derived ones never do."""
    storable = np.fromiter((can_have_state(i) and not is_derived(i) for i in ids), bool, len(ids))
    usable: BoolArray = directed & (deleted == 0.0) & storable
    return usable


def _report(
    ids: list[str],
    before: SweepState,
    result: SweepResult,
    config: ForgettingConfig,
    diagnosed: Diagnosed,
    followed: Followed,
    *,
    dry_run: bool,
    skipped: int,
) -> dict[str, Any]:
    old = np.concatenate([before.weights, followed.before.weights])
    new = np.concatenate([result.weights, followed.weights])
    lowered = np.flatnonzero(new < old)
    order = lowered[np.argsort(new[lowered], kind="stable")][:REPORTED_SUSPECTS].tolist()
    return {
        "dry_run": dry_run,
        "memories": len(ids),
        "skipped": skipped,
        "followed": len(followed.ids),
        "lowered": len(lowered),
        "raised": int(np.count_nonzero(new > old)),
        "forgotten": int(np.count_nonzero(new < FORGOTTEN)),
        "suspects": [
            _follower(followed, row - len(ids))
            if row >= len(ids)
            else _suspect(ids, before, result, diagnosed, row)
            for row in order
        ],
        "trace": [asdict(step) for step in result.trace],
        "config": config.to_dict(),
    }


def _trust(
    ids: list[str],
    before: SweepState,
    result: SweepResult,
    diagnosed: Diagnosed,
    decisions: Decisions,
    spared: BoolArray,
) -> dict[str, Any]:
    """Return what the report says of trusted memories; whom it doubts among them stands in its warnings."""
    rows = np.flatnonzero(spared).tolist()
    warnings = list(diagnosed.warnings)
    if rows:
        warnings.append(
            f"{len(rows)} of {len(decisions.trusted)} trusted memories would lose weight, such as "
            f"{ids[rows[0]]!r}: `dream explain` says why, `dream distrust` ends the trust"
        )
    return {
        "trusted": len(decisions.trusted),
        "spared": len(rows),
        "spared_suspects": [
            _suspect(ids, before, result, diagnosed, row) for row in rows[:REPORTED_SUSPECTS]
        ],
        "warnings": warnings,
    }


def _suspect(
    ids: list[str], before: SweepState, result: SweepResult, diagnosed: Diagnosed, row: int
) -> Suspect:
    return Suspect(
        id=ids[row],
        weight_before=float(before.weights[row]),
        weight=float(result.weights[row]),
        suspicion=float(result.suspicion[row]),
        activation=float(result.activation[row]),
        abnormal=int(result.abnormal_counts[row]),
        reason=diagnosed.reason(row),
        terms=diagnosed.values(row),
    )


def _follower(followed: Followed, row: int) -> Suspect:
    return Suspect(
        id=followed.ids[row],
        weight_before=float(followed.before.weights[row]),
        weight=float(followed.weights[row]),
        suspicion=float(followed.suspicion[row]),
        activation=None,
        abnormal=0,
        reason=followed.reason(row),
    )
