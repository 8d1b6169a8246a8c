"""How derived memories follow what they quote when a sweep judges the bank [O].

A derived memory quotes others word for word. In a sweep's diagnosis it would look like a coupled copy of them
and shift the bank's statistics, so it takes no part there; its state is a function of its sources' instead.
While a sweep holds one of them down, or it is deleted or gone, w is at most the lowest weight among those;
otherwise w is what it was before any sweep. s is the highest among its sources.

What a dream or a person lowered on purpose, such as the pages that a merge replaces, holds nothing down; nor
does a suspect hold down what a person looked at and trusts, only what is deleted or gone does.
Source: none; MemDream keeps weights of both without a rule between them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import select

from shared_core.bank.columns import DEFAULTS, can_have_state
from shared_core.bank.derived import SUSPECT, is_derived, sources_of
from shared_core.bank.schema import among, changes, reading, runs
from shared_core.dynamics import SweepState

if TYPE_CHECKING:
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.bank.state import BankState
    from shared_core.types import FloatArray

FULL = DEFAULTS["weight"]
_NOT_GRANTING = ("sweep", "undo")
"""Kinds of runs that change weights without saying what a memory deserves but for its suspects."""


@dataclass(frozen=True)
class Followed:
    """What a sweep makes of D derived memories."""

    ids: list[str]
    before: SweepState
    weights: FloatArray
    """(D,) new w."""
    suspicion: FloatArray
    """(D,) new s."""
    lowest: list[str | None]
    """Of each, the source that holds it down most."""

    def reason(self, row: int) -> str | None:
        """Return why a memory is held down, in words; None where nothing does."""
        source = self.lowest[row]
        return None if source is None else f"quotes {source!r}, which is suspect, lowered by a sweep or gone"


@dataclass(frozen=True)
class _Source:
    weight: float
    suspicion: float
    holds: bool
    """What quotes it counts no more than it does."""


_GONE = _Source(0.0, 0.0, holds=True)


def follow_sources(
    bank: MemoryBank,
    ids: Sequence[str],
    swept: Mapping[str, tuple[float, float]],
    trusted: Collection[str] = frozenset(),
) -> Followed:
    """Return the state that derived memories get from their sources' state after a sweep; reads only.

    Args:
        bank: The bank.
        ids: All its memories.
        swept: New w and s of each memory that took part.
        trusted: Memories that a person looked at, see ``deciding``.
    """
    columns = bank.state.columns()
    gone = columns.gather(ids, "deleted") != 0.0
    # one without a row is not committed yet, and a row would make it visible
    derived = [
        i
        for i, deleted in zip(ids, gone, strict=True)
        if is_derived(i) and not deleted and i in columns.rows and can_have_state(i)
    ]
    records = bank.content.get(derived)
    quoted = {i: sources_of(records[i].metadata) if i in records else () for i in derived}
    states = _states(bank, sorted({source for sources in quoted.values() for source in sources}), swept)
    before = SweepState(*(columns.gather(derived, n) for n in ("weight", "suspicion", "consolidation")))
    reduced = [derived[row] for row in np.flatnonzero(before.weights < FULL)]
    granted = granted_weights(bank.state, reduced)
    weights, suspicion = np.empty(len(derived)), np.zeros(len(derived))
    lowest: list[str | None] = []
    for row, memory_id in enumerate(derived):
        sources = {source: states.get(source, _GONE) for source in quoted[memory_id]}
        if memory_id in trusted:
            sources = {source: state for source, state in sources.items() if state is _GONE}
        holding = {source: state.weight for source, state in sources.items() if state.holds}
        weights[row] = min([granted.get(memory_id, FULL), *holding.values()])
        suspicion[row] = max((state.suspicion for state in sources.values()), default=0.0)
        lowest.append(min(holding, key=holding.__getitem__) if holding else None)
    return Followed(derived, before, weights, suspicion, lowest)


def starting_state(bank: MemoryBank, quoted: Sequence[Sequence[str]]) -> dict[str, list[float]]:
    """Return w and s of D new derived memories, D values each: what a sweep would make of them.

    Args:
        bank: The bank.
        quoted: The sources of each.
    """
    states = _states(bank, sorted({source for sources in quoted for source in sources}), {})
    found = [[states.get(source, _GONE) for source in sources] for sources in quoted]
    start = bank.state.unseen_weight
    return {
        "weight": [min([start, *(s.weight for s in sources if s.holds)]) for sources in found],
        "suspicion": [max((s.suspicion for s in sources), default=0.0) for sources in found],
    }


def granted_weights(state: BankState, ids: Sequence[str]) -> dict[str, float]:
    """Return the weight that the last run other than a sweep gave each memory; 1 where there was none.

    What a quarantine gave counts as 1: it says nothing about the memory.
    """
    found = dict.fromkeys(ids, FULL)
    if not ids:
        return found
    with reading(state.engine) as connection:
        query = (
            select(changes.c.memory_id, changes.c.after, runs.c.kind)
            .join(runs, runs.c.run_id == changes.c.run_id)
            .where(
                runs.c.bank_id == state.bank_id,
                runs.c.status == "applied",
                runs.c.kind.not_in(_NOT_GRANTING),
                changes.c.field == "weight",
                among(connection, changes.c.memory_id, list(ids)),
            )
            .order_by(runs.c.version)
        )
        for row in connection.execute(query):
            found[row.memory_id] = FULL if row.kind == "add" else float(row.after)
    return found


def _states(
    bank: MemoryBank, named: Sequence[str], swept: Mapping[str, tuple[float, float]]
) -> dict[str, _Source]:
    """Return the state of those sources that are there and not softly deleted."""
    columns = bank.state.columns()
    # also what another tenant owns: quoted across tenants it is neither gone nor without a state
    there = bank.content.existing(named)
    ids = [i for i, gone in zip(there, columns.gather(there, "deleted"), strict=True) if not gone]
    stored = zip(
        columns.gather(ids, "weight").tolist(), columns.gather(ids, "suspicion").tolist(), strict=True
    )
    now = {memory_id: swept.get(memory_id, old) for memory_id, old in zip(ids, stored, strict=True)}
    reduced = [memory_id for memory_id, (weight, _) in now.items() if weight < FULL]
    granted = granted_weights(bank.state, reduced)
    return {
        memory_id: _Source(
            weight, suspicion, holds=suspicion >= SUSPECT or weight < granted.get(memory_id, FULL)
        )
        for memory_id, (weight, suspicion) in now.items()
    }
