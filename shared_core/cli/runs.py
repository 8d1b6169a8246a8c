"""Runs of the journal as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from shared_core.cli.console import moment, number, safe, show
from shared_core.language.counting import counted

if TYPE_CHECKING:
    from shared_core.bank.journal import Run

LINE = 100
DECIDED = {"restore": "trusted", "distrust": "no longer trusted", "reweight": "a ceiling"}
"""What outlives a run, by its kind."""
COUNTED = {"derived": "derived memory", "reweighted": "new weight", "keys": "key", "edges": "edge"}


def show_runs(runs: Sequence[Run]) -> None:
    """Print runs, and of each the run that it undid or belongs to."""
    headers = ["run", "kind", "status", "changes", "when"]
    rows: list[tuple[Any, ...]] = [
        (run.run_id, run.kind, run.status, run.changes, moment(run.created_at)) for run in runs
    ]
    if any(run.target or run.parent for run in runs):
        headers.append("of run")
        rows = [(*row, run.target or run.parent or "") for row, run in zip(rows, runs, strict=True)]
    told = [what_it_did(run) for run in runs]
    if any(told):
        headers.append("what")
        rows = [(*row, what) for row, what in zip(rows, told, strict=True)]
    show(headers, rows)


def what_it_did(run: Run) -> Text:
    """Return in a few words what a run did; empty where its kind says it.

    A repair's reason may come from a chat model, an id from anybody: they are shown as hostile text.
    """
    report = run.report
    if run.kind == "repair":
        parts = [counted(count, name) for key, name in COUNTED.items() if (count := _count(report.get(key)))]
        what = f"{report.get('operation', '')}: {', '.join(parts)}; {report.get('reason', '')}"
        return safe(what, LINE)
    if run.kind == "cycle":
        return safe(_cycle(report), LINE)
    if run.kind == "undo" and "kind" in report:
        children = _count(report.get("children"))
        return safe(f"{report['kind']}" + (f" with {counted(children, 'repair')}" if children else ""), LINE)
    if run.kind == "sweep" and isinstance(warned := report.get("warnings"), list) and warned:
        return Text(f"warned of {counted(len(warned), 'thing')}")
    if run.kind in DECIDED and isinstance(first := report.get("first"), str):
        more = _count(report.get("memories")) - 1
        return safe(f"{DECIDED[run.kind]} {first!r}" + (f" and {more} more" if more > 0 else ""), LINE)
    return Text("")


def _cycle(report: dict[str, Any]) -> str:
    if "repairs" not in report:
        return str(report.get("state", ""))
    parts = [counted(_count(report["repairs"]), "repair")]
    before, after = report.get("f1_before"), report.get("f1_after")
    if isinstance(before, float) and isinstance(after, float):
        parts.append(f"F1 {number(before)} to {number(after)}")
    return ", ".join([*parts, *([str(report["stopped_by"])] if "stopped_by" in report else [])])


def _count(value: Any) -> int:
    # a journal holds a number or the list that was counted
    return value if isinstance(value, int) else len(value) if isinstance(value, list) else 0
