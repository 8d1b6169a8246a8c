"""One journalled change of a bank's state, applied whole or not at all (design 5).

Everything that changes a weight, suspicion, consolidation, soft deletion or success count passes through
here: the values before are read inside the same transaction, so ``undo`` can always put them back.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, Engine, insert, select, update

from shared_core.bank.columns import DEFAULTS, FIELDS, can_have_state
from shared_core.bank.deciding import FULL, TAKEN_BACK, write_decisions
from shared_core.bank.derived import is_derived
from shared_core.bank.schema import among, banks, bulk_insert, changes, memories, runs, upsert, writing
from shared_core.errors import InvalidMemoryError, StateError

if TYPE_CHECKING:
    from shared_core.bank.lock import BankLock
    from shared_core.types import FloatArray


def new_run_id() -> str:
    """Return a short id that sorts by time of creation."""
    return f"{time.time_ns() // 1_000_000:011x}-{uuid.uuid4().hex[:6]}"


def read_rows(
    connection: Connection, bank_id: int, ids: Sequence[str], unseen_weight: float = DEFAULTS["weight"]
) -> dict[str, dict[str, Any]]:
    """Return the stored state row of each id that has one.

    A row that holds nothing but counted retrievals has ``unseen_weight``: no run has touched that memory.

    Raises:
        StateError: A row holds what is no number.
    """
    ids = [memory_id for memory_id in ids if can_have_state(memory_id)]
    if not ids:
        return {}
    query = select(memories).where(
        memories.c.bank_id == bank_id, among(connection, memories.c.memory_id, ids)
    )
    names = list(memories.c.keys())
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute(query).all()]
    for row in rows:
        # SQLite keeps any type in any column
        if not all(isinstance(row[name], (int, float)) for name in FIELDS):
            raise StateError(f"the state of {row['memory_id']!r} was altered: it holds what is no number")
        if row["changed_version"] == 0:
            row["weight"] = unseen_weight
    return {row["memory_id"]: row for row in rows}


@dataclass
class StateTransaction:
    """A run under construction; ``set`` as often as needed, everything is written when the block ends."""

    run_id: str
    version: int
    scope: str
    """Whose run it is; an undo belongs to whom its target belongs to."""
    report: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    changes: int = 0
    connection: Connection = field(kw_only=True)
    _bank_id: int = field(kw_only=True)
    unseen_weight: float = field(default=DEFAULTS["weight"], kw_only=True)
    """w of a memory that no run has touched."""

    def read(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the stored row of each id that has one."""
        return read_rows(self.connection, self._bank_id, ids, self.unseen_weight)

    def set(self, ids: Sequence[str], values: Mapping[str, Sequence[float] | FloatArray]) -> None:
        """Give fields new values, journalling those that differ from what is stored.

        Args:
            ids: Distinct memory ids.
            values: For each field of ``FIELDS``, one value per id.
        """
        after = {name: np.asarray(column, float).tolist() for name, column in values.items()}
        self.assign(
            {i: dict(zip(after, row, strict=True)) for i, *row in zip(ids, *after.values(), strict=True)}
        )

    def assign(self, wanted: Mapping[str, Mapping[str, float]]) -> None:
        """``set``, given as the new fields of each memory; derived ones that no repair made stay invisible.

        Raises:
            InvalidMemoryError: The database cannot hold state for an id.
        """
        for memory_id in wanted:
            if not can_have_state(memory_id):
                raise InvalidMemoryError(f"id {memory_id!r} holds a null byte: there can be no state for it")
        stored = self.read(list(wanted))
        journal: list[tuple[str, str, float, float]] = []
        rows: list[dict[str, Any]] = []
        for memory_id, fields in wanted.items():
            if _unborn(memory_id, stored):
                continue
            row = stored.get(memory_id) or self._default_row(memory_id)
            differing = [
                (memory_id, name, row[name], new) for name, new in fields.items() if row[name] != new
            ]
            if differing:
                journal += differing
                rows.append({**row, **fields})
        self._write(journal, rows)

    def add(self, ids: Sequence[str], *, since: int) -> None:
        """Journal that memories came to be, with default state; undoing it deletes them softly.

        In a bank with quarantine they start at its weight, and have a row that says so.

        Args:
            ids: Of the memories.
            since: The version before they were stored. What has been done to them after it, such as feedback
                of another process that found them at once, stays.
        """
        stored = self.read(ids)
        start = {**DEFAULTS, "weight": self.unseen_weight}
        journal = [(memory_id, "deleted", 1.0, 0.0) for memory_id in ids]
        # state of a memory that had the same id and is gone from the collection
        old = {memory_id: row for memory_id, row in stored.items() if row["changed_version"] <= since}
        for memory_id, row in old.items():
            journal += [
                (memory_id, name, row[name], default)
                for name, default in start.items()
                if name != "deleted" and row[name] != default
            ]
        rows = [{**row, **start} for row in old.values()]
        # nor is what was decided about that one a word about this one
        taken_back, ended = dict.fromkeys(old, TAKEN_BACK), dict.fromkeys(old, FULL)
        write_decisions(self.connection, self._bank_id, self.run_id, digests=taken_back, weights=ended)
        if self.unseen_weight != DEFAULTS["weight"]:
            new = [memory_id for memory_id in ids if memory_id not in stored]
            journal += [(memory_id, "weight", DEFAULTS["weight"], self.unseen_weight) for memory_id in new]
            rows += [self._default_row(memory_id) for memory_id in new]
        self._write(journal, rows)

    def know(self, ids: Sequence[str]) -> int:
        """Give memories that no run has touched a row with default state; returns how many those are.

        Nothing about them changes, so nothing is journalled; a quarantine that begins later passes them by.
        """
        stored = self.read(ids)
        unknown = [
            {**(stored.get(memory_id) or self._default_row(memory_id)), **DEFAULTS}
            for memory_id in ids
            if can_have_state(memory_id)
            and stored.get(memory_id, {}).get("changed_version", 0) == 0
            and not _unborn(memory_id, stored)
        ]
        self._write([], unknown)
        return len(unknown)

    def create(self, ids: Sequence[str], values: Mapping[str, Sequence[float]]) -> None:
        """Journal that derived memories came to be, and give each its row: without one it is invisible.

        Args:
            ids: Of the memories.
            values: What their fields start at; nobody granted that, so it is not journalled.
        """
        start = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        self._write(
            [(memory_id, "deleted", 1.0, 0.0) for memory_id in ids],
            [{**self._default_row(i), **row} for i, row in zip(ids, start, strict=True)],
        )

    def _default_row(self, memory_id: str) -> dict[str, Any]:
        return {
            **DEFAULTS,
            "weight": self.unseen_weight,
            "bank_id": self._bank_id,
            "memory_id": memory_id,
            "retrievals": 0,
            "last_access": None,
        }

    def _write(self, journal: list[tuple[str, str, float, float]], rows: list[dict[str, Any]]) -> None:
        if rows:
            statement = upsert(self.connection.engine, memories)
            replaced = {name: statement.excluded[name] for name in (*FIELDS, "changed_version")}
            columns = {name: [row.get(name) for row in rows] for name in memories.c.keys()}  # noqa: SIM118
            columns["changed_version"] = [self.version] * len(rows)
            bulk_insert(
                self.connection,
                statement.on_conflict_do_update(index_elements=["bank_id", "memory_id"], set_=replaced),
                columns,
            )
        if journal:
            names = ("memory_id", "field", "before", "after")
            columns = dict(zip(names, map(list, zip(*journal, strict=True)), strict=True))
            bulk_insert(self.connection, insert(changes), {"run_id": [self.run_id] * len(journal), **columns})
        self.changes += len(journal)


