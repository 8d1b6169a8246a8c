"""Everything that a report says of one bank, read and never changed.

Joins the bank's content, state and journal to the plain data of ``data``. Knows no page: what is returned can
be written into one, served to one, or read by another program.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core import __version__
from shared_core.bank.deciding import read_decisions
from shared_core.bank.derived import is_derived, sources_of
from shared_core.bank.history import counts_by_kind
from shared_core.bank.quarantine import quarantined_ids
from shared_core.reporting.choosing import Population, choose, length_that_fits, shortened, shown
from shared_core.reporting.chronicle import TOLD, linked_ids, repair_rows, run_rows
from shared_core.reporting.data import BankFacts, Counts, MemoryRow, ReportData, ReportLimits
from shared_core.reporting.graph_view import graph_view
from shared_core.reporting.headline import headline
from shared_core.reporting.shell import argument, place_of
from shared_core.reporting.suspecting import suspect_rows

if TYPE_CHECKING:
    from shared_core.bank.graph import GraphKeys
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.bank.records import Record
    from shared_core.bank.status import BankStatus
    from shared_core.reporting.data import GraphView
    from shared_core.types import Metadata

SHOWN_FIELDS = 8
FIELD_CHARACTERS, SUSPECT_CHARACTERS = 120, 600
"""Of one metadata field; of a suspect's, whose value may be what it is doubted for."""
OURS = "dream_"
"""Prefix of the metadata that we write; shown as what it means, not as it is."""


def gather_report(
    bank: MemoryBank,
    *,
    place: Sequence[str] | None = None,
    limits: ReportLimits | None = None,
    graph_keys: GraphKeys | None = None,
    now: float | None = None,
) -> ReportData:
    """Read what a report shows of a bank.

    Args:
        bank: The bank, or one tenant's view of it.
        place: Arguments by which a command reaches the bank, such as
            ``["./chroma", "--collection", "notes"]``; None: the report has no command lines.
        limits: How much is shown.
        graph_keys: Metadata fields that say where a memory belongs.
        now: Unix time; default: the clock's.

    Raises:
        StateError: The state database failed, or was altered.
        BankNotFoundError: The collection is gone.
    """
    limits = limits or ReportLimits()
    now = time.time() if now is None else now
    status = bank.status()
    population = _population(bank)
    rows = population.by_weight(np.flatnonzero(population.suspect).tolist())
    repairs = repair_rows(bank, limits.repairs)
    chosen = choose(population, linked_ids(repairs), limits.memories)
    suspects = suspect_rows(bank.state, population, rows[: limits.memories])
    counts = _counts(bank, status, len(rows))
    facts = _facts(status)
    sweeps = bank.state.runs(20, kinds=["sweep"])
    # a tenant's sweep saw the tenant only
    whole = [run for run in sweeps if run.status == "applied" and run.scope == status.scope]
    sweep = whole[0] if whole else None
    told = None if place is None else place_of(place)
    memories = _memory_rows(bank, population, chosen, limits)
    held = {memory.id for memory in memories}
    visible = [memory.id for memory in memories if memory.standing != "deleted"][: limits.nodes]
    runs = run_rows(bank.state, limits.runs + 1)
    graph = graph_view(bank, visible, limits.edges, graph_keys)
    return ReportData(
        made_at=now,
        made_by=f"dream-memory {__version__}",
        bank=facts,
        counts=counts,
        headline=headline(facts, counts, sweep, now, told),
        memories=tuple(memories),
        suspects=tuple(suspect for suspect in suspects if suspect.id in held),
        runs=tuple(runs[: limits.runs]),
        repairs=tuple(repairs),
        graph=graph,
        left_out=(
            *_left_out(counts, memories, len(suspects), len(repairs), graph),
            *([f"The timeline holds the last {limits.runs:,} runs."] if len(runs) > limits.runs else []),
        ),
        place=told,
    )


def _population(bank: MemoryBank) -> Population:
    columns = bank.state.columns()
    # a derived memory without a row is one whose repair never came to be
    ids = [one for one in bank.ids() if not is_derived(one) or one in columns.rows]
    deleted = columns.gather(ids, "deleted") != 0.0
    waiting = set(quarantined_ids(bank.state, ids))
    return Population(
        ids=ids,
        weight=columns.gather(ids, "weight"),
        suspicion=columns.gather(ids, "suspicion"),
        deleted=deleted,
        waiting=np.fromiter((one in waiting for one in ids), np.bool_, len(ids)),
    )


