"""Sweeps, cycles and repairs of a bank, as its journal tells them.

Reads the journal and the texts that a repair names. A journal can be altered, and what a chat model said
stands in it: every value is checked for its type, and every text is hostile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shared_core.bank.history import keys_written, text_changes, touched, weight_changes
from shared_core.language.counting import counted
from shared_core.reporting.choosing import shown
from shared_core.reporting.data import IdText, RepairRow, RunRow, WeightShift
from shared_core.reporting.shell import argument

if TYPE_CHECKING:
    from shared_core.bank.journal import Run
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.bank.records import Record
    from shared_core.bank.state import BankState

TOLD = (
    "sweep",
    "cycle",
    "repair",
    "update",
    "delete",
    "restore",
    "distrust",
    "reweight",
    "quarantine",
    "recover",
    "undo",
)
"""Kinds of runs that are told one by one; additions and feedback are only counted."""
REPAIR_CHARACTERS = 500
SHOWN_TEXTS, SHOWN_WEIGHTS, SHOWN_KEYS, SHOWN_IDS = 6, 5, 5, 5
REASON_CHARACTERS = 1000
DECIDED = {"restore": "trusted", "distrust": "no longer trusted"}


def run_rows(state: BankState, limit: int) -> list[RunRow]:
    """Return the last runs, newest first; the repairs of a cycle are counted in it."""
    return [_run_row(state, run) for run in state.runs(limit, kinds=TOLD, whole=True)]


def repair_rows(bank: MemoryBank, limit: int) -> list[RepairRow]:
    """Return the last repairs and rewritten texts, newest first, undone ones too."""
    runs = bank.state.runs(limit, kinds=("repair", "update"))
    named = {memory_id for run in runs for name in ("sources", "derived") for memory_id in _ids(run, name)}
    records = bank.content.get(sorted(named))
    return [
        _update_row(bank.state, run) if run.kind == "update" else _repair_row(bank.state, run, records)
        for run in runs
    ]


def linked_ids(repairs: Sequence[RepairRow]) -> set[str]:
    """Return the memories that repairs quote, write or reweight, as far as they are shown."""
    texts = {one.id for repair in repairs for one in (*repair.before, *repair.after, *repair.key_texts)}
    return texts | {shift.id for repair in repairs for shift in repair.weights}


def _run_row(state: BankState, run: Run) -> RunRow:
    report = run.report
    return RunRow(
        run_id=run.run_id,
        word=argument(run.run_id),
        kind=run.kind,
        status=run.status,
        at=run.created_at,
        changes=run.changes,
        what=_what(state, run)[:REASON_CHARACTERS],
        target=run.target,
        parent=run.parent,
        children=_count(report.get("repairs")) if run.kind == "cycle" else _count(report.get("children")),
        f1_before=_number(report.get("f1_before")) if run.kind == "cycle" else None,
        f1_after=_number(report.get("f1_after")) if run.kind == "cycle" else None,
        seconds=_number(report.get("seconds")),
    )


def _what(state: BankState, run: Run) -> str:
    if run.kind in TELL:
        return TELL[run.kind](run)
    count, ids = touched(state, run.run_id, SHOWN_IDS)
    first = run.report.get("first")
    if not ids and run.kind in DECIDED and isinstance(first, str):
        # a decision about a memory that has its full weight changes no number
        return f"{DECIDED[run.kind]}: {_of_ids(_count(run.report.get('memories')), [first])}"
    return _of_ids(count, ids)


def _of_ids(count: int, ids: Sequence[str]) -> str:
    more = f" and {count - len(ids):,} more" if count > len(ids) else ""
    return f"{', '.join(ids)}{more}" if ids else "nothing changed"


def _of_sweep(run: Run) -> str:
    took, lowered, raised, forgotten = (
        _count(run.report.get(name)) for name in ("memories", "lowered", "raised", "forgotten")
    )
    return f"{took:,} memories looked at: {lowered:,} lowered, {raised:,} raised, {forgotten:,} forgotten"


def _of_cycle(run: Run) -> str:
    report = run.report
    if "repairs" not in report:
        return str(report.get("state", "it did not end"))
    ended = f", ended by {report['stopped_by']}" if "stopped_by" in report else ""
    return counted(_count(report["repairs"]), "repair") + ended


def _of_repair(run: Run) -> str:
    return f"{run.report.get('operation', 'repair')}: {run.report.get('reason', '')}"


def _of_undo(run: Run) -> str:
    children = _count(run.report.get("children"))
    with_them = f" with its {counted(children, 'repair')}" if children else ""
    return f"took back {run.report.get('kind', 'a run')} {run.target or ''}{with_them}"


def _of_quarantine(run: Run) -> str:
    return f"new memories count for {run.config.get('weight', '?')} until a sweep has seen them"


def _of_recovery(run: Run) -> str:
    return f"removed {counted(_count(run.report.get('removed')), 'record')} of a repair whose process died"


TELL: Mapping[str, Callable[[Run], str]] = {
    "sweep": _of_sweep,
    "cycle": _of_cycle,
    "repair": _of_repair,
    "undo": _of_undo,
    "quarantine": _of_quarantine,
    "recover": _of_recovery,
}
"""What a run did, in words, by its kind; of the others the memories that they changed say it."""


def _repair_row(state: BankState, run: Run, records: Mapping[str, Record]) -> RepairRow:
    report = run.report
    probe = report.get("probe")
    reweighted, lowered = weight_changes(state, run.run_id, SHOWN_WEIGHTS + len(_ids(run, "derived")))
    new = set(_ids(run, "derived"))
    shifts = [one for one in lowered if one.memory_id not in new]
    return RepairRow(
        run_id=run.run_id,
        word=argument(run.run_id),
        parent=run.parent,
        status=run.status,
        operation=str(report.get("operation", "repair"))[:40],
        reason=str(report.get("reason", ""))[:REASON_CHARACTERS],
        at=run.created_at,
        question=str(probe["query"])[:REPAIR_CHARACTERS]
        if isinstance(probe, dict) and "query" in probe
        else None,
        f1_before=_number(report.get("f1_before")),
        f1_after=_number(report.get("f1_after")),
        before=_texts(_ids(run, "sources"), records),
        after=_texts(_ids(run, "derived"), records),
        reweighted=max(0, reweighted - sum(one.memory_id in new for one in lowered)),
        weights=tuple(
            WeightShift(id=one.memory_id, before=one.before, after=one.after)
            for one in shifts[:SHOWN_WEIGHTS]
        ),
        keys=_count(report.get("keys")),
        key_texts=tuple(
            IdText(id=key.memory_id, text=shown(key.text, REPAIR_CHARACTERS))
            for key in (keys_written(state, run.run_id, SHOWN_KEYS) if report.get("keys") else ())
        ),
        edges=_count(report.get("edges")),
    )


def _update_row(state: BankState, run: Run) -> RepairRow:
    rewritten = text_changes(state, run.run_id)[:SHOWN_TEXTS]
    before, after = (
        tuple(
            IdText(id=change.memory_id, text=shown(text, REPAIR_CHARACTERS))
            for change in rewritten
            if (text := getattr(change, side)) is not None
        )
        for side in ("before", "after")
    )
    return RepairRow(
        run_id=run.run_id,
        word=argument(run.run_id),
        parent=run.parent,
        status=run.status,
        operation="update",
        reason="somebody rewrote its text or metadata",
        at=run.created_at,
        question=None,
        f1_before=None,
        f1_after=None,
        before=before,
        after=after,
        reweighted=0,
        weights=(),
        keys=0,
        key_texts=(),
        edges=0,
    )


def _texts(ids: Sequence[str], records: Mapping[str, Record]) -> tuple[IdText, ...]:
    held = [memory_id for memory_id in ids if memory_id in records][:SHOWN_TEXTS]
    return tuple(IdText(id=i, text=shown(records[i].text, REPAIR_CHARACTERS)) for i in held)


def _ids(run: Run, name: str) -> list[str]:
    found = run.report.get(name)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _count(value: Any) -> int:
    # a journal holds a number or the list that was counted
    return value if isinstance(value, int) else len(value) if isinstance(value, list) else 0


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
