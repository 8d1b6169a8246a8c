"""What is told of each kind of work: counts, seconds, names of collections, kinds and ids of runs.

Never a query, a memory's text, its id or its metadata, nor a tenant's filter, which may name a person.

Source: none, ours [O].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared_core.telemetry.metrics import (
    CYCLE_SECONDS,
    JOBS,
    REPAIRS,
    SEARCH_SECONDS,
    SUSPECTS,
    SWEEP_SECONDS,
    UNDONE,
    WEIGHTS,
)
from shared_core.telemetry.seam import Measure, Told, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_core.agents import CycleReport, DreamCycle
    from shared_core.agents.cycle_report import StoppedBy
    from shared_core.agents.dreaming import Dreaming
    from shared_core.bank import MemoryBank, Run, SweepReport
    from shared_core.bank.content_writer import ContentWriter
    from shared_core.bank.repairing import Repair
    from shared_core.fleet.dreamer import BankDreamer
    from shared_core.fleet.jobs import FleetJob
    from shared_core.fleet.outcome import Tried
    from shared_core.retrieval import BankRetriever
    from shared_core.retrieval.associative import AssociativeRetriever
    from shared_core.types import Hit

COLLECTION, RUN = "dream.collection", "dream.run_id"
KEPT = "kept"


def search(
    seconds: float,
    hits: Sequence[Hit],
    retriever: BankRetriever | AssociativeRetriever,
    *_query: Any,
    **options: Any,
) -> Told:
    """Tell of a search, its embedding included: how many memories were found, and how trusted they are."""
    return _searched("search", seconds, hits, retriever, options)


def search_by_vector(
    seconds: float,
    hits: Sequence[Hit],
    retriever: BankRetriever | AssociativeRetriever,
    *_vector: Any,
    **options: Any,
) -> Told:
    """Tell of a search whose embedding was at hand."""
    return _searched("search_by_vector", seconds, hits, retriever, options)


def _searched(
    how: str,
    seconds: float,
    hits: Sequence[Hit],
    retriever: BankRetriever | AssociativeRetriever,
    options: dict[str, Any],
) -> Told:
    asked = str(options.get("search_type") or getattr(retriever.config, "search_type", "associative"))
    kind: dict[str, Value] = {COLLECTION: retriever.bank.content.name, "dream.search_type": asked}
    found: dict[str, Value] = {
        "dream.k": int(options.get("k") or retriever.config.k),
        "dream.hits": len(hits),
        "dream.filtered": bool(options.get("where") or options.get("where_document")),
        "dream.reranked": retriever.reranker is not None,
    }
    if hits:
        weights = [hit.weight for hit in hits]
        found |= {"dream.weight.min": min(weights), "dream.weight.mean": sum(weights) / len(weights)}
    latency = Measure(name=SEARCH_SECONDS, value=seconds, attributes={**kind, "dream.how": how})
    return Told(attributes={**kind, **found}, measures=[latency])


def sweep(seconds: float, report: SweepReport, bank: MemoryBank, *_config: Any, **_options: Any) -> Told:
    """Tell of a sweep; where it was no dry run also the weight of every memory that took part."""
    name = bank.content.name
    where: dict[str, Value] = {COLLECTION: name, "dream.dry_run": report.dry_run}
    attributes: dict[str, Value] = {
        **where,
        "dream.diagnosis": str(report.config.get("diagnosis", "")),
        "dream.memories": report.memories,
        "dream.suspects": report.lowered,
        "dream.raised": report.raised,
        "dream.forgotten": report.forgotten,
        "dream.warnings": len(report.warnings),
    }
    measures = [
        Measure(name=SWEEP_SECONDS, value=seconds, attributes=where),
        Measure(name=SUSPECTS, value=report.lowered, attributes=where),
    ]
    if report.run_id is not None:
        attributes[RUN] = report.run_id
        measures += [
            Measure(name=WEIGHTS, value=weight, attributes={COLLECTION: name})
            for weight in bank.state.weights(report.ids).tolist()
        ]
    return Told(attributes=attributes, measures=measures)


def cycle(seconds: float, report: CycleReport, dream: DreamCycle, **_options: Any) -> Told:
    """Tell of a dream cycle."""
    where: dict[str, Value] = {COLLECTION: dream.bank.content.name, "dream.dry_run": report.dry_run}
    attributes: dict[str, Value] = {
        **where,
        "dream.memories": report.memories,
        "dream.rounds": len(report.rounds),
        "dream.repairs": len(report.repairs),
        "dream.f1_before": report.f1_before,
        "dream.f1_after": report.f1_after,
        "dream.stopped_by": report.stopped_by,
    }
    if report.run_id is not None:
        attributes[RUN] = report.run_id
    return Told(
        attributes=attributes,
        measures=[Measure(name=CYCLE_SECONDS, value=seconds, attributes=where)],
    )


def dream_round(_seconds: float, ended: StoppedBy | None, dreaming: Dreaming, *_work: Any) -> Told:
    """Tell of the round of a cycle that has just ended; round 0 is the groundwork."""
    last = dreaming.rounds[-1]
    return Told(
        attributes={
            "dream.round": last.number,
            "dream.probes": last.probes,
            "dream.failures": last.failures,
            "dream.kept": last.kept,
            "dream.rejected": sum(last.rejected.values()),
            "dream.f1_before": last.f1_before,
            "dream.f1_after": last.f1_after,
            "dream.ended": ended or "",
        }
    )


def repair(_seconds: float, refused: str | None, dreaming: Dreaming, tried: Repair, *_on_what: Any) -> Told:
    """Tell of a repair that was supposed and verified, kept or not."""
    attributes: dict[str, Value] = {"dream.operation": tried.operation, "dream.outcome": refused or KEPT}
    counted = Measure(name=REPAIRS, value=1, attributes=dict(attributes))
    if refused is None and (run_id := dreaming.kept[-1].run_id) is not None:
        attributes[RUN] = run_id
    return Told(attributes=attributes, measures=[counted])


def undo(_seconds: float, done: Run, writer: ContentWriter, undone: str) -> Told:
    """Tell of an undo."""
    kind: dict[str, Value] = {
        COLLECTION: writer.collection,
        "dream.kind": str(done.report.get("kind", "update")),
    }
    return Told(
        attributes={**kind, RUN: done.run_id, "dream.undone": undone, "dream.changes": done.changes},
        measures=[Measure(name=UNDONE, value=1, attributes=kind)],
    )


def fleet_job(_seconds: float, tried: Tried, _dreamer: BankDreamer, job: FleetJob) -> Told:
    """Tell of one bank of a fleet."""
    attributes: dict[str, Value] = {
        COLLECTION: job.collection,
        "dream.tenant": job.where is not None,
        "dream.outcome": tried.status,
        "dream.repairs": tried.repairs,
    }
    if tried.run_id is not None:
        attributes[RUN] = tried.run_id
    return Told(
        attributes=attributes,
        measures=[Measure(name=JOBS, value=1, attributes={"dream.outcome": tried.status})],
    )