def _facts(status: BankStatus) -> BankFacts:
    return BankFacts(
        collection=status.collection,
        scope=status.scope,
        dimension=status.dimension,
        space=status.space,
        version=status.version,
        locked_by=status.locked_by,
        quarantine=status.quarantine,
    )


def _counts(bank: MemoryBank, status: BankStatus, suspects: int) -> Counts:
    return Counts(
        memories=status.memories,
        deleted=status.deleted,
        full=status.full,
        reduced=status.reduced,
        weakened=status.weakened,
        forgotten=status.forgotten,
        suspects=suspects,
        derived=status.derived,
        quarantined=status.quarantined,
        trusted=status.trusted,
        keys=status.keys,
        edges=status.edges,
        orphans=status.orphans,
        mean_weight=status.mean_weight,
        runs=counts_by_kind(bank.state),
    )


def _memory_rows(
    bank: MemoryBank, population: Population, rows: Sequence[int], limits: ReportLimits
) -> list[MemoryRow]:
    ids = [population.ids[row] for row in rows]
    records = bank.content.get(ids)
    states = dict(zip(ids, bank.state.get(ids), strict=True))
    suspect = population.suspect
    keys = Counter(bank.state.keyed_ids())
    trusted = read_decisions(bank.content, bank.state, ids).trusted
    length = length_that_fits([one.text for one in records.values()], limits.characters, limits.total)
    found = []
    for row, memory_id in zip(rows, ids, strict=True):
        # removed by another process since the ids were read: nothing to show
        if (record := records.get(memory_id)) is None:
            continue
        state = states[memory_id]
        found.append(
            MemoryRow(
                id=memory_id,
                word=argument(memory_id),
                text=shown(record.text, length),
                standing=population.standing(row),
                weight=float(population.weight[row]),
                suspicion=float(population.suspicion[row]),
                consolidation=state.consolidation,
                retrievals=state.retrievals,
                successes=state.successes,
                last_access=state.last_access,
                derived=is_derived(memory_id),
                suspect=bool(suspect[row]),
                waiting=bool(population.waiting[row]),
                trusted=memory_id in trusted,
                digest=record.digest,
                keys=keys.get(memory_id, 0),
                sources=_sources(record),
                metadata=_shown_fields(
                    record.metadata, SUSPECT_CHARACTERS if suspect[row] else FIELD_CHARACTERS
                ),
            )
        )
    return found


def _sources(record: Record) -> tuple[str, ...]:
    return sources_of(record.metadata) if is_derived(record.id) else ()


def _shown_fields(metadata: Metadata, limit: int) -> Mapping[str, str]:
    own = {key: value for key, value in metadata.items() if not key.startswith(OURS)}
    return {
        shortened(key, FIELD_CHARACTERS): shortened(str(value), limit)
        for key, value in list(own.items())[:SHOWN_FIELDS]
    }


def _left_out(
    counts: Counts, memories: Sequence[MemoryRow], suspects: int, repairs: int, graph: GraphView
) -> list[str]:
    """Return in plain words what of the bank the page does not hold."""
    found = []
    everything = counts.memories + counts.deleted
    if len(memories) < everything:
        found.append(
            f"{len(memories):,} of {everything:,} memories are on this page: the suspects, what repairs "
            "touched, what is lowered or deleted, then the newest. Search looks at these only."
        )
    if suspects < counts.suspects:
        found.append(f"{suspects:,} of {counts.suspects:,} suspects are shown, those of lowest weight.")
    if shorter := sum(one.text.length > len(one.text.text) for one in memories):
        found.append(f"{shorter:,} texts are longer than what is shown of them; each says so.")
    if counted := {kind: number for kind, number in counts.runs.items() if kind not in TOLD}:
        named = ", ".join(f"{number:,} of kind {kind}" for kind, number in counted.items())
        found.append(f"Of the journal, the timeline leaves out {named}: `dream log` lists them.")
    changed = counts.runs.get("repair", 0) + counts.runs.get("update", 0)
    if repairs < changed:
        found.append(f"{repairs:,} of {changed:,} repairs are shown, the newest.")
    if len(graph.nodes) < counts.memories:
        found.append(f"The graph shows {len(graph.nodes):,} of {counts.memories:,} memories.")
    return found
