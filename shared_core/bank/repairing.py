"""Applying one repair of a dream cycle to a bank: derived memories, weights and edges, as one run.

Derived records are written to the collection first and become visible only by the transaction; those whose
transaction never came have weight 0 and are removed by ``remove_unborn`` (design 5). Decides nothing: what
to repair, and whether it helps, is the business of the agents.

Source: MemDream section 3.2 and appendix C: no information is lost, edges are updated, all changes are
logged for reversibility [S]. Suspects are never sources [O].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from shared_core.bank import intake
from shared_core.bank.deciding import read_decisions
from shared_core.bank.derived import SUSPECT, derived_id, is_derived, provenance, sources_of
from shared_core.bank.edges import Edge, write_edges
from shared_core.bank.following import starting_state
from shared_core.bank.keys import RetrievalKey, write_keys
from shared_core.bank.known_fields import known_fields
from shared_core.bank.tenants import inherited, owner_of
from shared_core.bank.transaction import new_run_id
from shared_core.errors import InvalidMemoryError, MemoryNotFoundError
from shared_core.language.counting import counted

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from shared_core.bank.journal import Run
    from shared_core.bank.lock import BankLock
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.bank.records import Record
    from shared_core.types import FloatArray, Metadata

Operation = Literal["extract", "synthesize", "merge", "prune", "restore", "link"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DerivedMemory:
    """A memory that a repair writes: verbatim quotes of its sources."""

    text: str
    sources: tuple[str, ...]
    """Ids of what it quotes, at least one; the user's own memories, not derived ones."""
    metadata: Metadata = field(default_factory=dict)
    """Besides what all its sources have alike, which it takes from them."""
    embedding: FloatArray | None = None
    """Shape (d,); default: the bank's embedder computes it."""
    id: str = field(default_factory=derived_id)


