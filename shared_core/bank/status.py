"""What a bank looks like now, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.bank.deciding import read_decisions
from shared_core.bank.derived import is_derived
from shared_core.bank.quarantine import FULL, quarantined_ids

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.journal import Run
    from shared_core.bank.state import BankState
    from shared_core.types import FloatArray

SHOWN_SUSPECTS = 20
SHOWN_RUNS = 5
FORGOTTEN = 0.1
WEAKENED = 0.5


@dataclass(frozen=True, kw_only=True)
class BankStatus:
    """Counts over the memories that are in the collection now, softly deleted ones apart."""

    collection: str
    scope: str
    memories: int
    deleted: int
    dimension: int | None
    space: str
    version: int
    mean_weight: float | None
    full: int
    """w = 1."""
    reduced: int
    """0.5 <= w < 1."""
    weakened: int
    """0.1 <= w < 0.5."""
    forgotten: int
    """w < 0.1."""
    suspects: list[dict[str, float | str]] = field(repr=False)
    """Lowest weights first, at most 20, those in quarantine left out: id, weight, suspicion."""
    trusted: int
    """Memories that somebody restored and that are as they were then: no sweep lowers them."""
    orphans: int
    """Memories with state that are no longer in the collection (whole collection only)."""
    locked_by: str | None
    quarantine: float | None
    """Weight of memories that no sweep has seen yet; None where there is no quarantine."""
    quarantined: int
    """How many those are; they count as reduced, weakened or forgotten too."""
    derived: int
    """Of the memories, those that dreams wrote."""
    taken_back: int
    """Of the softly deleted ones, those that dreams wrote: their repairs were undone."""
    keys: int
    """Retrieval keys of the memories."""
    edges: int
    """Edges between the memories, those that dreams wrote."""
    runs: list[Run] = field(repr=False)
    """The last five; a dream cycle's repairs are in it."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "runs": [run.to_dict() for run in self.runs]}


def bank_status(content: ChromaContent, state: BankState) -> BankStatus:
    """Read ids and columns, and count."""
    ids = content.ids()
    columns = state.columns()
    # a derived memory without a row is one whose repair never came to be
    ids = [memory_id for memory_id in ids if not is_derived(memory_id) or memory_id in columns.rows]
    alive = columns.gather(ids, "deleted") == 0.0
    weight = columns.gather(ids, "weight")[alive]
    suspicion = columns.gather(ids, "suspicion")[alive]
    kept = [memory_id for memory_id, lives in zip(ids, alive, strict=True) if lives]
    waiting = set(quarantined_ids(state, kept))
    visible = set(kept)
    derived = sum(map(is_derived, kept))
    order = [int(row) for row in np.argsort(weight, kind="stable") if weight[row] < WEAKENED]
    lowest = [row for row in order if kept[row] not in waiting][:SHOWN_SUSPECTS]
    return BankStatus(
        collection=content.name,
        scope=state.scope,
        memories=len(kept),
        deleted=len(ids) - len(kept),
        dimension=content.dimension(),
        space=content.space,
        version=columns.version,
        mean_weight=float(weight.mean()) if len(weight) else None,
        full=int(np.count_nonzero(weight == 1.0)),
        reduced=int(np.count_nonzero((weight >= WEAKENED) & (weight < 1.0))),
        weakened=int(np.count_nonzero((weight >= FORGOTTEN) & (weight < WEAKENED))),
        forgotten=int(np.count_nonzero(weight < FORGOTTEN)),
        suspects=[
            {"id": kept[row], "weight": float(weight[row]), "suspicion": float(suspicion[row])}
            for row in lowest
        ],
        trusted=len(read_decisions(content, state).trusted),
        orphans=0 if content.where else len(state.known_ids() - set(ids)),
        locked_by=state.lock_holder(),
        quarantine=None if state.unseen_weight == FULL else state.unseen_weight,
        quarantined=len(waiting),
        derived=derived,
        taken_back=sum(map(is_derived, ids)) - derived,
        keys=sum(memory_id in visible for memory_id in state.keyed_ids()),
        edges=sum(edge.source in visible and edge.target in visible for edge in state.edges()),
        runs=state.runs(limit=SHOWN_RUNS, whole=True),
    )


def visible_weights(content: ChromaContent, state: BankState, ids: Sequence[str]) -> FloatArray:
    """Return each id's weight, shape (len(ids),): 0 if softly deleted, or outside the tenant."""
    weights = state.weights(ids)
    if content.where:
        inside = set(content.matching(None, None, list(dict.fromkeys(ids))))
        weights = np.where([memory_id in inside for memory_id in ids], weights, 0.0)
    return weights