def _unborn(memory_id: str, stored: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether an id is like a derived memory's, and no repair made it: any row would show it."""
    return is_derived(memory_id) and stored.get(memory_id, {}).get("changed_version", 0) == 0


@contextmanager
def state_transaction(
    engine: Engine,
    bank_id: int,
    scope: str,
    kind: str,
    *,
    lock: BankLock | None = None,
    target: str | None = None,
    run_id: str | None = None,
    parent: str | None = None,
    unseen_weight: float = DEFAULTS["weight"],
) -> Iterator[StateTransaction]:
    """Open a run; on leaving the block it is committed with its journal entry, on an error not at all.

    Raises:
        BankLockedError: ``lock`` was taken over by somebody else meanwhile.
        StateError: The database failed.
    """
    with writing(engine) as connection:
        # taking the new version first locks the bank's row: writers queue up, so what they read stays true
        connection.execute(
            update(banks).where(banks.c.bank_id == bank_id).values(version=banks.c.version + 1)
        )
        version = connection.execute(select(banks.c.version).where(banks.c.bank_id == bank_id)).scalar_one()
        if lock is not None:
            lock.fence(connection)
        run = StateTransaction(
            run_id or new_run_id(),
            version,
            scope,
            connection=connection,
            _bank_id=bank_id,
            unseen_weight=unseen_weight,
        )
        yield run
        connection.execute(
            insert(runs).values(
                run_id=run.run_id,
                bank_id=bank_id,
                scope=run.scope,
                kind=kind,
                status="applied",
                target=target,
                parent=parent,
                created_at=time.time(),
                version=version,
                changes=run.changes,
                config=json.dumps(run.config, sort_keys=True),
                report=json.dumps(run.report, sort_keys=True),
            )
        )
