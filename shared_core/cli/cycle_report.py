"""What ``dream cycle`` shows of a cycle: its rounds, each repair with what it wrote, and how to undo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from shared_core.cli.console import number, safe, say, show
from shared_core.language.counting import counted

if TYPE_CHECKING:
    from shared_core.agents import CycleReport, KeptRepair, ProposedRepair, RoundReport

SHOWN_REPAIRS = 20
SHOWN_WEIGHTS = 3
LINE = 200
OWNER = 24


def show_report(report: CycleReport, model: str | None, undo: str) -> None:
    """Print a report for people.

    Args:
        report: Of the cycle.
        model: Name of the chat model; None for rules.
        undo: Command that undoes the whole cycle.
    """
    _say_what_came_of_it(report)
    if report.agents:
        _say_who_answered(report.agents, model or "")
    _show_rounds(report.rounds)
    if report.repairs:
        say()
        _show_repairs(report)
    if report.run_id is None or not report.repairs:
        return
    say("one repair alone is undone by its run's id, with the same options; dream log lists them")
    say(f"run {report.run_id}; undo all of it with: {undo}")


def _say_what_came_of_it(report: CycleReport) -> None:
    asked = sum(one.probes for one in report.rounds if one.number)
    kept = len(report.repairs)
    parts = [f"{counted(report.memories, 'memory')}, {report.usable} of them may be asked about and quoted"]
    if asked:
        f1 = f"mean F1 {number(report.f1_before)} before, {number(report.f1_after)} after"
        parts.append(f"{counted(asked, 'question')}, {f1}")
    else:
        parts.append("no question was asked")
    verb = "would be made" if report.dry_run else "kept"
    parts.append(f"{counted(kept, 'repair')} {verb}, in {report.seconds:.1f} s")
    say("; ".join(parts) + ("; dry run, nothing was changed" if report.dry_run else ""))
    if named := report.config.get("tenant_keys"):
        say(
            Text("kept apart by ")
            .append(safe(", ".join(named)))
            .append(f": {counted(report.tenants, 'owner')}, {report.dreamt} of them dreamt")
        )
    say(_ended(report))


def _ended(report: CycleReport) -> str:
    config = report.config
    stays = "nothing was changed" if report.dry_run or not report.repairs else "what it repaired stays"
    return {
        "converged": f"it ended because its questions are answered (mean F1 of {config['tau']} or more)",
        "rounds": f"it ended after {counted(config['rounds'], 'round')}",
        "repairs": f"it ended after {counted(config['repairs'], 'repair')}: run it again for more",
        "seconds": f"it ended after {config['seconds']:g} s: run it again, or give it more --seconds",
        "cancelled": f"it was stopped: {stays}",
    }[report.stopped_by]


def _say_who_answered(agents: Mapping[str, Any], model: str) -> None:
    asked = f"{agents['answered']} of {agents['asked']} questions answered, {agents['retried']} asked twice"
    spent = (
        f"{counted(agents['calls'], 'call')}, {counted(agents['tokens'], 'token')}, {agents['seconds']:.1f} s"
    )
    say(Text("model ").append(safe(model)).append(f": {asked}; {spent}"))
    rows = [
        (agent, times, safe(reason))
        for agent, reasons in agents["fallbacks"].items()
        for reason, times in reasons.items()
    ]
    if rows:
        show(["agent", "times the rules answered", "why"], rows)


def _show_rounds(rounds: list[RoundReport]) -> None:
    if not rounds:
        return
    say()
    owned = any(one.tenant for one in rounds)
    rows = [
        (
            one.number or "groundwork",
            *([_owner(one)] if owned else []),
            one.pages,
            one.targets,
            one.probes,
            one.failures if one.number else None,
            one.f1_before if one.probes else None,
            one.f1_after if one.probes else None,
            one.kept,
            f"{one.seconds:.1f} s",
            ", ".join(f"{times} {category}" for category, times in one.diagnoses.items()),
        )
        for one in rounds
    ]
    headers = ["pages", "asked", "questions", "failed", "F1 before", "after", "kept", "took", "found"]
    show(["round", *(["owner"] if owned else []), *headers], rows)
    refused: Counter[str] = Counter()
    for one in rounds:
        refused.update(one.rejected)
    for reason, times in refused.most_common():
        say(Text(f"not kept, {times}: ").append(safe(reason, LINE)))


def _owner(one: RoundReport) -> Text:
    return safe(", ".join(f"{value}" for value in one.tenant.values()) or "-", OWNER)


def _show_repairs(report: CycleReport) -> None:
    shown = report.repairs[:SHOWN_REPAIRS]
    rows: list[tuple[Any, ...]] = []
    for one in shown:
        first, *more = _lines(one.proposal)
        rows.append((one.run_id or "-", one.proposal.operation, *_f1(one), first))
        rows += [("", "", "", "", line) for line in more]
    show(["repair", "operation", "F1 before", "after", "question, why, and what it wrote"], rows)
    if left := len(report.repairs) - len(shown):
        say(f"and {left} more: --json" + ("" if report.dry_run else ", or dream log"))


def _f1(one: KeptRepair) -> tuple[str, str]:
    return number(one.proposal.f1_before), number(one.proposal.f1_after)


def _lines(proposal: ProposedRepair) -> Iterator[Text]:
    """Yield the question, the reason and the changes of a repair, a line each; all of it may be hostile."""
    if proposal.query is not None:
        yield safe(proposal.query, LINE)
    yield safe(proposal.reason, LINE)
    if proposal.text is not None:
        yield Text("wrote: ").append(safe(proposal.text, LINE))
    if proposal.weights:
        few = list(proposal.weights.items())[:SHOWN_WEIGHTS]
        more = len(proposal.weights) - len(few)
        line = Text("weights: ")
        for position, (memory_id, weight) in enumerate(few):
            line.append(", " if position else "").append(safe(memory_id, 40)).append(f" to {number(weight)}")
        yield line.append(f" and {more} more" if more else "")
    counts = [(proposal.keys, "retrieval key"), (proposal.edges, "edge")]
    if written := [counted(count, name) for count, name in counts if count]:
        yield Text(", ".join(written))