@dataclass(frozen=True, kw_only=True, eq=False)
class Repair:
    """One change to the bank, with why it is made."""

    operation: Operation
    reason: str
    """For people; quotes no memory text unescaped anywhere but in the journal."""
    memories: tuple[DerivedMemory, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    """New w in [0, 1] of existing memories."""
    edges: tuple[Edge, ...] = ()
    """Besides the provenance edges, which every derived memory gets."""
    keys: tuple[RetrievalKey, ...] = ()
    """Further texts by which existing memories are found."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON values for the journal: the probe, the diagnosis, F1 before and after."""

    @property
    def changes_something(self) -> bool:
        """Tell whether there is anything to write."""
        return bool(self.memories or self.weights or self.edges or self.keys)


def apply_repair(
    bank: MemoryBank,
    repair: Repair,
    *,
    lock: BankLock,
    parent: str | None = None,
    within: Callable[[Connection], object] | None = None,
    tenant_keys: Sequence[str] = (),
) -> Run:
    """Apply a repair whole or not at all; ``bank.undo(run.run_id)`` takes it back.

    Args:
        bank: The bank.
        repair: The repair.
        lock: The bank's lock, held.
        parent: Run id of the dream cycle.
        within: Called inside the transaction: what it writes is written with the repair, or not at all.
        tenant_keys: Metadata fields that say whose a memory is.

    Raises:
        InvalidMemoryError: It changes nothing, or only weights that a person decided otherwise, a text or
            weight is malformed, a source is derived, forgotten, deleted or suspect, or the memories are of
            several owners.
        MemoryNotFoundError: A memory that it names is not in the bank.
        BankLockedError: The lock was taken over by somebody else.
    """
    held = _check(bank, repair, tenant_keys)
    if repair.weights:
        repair = heeding(bank, list(repair.weights))(repair)
    if not repair.changes_something:
        raise InvalidMemoryError(f"a repair ({repair.operation}) of weights that a person decided otherwise")
    run_id = new_run_id()
    state = starting_state(bank, [memory.sources for memory in repair.memories])
    ids = _write(bank, repair, held, tenant_keys)
    is_whole = False
    try:
        with bank.state.transaction("repair", lock=lock, run_id=run_id, parent=parent) as run:
            run.create(ids, state)
            run.set(list(repair.weights), {"weight": list(repair.weights.values())})
            write_edges(run.connection, bank.state.bank_id, run_id, _edges(repair))
            write_keys(run.connection, bank.state.bank_id, run_id, repair.keys)
            if within is not None:
                within(run.connection)
            run.report = {
                "operation": repair.operation,
                "reason": repair.reason,
                "derived": ids,
                "sources": sorted({source for memory in repair.memories for source in memory.sources}),
                "reweighted": sorted(repair.weights),
                "keys": len(repair.keys),
                "edges": len(repair.edges),
                **repair.details,
            }
            is_whole = True
    except BaseException:
        # a commit that got no answer may have been carried out; if not, ``remove_unborn`` finds them
        if not is_whole:
            bank.content.discard_derived(ids)
        raise
    return bank.state.run(run_id)


def heeding(bank: MemoryBank, ids: Sequence[str] | None = None) -> Callable[[Repair], Repair]:
    """Return what takes out of a repair the weights that a person decided otherwise; reads the bank once.

    A trusted memory is not lowered, not even by the merge that quotes it; one whose weight was set by hand is
    not raised above that.

    Args:
        bank: The bank.
        ids: All that the repairs will reweight; default: any memory.
    """
    decided, columns = read_decisions(bank.content, bank.state, ids), bank.state.columns()

    def heed(repair: Repair) -> Repair:
        if not repair.weights:
            return repair
        ids, asked = list(repair.weights), np.array(list(repair.weights.values()), float)
        before = columns.gather(ids, "weight")
        given = decided.bounded(ids, before, asked)
        kept = (given == asked) | (given != before)
        return replace(repair, weights={ids[row]: float(given[row]) for row in np.flatnonzero(kept)})

    return heed


def remove_unborn(bank: MemoryBank, lock: BankLock) -> list[str]:
    """Remove derived records whose transaction never came, because their process died; returns their ids.

    What only has an id like theirs, and not their provenance, is somebody else's: invisible, and left alone.
    """
    known = bank.state.known_ids()
    unknown = [memory_id for memory_id in bank.ids() if is_derived(memory_id) and memory_id not in known]
    held = bank.content.get(unknown) if unknown else {}
    unborn = [i for i in unknown if i in held and sources_of(held[i].metadata)]
    if unborn:
        with bank.state.transaction("recover", lock=lock) as run:
            # proves that the lock is still ours before anything is removed, and that no commit which
            # got no answer came meanwhile
            born = run.read(unborn)
            unborn = [memory_id for memory_id in unborn if memory_id not in born]
            run.report = {"removed": unborn}
        bank.content.discard_derived(unborn)
    return unborn


def _write(
    bank: MemoryBank, repair: Repair, held: Mapping[str, Record], tenant_keys: Sequence[str]
) -> list[str]:
    """Write the derived records, still invisible."""
    new = repair.memories
    if not new:
        return []
    ids = [memory.id for memory in new]
    value_key = known_fields(bank).value_key
    rows = [
        intake.in_scope(
            {
                **memory.metadata,
                **inherited([held[source].metadata for source in memory.sources], tenant_keys, value_key),
                **provenance(repair.operation, memory.sources),
            },
            bank.content.where,
        )
        for memory in new
    ]
    texts = [memory.text for memory in new]
    intake.check_memories(ids, texts, rows, derived=True)
    given = [memory.embedding for memory in new]
    known = [embedding for embedding in given if embedding is not None]
    matrix = intake.as_matrix(known) if len(known) == len(given) else bank._embed(texts)
    intake.check_embeddings(matrix, len(texts), bank.content.dimension(), bank.content.name)
    bank.content.add(ids, texts, rows, matrix)
    return ids


def _edges(repair: Repair) -> list[Edge]:
    quoted = [Edge(source, m.id, "provenance") for m in repair.memories for source in m.sources]
    return [*quoted, *repair.edges]


def _check(bank: MemoryBank, repair: Repair, tenant_keys: Sequence[str]) -> dict[str, Record]:
    if not repair.changes_something:
        raise InvalidMemoryError(f"a repair ({repair.operation}) that changes nothing")
    for memory_id, weight in repair.weights.items():
        if not isinstance(weight, (int, float, np.number)) or not 0.0 <= weight <= 1.0:
            raise InvalidMemoryError(f"weight {weight!r} of {memory_id!r} is outside [0, 1]")
    for memory in repair.memories:
        if not is_derived(memory.id) or not memory.sources:
            raise InvalidMemoryError("a derived memory needs an id of derived_id() and at least one source")
    sources = {source for memory in repair.memories for source in memory.sources}
    keyed = {key.memory_id for key in repair.keys}
    new = {memory.id for memory in repair.memories}
    linked = {end for edge in repair.edges for end in (edge.source, edge.target)} - new
    held = _require(bank, sorted(sources | linked | keyed | set(repair.weights)))
    _check_owner(held, tenant_keys)
    _check_sources(bank, sorted(sources | keyed))
    _check_keys(bank, repair.keys)
    return held


def _check_owner(held: Mapping[str, Record], tenant_keys: Sequence[str]) -> None:
    first: dict[tuple[str, ...], str] = {}
    for memory_id, record in held.items():
        first.setdefault(owner_of(record.metadata, tenant_keys), memory_id)
    if len(first) > 1:
        one, other, *_ = first.values()
        raise InvalidMemoryError(
            f"a repair of memories of {len(first)} owners, such as {one!r} and {other!r}: "
            f"{', '.join(tenant_keys)} must be the same of all"
        )


def _check_sources(bank: MemoryBank, sources: Sequence[str]) -> None:
    columns = bank.state.columns()
    suspicion, deleted = columns.gather(sources, "suspicion"), columns.gather(sources, "deleted")
    for row, source in enumerate(sources):
        if is_derived(source):
            raise InvalidMemoryError(f"source {source!r} is derived itself: quote what it quotes")
        if deleted[row]:
            raise InvalidMemoryError(f"source {source!r} is deleted: it cannot be quoted")
        if suspicion[row] >= SUSPECT:
            raise InvalidMemoryError(
                f"source {source!r} is suspect (s = {suspicion[row]:.2f}): nothing may be derived from it"
            )


def _check_keys(bank: MemoryBank, keys: Sequence[RetrievalKey]) -> None:
    dimension = bank.content.dimension()
    for key in keys:
        intake.check_text(key.memory_id, key.text)
        if key.embedding is not None:
            intake.check_embeddings(intake.as_matrix([key.embedding]), 1, dimension, bank.content.name)


def _require(bank: MemoryBank, ids: Sequence[str]) -> dict[str, Record]:
    held = bank.content.get(ids)
    if missing := [memory_id for memory_id in ids if memory_id not in held]:
        raise MemoryNotFoundError(
            f"not in bank {bank.content.name!r}: {counted(len(missing), 'memory')} of a repair, such as "
            f"{missing[0]!r}; nothing was changed"
        )
    return held
