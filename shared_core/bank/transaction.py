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

from shared_core.bank.columns import DEFAULTS, FIELDS
from shared_core.bank.schema import banks, changes, memories, runs, upsert, writing

if TYPE_CHECKING:
    from shared_core.bank.lock import BankLock
    from shared_core.types import FloatArray

IN_CHUNK = 500
"""Ids per IN (...) list, below every database's limit of bound parameters."""


def new_run_id() -> str:
    """Return a short id that sorts by time of creation."""
    return f"{time.time_ns() // 1_000_000:011x}-{uuid.uuid4().hex[:6]}"


def read_rows(connection: Connection, bank_id: int, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the stored state row of each id that has one."""
    query = select(memories).where(memories.c.bank_id == bank_id)
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), IN_CHUNK):
        part = query.where(memories.c.memory_id.in_(ids[start : start + IN_CHUNK]))
        found.update((row.memory_id, dict(row._mapping)) for row in connection.execute(part))
    return found


@dataclass
class StateTransaction:
    """A run under construction; ``set`` as often as needed, everything is written when the block ends."""

    run_id: str
    version: int
    report: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    changes: int = 0
    connection: Connection = field(kw_only=True)
    _bank_id: int = field(kw_only=True)

    def read(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the stored row of each id that has one."""
        return read_rows(self.connection, self._bank_id, ids)

    def set(self, ids: Sequence[str], values: Mapping[str, Sequence[float] | FloatArray]) -> None:
        """Give fields new values, journalling those that differ from what is stored.

        Args:
            ids: Distinct memory ids.
            values: For each field of ``FIELDS``, one value per id.
        """
        stored = self.read(ids)
        after = {name: np.asarray(column, float).tolist() for name, column in values.items()}
        journal: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        for position, memory_id in enumerate(ids):
            row = stored.get(memory_id) or self._default_row(memory_id)
            differing = [name for name in after if row[name] != after[name][position]]
            for name in differing:
                journal.append(
                    {
                        "run_id": self.run_id,
                        "memory_id": memory_id,
                        "field": name,
                        "before": row[name],
                        "after": after[name][position],
                    }
                )
                row[name] = after[name][position]
            if differing:
                rows.append({**row, "changed_version": self.version})
        self._write(journal, rows)

    def add(self, ids: Sequence[str]) -> None:
        """Journal that memories came to be; undoing it deletes them softly."""
        stored = self.read(ids)
        revived = [{**row, "deleted": 0.0, "changed_version": self.version} for row in stored.values()]
        fresh = {"run_id": self.run_id, "field": "deleted", "before": 1.0, "after": 0.0}
        self._write([{**fresh, "memory_id": memory_id} for memory_id in ids], revived)

    def _default_row(self, memory_id: str) -> dict[str, Any]:
        return {
            **DEFAULTS,
            "bank_id": self._bank_id,
            "memory_id": memory_id,
            "retrievals": 0,
            "last_access": None,
        }

    def _write(self, journal: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
        if rows:
            statement = upsert(self.connection.engine, memories)
            replaced = {name: statement.excluded[name] for name in (*FIELDS, "changed_version")}
            self.connection.execute(
                statement.on_conflict_do_update(index_elements=["bank_id", "memory_id"], set_=replaced), rows
            )
        if journal:
            self.connection.execute(insert(changes), journal)
        self.changes += len(journal)


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
) -> Iterator[StateTransaction]:
    """Open a run; on leaving the block it is committed with its journal entry, on an error not at all.

    Raises:
        BankLockedError: ``lock`` was taken over by somebody else meanwhile.
    """
    with writing(engine).begin() as connection:
        # taking the new version first locks the bank's row: writers queue up, so what they read stays true
        connection.execute(
            update(banks).where(banks.c.bank_id == bank_id).values(version=banks.c.version + 1)
        )
        version = connection.execute(select(banks.c.version).where(banks.c.bank_id == bank_id)).scalar_one()
        if lock is not None:
            lock.fence(connection)
        run = StateTransaction(run_id or new_run_id(), version, connection=connection, _bank_id=bank_id)
        yield run
        connection.execute(
            insert(runs).values(
                run_id=run.run_id,
                bank_id=bank_id,
                scope=scope,
                kind=kind,
                status="applied",
                target=target,
                created_at=time.time(),
                version=version,
                changes=run.changes,
                config=json.dumps(run.config, sort_keys=True),
                report=json.dumps(run.report, sort_keys=True),
            )
        )
