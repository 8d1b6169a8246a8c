"""Why each suspect counts for less, by the journal: what the sweep said, or whoever changed it last.

Reads the journal only; judges nothing. ``MemoryBank.explain`` judges anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared_core.bank.history import last_lowerings
from shared_core.errors import JournalError
from shared_core.reporting.data import SuspectRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_core.bank.history import WeightChange
    from shared_core.bank.journal import Run
    from shared_core.bank.state import BankState
    from shared_core.reporting.choosing import Population

UNNAMED = (
    "lowered by a sweep whose report names only the 50 most lowered memories: `dream explain` judges it anew"
)
NO_RUN = "no run that still holds lowered it: its suspicion alone is left"
BY = {"reweight": "its weight was set by hand", "quarantine": "it was in quarantine"}


def suspect_rows(state: BankState, population: Population, rows: Sequence[int]) -> list[SuspectRow]:
    """Return the given memories with the reason for each, in the same order."""
    ids = [population.ids[row] for row in rows]
    last = last_lowerings(state, ids)
    runs = {run_id: run for run_id in {one.run_id for one in last.values()} if (run := _run(state, run_id))}
    found = []
    for row, memory_id in zip(rows, ids, strict=True):
        change = last.get(memory_id)
        run = None if change is None else runs.get(change.run_id)
        named = {} if run is None else _named(run, memory_id)
        found.append(
            SuspectRow(
                id=memory_id,
                weight=float(population.weight[row]),
                weight_before=None if change is None else change.before,
                suspicion=float(population.suspicion[row]),
                reason=_reason(run, named, change),
                by=None if run is None else run.kind,
                run_id=None if run is None else run.run_id,
                at=None if run is None else run.created_at,
                terms=_terms(named),
            )
        )
    return found


def _run(state: BankState, run_id: str) -> Run | None:
    try:
        return state.run(run_id)
    except JournalError:
        # of another tenant, or of everybody's bank
        return None


def _named(run: Run, memory_id: str) -> dict[str, Any]:
    """Return what a sweep's report says of a memory."""
    suspects = run.report.get("suspects", []) if run.kind == "sweep" else []
    return next((one for one in suspects if isinstance(one, dict) and one.get("id") == memory_id), {})


def _reason(run: Run | None, named: dict[str, Any], change: WeightChange | None) -> str:
    if run is None or change is None:
        return NO_RUN
    if run.kind == "sweep":
        if named.get("reason"):
            return str(named["reason"])
        if named.get("activation") is not None:
            times = int(run.config.get("iterations", 0))
            below = int(named.get("abnormal", 0))
            return f"its activation lay below the threshold in {below} of {times} iterations"
        return UNNAMED
    if run.kind == "repair":
        return f"{run.report.get('operation', 'a repair')}: {run.report.get('reason', '')}"
    return BY.get(run.kind, f"changed by a run of kind {run.kind}")


def _terms(named: dict[str, Any]) -> dict[str, float]:
    terms = named.get("terms")
    if not isinstance(terms, dict):
        return {}
    return {str(name): float(value) for name, value in terms.items() if isinstance(value, (int, float))}
