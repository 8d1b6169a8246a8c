"""What the journal says of many memories and of whole runs, in few queries; reads only.

For whoever shows a bank to people. Texts are as they were written: hostile until escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select, union

from shared_core.bank.journal import read_contents
from shared_core.bank.schema import among, changes, contents, keys, reading, runs

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from shared_core.bank.state import BankState


@dataclass(frozen=True, kw_only=True)
class WeightChange:
    """One memory's weight before and after a run."""

    memory_id: str
    run_id: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class TextChange:
    """One memory's text before and after a run; None where the run added or removed it, or left it alone."""

    memory_id: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class WrittenKey:
    """One retrieval key that a run wrote."""

    memory_id: str
    kind: str
    text: str


def last_lowerings(state: BankState, ids: Sequence[str]) -> dict[str, WeightChange]:
    """Return the last run that lowered each memory's weight and still holds; nothing for those never lowered.

    An undo only brings back what an earlier run did: it is no reason of its own.
    """
    if not ids:
        return {}
    query = select(changes.c.memory_id, changes.c.run_id, changes.c.before, changes.c.after)
    query = query.join(runs, runs.c.run_id == changes.c.run_id).where(
        *_of_bank(state),
        runs.c.status == "applied",
        runs.c.kind != "undo",
        changes.c.field == "weight",
        changes.c.after < changes.c.before,
    )
    with reading(state.engine) as connection:
        query = query.where(among(connection, changes.c.memory_id, ids)).order_by(runs.c.version)
        rows = connection.execute(query)
        return {row.memory_id: WeightChange(**row._mapping) for row in rows}


def touched(state: BankState, run_id: str, limit: int) -> tuple[int, list[str]]:
    """Return how many memories a run changed, texts and state alike, and the first of their ids."""
    ids = union(*(select(table.c.memory_id).where(table.c.run_id == run_id) for table in (changes, contents)))
    found = ids.subquery()
    with reading(state.engine) as connection:
        count = connection.execute(select(func.count()).select_from(found)).scalar_one()
        query = select(found.c.memory_id).order_by(found.c.memory_id).limit(limit)
        return int(count), list(connection.execute(query).scalars())


def weight_changes(state: BankState, run_id: str, limit: int) -> tuple[int, list[WeightChange]]:
    """Return how many weights a run changed, and the most lowered ones."""
    of_run = (changes.c.run_id == run_id, changes.c.field == "weight")
    query = select(changes.c.memory_id, changes.c.run_id, changes.c.before, changes.c.after).where(*of_run)
    query = query.order_by(changes.c.after - changes.c.before, changes.c.memory_id).limit(limit)
    with reading(state.engine) as connection:
        count = connection.execute(select(func.count()).select_from(changes).where(*of_run)).scalar_one()
        return int(count), [WeightChange(**row._mapping) for row in connection.execute(query)]


def text_changes(state: BankState, run_id: str) -> list[TextChange]:
    """Return the texts that a run rewrote; metadata and embeddings are left out."""
    with reading(state.engine) as connection:
        found = read_contents(connection, run_id)
    return [
        TextChange(
            memory_id=change.memory_id,
            before=None if change.before is None else str(change.before.get("text", "")),
            after=None if change.after is None else str(change.after.get("text", "")),
        )
        for change in found
    ]


def keys_written(state: BankState, run_id: str, limit: int) -> list[WrittenKey]:
    """Return the first retrieval keys that a run wrote, whether it still holds or not."""
    query = select(keys.c.memory_id, keys.c.kind, keys.c.text)
    query = query.where(keys.c.bank_id == state.bank_id, keys.c.run_id == run_id)
    with reading(state.engine) as connection:
        rows = connection.execute(query.order_by(keys.c.number).limit(limit))
        return [WrittenKey(**row._mapping) for row in rows]


def counts_by_kind(state: BankState) -> dict[str, int]:
    """Return how many runs of each kind the journal holds, whatever became of them."""
    query = select(runs.c.kind, func.count()).where(*_of_bank(state)).group_by(runs.c.kind)
    with reading(state.engine) as connection:
        return {kind: int(count) for kind, count in connection.execute(query.order_by(runs.c.kind))}


def _of_bank(state: BankState) -> list[ColumnElement[bool]]:
    """Return the conditions on the runs that this bank, or this tenant of it, may see."""
    mine = [runs.c.bank_id == state.bank_id]
    return [*mine, runs.c.scope == state.scope] if state.scope else mine
