"""What a person decided about memories, and how far sweeps and repairs are bound by it [O].

Two decisions outlive the run that made them. A restored memory is *trusted*: whoever called ``restore`` has
looked at its text and metadata, and while these stay as they were, no sweep and no repair lowers its weight.
A weight that was set by hand is a *ceiling*: the memory may be doubted below it, and never recovers above it.

Decisions hang on runs, as edges do: undoing the run takes them back, and of several the last one counts. A
tenant's decision binds the tenant's own runs; that of the bank without a filter binds everybody's.

Does not know: why a memory is suspect, who called, retrieval. The papers have no such thing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, insert, select

from shared_core.bank.columns import DEFAULTS
from shared_core.bank.derived import is_derived
from shared_core.bank.schema import among, bulk_insert, decisions, reading, runs

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.state import BankState
    from shared_core.config import ForgettingConfig
    from shared_core.dynamics import SweepResult, SweepState
    from shared_core.types import BoolArray, FloatArray

FULL = DEFAULTS["weight"]
TAKEN_BACK = ""
"""Stands where a digest would: the memory is judged again as any other."""


@dataclass(frozen=True)
class Decisions:
    """What holds now."""

    trusted: Collection[str] = frozenset()
    """Ids of memories whose text and metadata are as somebody restored them; softly deleted ones left out."""
    ceilings: Mapping[str, float] = field(default_factory=dict)
    """Of memories whose weight was set by hand below 1."""

    def trusts(self, ids: Sequence[str]) -> BoolArray:
        """Return which of N memories are trusted, shape (N,)."""
        return np.fromiter((memory_id in self.trusted for memory_id in ids), np.bool_, len(ids))

    def bounded(self, ids: Sequence[str], before: FloatArray, after: FloatArray) -> FloatArray:
        """Return what weights may become.

        Args:
            ids: N ids.
            before: (N,) w as it is.
            after: (N,) w as a sweep or repair would have it; returned as it is where nothing was decided.
        """
        if self.trusted:
            after = np.where(self.trusts(ids), np.maximum(before, after), after)
        if self.ceilings:
            ceiling = np.fromiter((self.ceilings.get(memory_id, FULL) for memory_id in ids), float, len(ids))
            after = np.where(after > before, np.minimum(after, np.maximum(before, ceiling)), after)
        return after

    def heeded(
        self, ids: Sequence[str], before: SweepState, result: SweepResult, config: ForgettingConfig
    ) -> tuple[SweepResult, BoolArray]:
        """Return a sweep's result within what was decided, and which trusted memories it doubts, (N,).

        A trusted memory counts as stable in every iteration, whatever the diagnosis says of it: w recovers by
        alpha_rec and s fades by gamma, T times. Nothing else differs: who is trusted stays a member of the
        groups that it looks like, and the other members are judged by them.
        """
        if not (self.trusted or self.ceilings):
            return result, np.zeros(len(ids), bool)
        trusted = self.trusts(ids)
        doubted = (result.weights < before.weights) | (result.suspicion > before.suspicion)
        recovered = 1.0 - (1.0 - before.weights) * (1.0 - config.alpha_rec) ** config.iterations
        faded = before.suspicion * config.gamma**config.iterations
        weights = self.bounded(ids, before.weights, np.where(trusted, recovered, result.weights))
        suspicion = np.where(trusted, faded, result.suspicion)
        return replace(result, weights=weights, suspicion=suspicion), trusted & doubted


def read_decisions(content: ChromaContent, state: BankState, ids: Sequence[str] | None = None) -> Decisions:
    """Return what was decided about the memories of this bank and still holds.

    One query by index; the records of those that were ever trusted are read and compared.

    Args:
        content: The bank's content.
        state: Its state.
        ids: Only about these; default: all.
    """
    digests: dict[str, str] = {}
    ceilings: dict[str, float] = {}
    query = (
        select(decisions.c.memory_id, decisions.c.digest, decisions.c.weight)
        .join(runs, runs.c.run_id == decisions.c.run_id)
        .where(
            decisions.c.bank_id == state.bank_id,
            runs.c.status == "applied",
            runs.c.scope.in_({"", state.scope}),
        )
        .order_by(runs.c.version)
    )
    with reading(state.engine) as connection:
        if ids is not None:
            query = query.where(among(connection, decisions.c.memory_id, ids))
        for memory_id, digest, weight in connection.execute(query):
            if digest is not None:
                digests[memory_id] = digest
            if weight is not None:
                ceilings[memory_id] = float(weight)
    return Decisions(
        frozenset(_as_looked_at(content, state, digests)),
        {memory_id: weight for memory_id, weight in ceilings.items() if weight < FULL},
    )


def write_decisions(
    connection: Connection,
    bank_id: int,
    run_id: str,
    *,
    digests: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
) -> None:
    """Store what a run decided, inside its transaction.

    Args:
        connection: Of that transaction.
        bank_id: The bank.
        run_id: The run.
        digests: ``Record.digest`` of memories that are trusted from now on; TAKEN_BACK: no longer.
        weights: Ceilings; 1 ends one.
    """
    digests, weights = digests or {}, weights or {}
    ids = list(dict.fromkeys([*digests, *weights]))
    if ids:
        columns: dict[str, list[Any]] = {
            "bank_id": [bank_id] * len(ids),
            "memory_id": ids,
            "run_id": [run_id] * len(ids),
            "digest": [digests.get(memory_id) for memory_id in ids],
            "weight": [weights.get(memory_id) for memory_id in ids],
        }
        bulk_insert(connection, insert(decisions), columns)


def _as_looked_at(content: ChromaContent, state: BankState, digests: Mapping[str, str]) -> list[str]:
    """Return the memories that are there, not softly deleted, and still what their digest says."""
    ids = [memory_id for memory_id, digest in digests.items() if digest != TAKEN_BACK]
    if not ids:
        return []
    columns = state.columns()
    gone = columns.gather(ids, "deleted") != 0.0
    # a derived memory without a row is one whose repair never came to be
    ids = [
        i
        for i, deleted in zip(ids, gone, strict=True)
        if not (deleted or (is_derived(i) and i not in columns.rows))
    ]
    held = content.get(ids)
    return [i for i in ids if i in held and held[i].digest == digests[i]]
