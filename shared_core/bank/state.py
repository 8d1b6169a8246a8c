"""The state of one bank in SQL: columns, version, transactions, access statistics, journal.

Knows ids, never texts' meaning; the content lives in Chroma. One instance serves many threads; any number
of processes may share the database.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from shared_core.bank import journal
from shared_core.bank.access import Access, AccessCounter
from shared_core.bank.columns import DEFAULTS, FIELDS, Columns
from shared_core.bank.deciding import FULL, TAKEN_BACK, write_decisions
from shared_core.bank.edges import Edge, read_edges
from shared_core.bank.keys import RetrievalKey, read_keyed, read_keys
from shared_core.bank.lock import WAIT_SECONDS, BankLock, bank_lock, may_overlap
from shared_core.bank.schema import banks, locks, memories, open_engine, reading, writing
from shared_core.bank.transaction import StateTransaction, read_rows, state_transaction
from shared_core.bank.version import VersionReader
from shared_core.errors import InvalidMemoryError
from shared_core.types import MemoryState

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.engine import URL

    from shared_core.bank.journal import Run
    from shared_core.types import FloatArray

logger = logging.getLogger(__name__)
_STATE_FIELDS = tuple(item.name for item in fields(MemoryState))


class BankState:
    """Weights and journal of one bank, in SQLite or PostgreSQL.

    Args:
        url: SQLAlchemy URL of the state database.
        collection: A key that identifies the collection wherever it is opened from.
        name: A name for people.
        scope: Canonical JSON of the tenant's filter, "" for the whole collection.

    Raises:
        StateError: The database cannot be opened.
    """

    def __init__(self, url: str | URL, *, collection: str, name: str, scope: str = "") -> None:
        self.engine = open_engine(url)
        self.scope = scope
        self.bank_id = self._register(collection, name)
        self.unseen_weight = DEFAULTS["weight"]
        self._columns = Columns()
        self._refreshing = threading.Lock()
        self._version = VersionReader(self.engine, self.bank_id)
        self._access = AccessCounter(self.engine, self.bank_id)
        # counts are written at interpreter exit too, without keeping the state alive until then
        self._closer = weakref.finalize(self, _close, self.engine, self._version, self._access)

    # ---- reading

    def version(self) -> int:
        """Return the bank's version; it grows with every change, by whatever process."""
        return self._version.read()

    def columns(self) -> Columns:
        """Return the current state of all memories, re-reading only what changed since the last call."""
        if (known := self._columns).version == self._version.read():
            return known
        with self._refreshing, reading(self.engine) as connection:
            version = connection.execute(self._version_query()).scalar_one()
            known = self._columns
            if version < known.version:
                # restored from a backup: what was seen since never happened
                known = Columns(unseen_weight=self.unseen_weight)
            if version != known.version:
                changed = connection.execute(
                    select(memories.c.memory_id, *(memories.c[name] for name in FIELDS)).where(
                        memories.c.bank_id == self.bank_id,
                        # 0: nothing but counted retrievals
                        memories.c.changed_version > max(known.version, 0),
                    )
                ).all()
                self._columns = known.updated(version, changed)
            return self._columns

    def weights(self, ids: Sequence[str]) -> FloatArray:
        """Return the effective weight of each id, shape (len(ids),); 1 where nothing is known."""
        return self.columns().effective_weights(ids)

    def get(self, ids: Sequence[str]) -> list[MemoryState]:
        """Return the full state of each id."""
        pending = self._access.pending(ids)
        with reading(self.engine) as connection:
            stored = read_rows(connection, self.bank_id, ids, self.unseen_weight)
        unseen = {name: getattr(MemoryState(weight=self.unseen_weight), name) for name in _STATE_FIELDS}
        return [_memory_state(stored.get(memory_id, unseen), pending.get(memory_id)) for memory_id in ids]

    def known_ids(self) -> set[str]:
        """Return the ids that have a row; the others have default state."""
        return set(self.columns().rows)

    def rewritten_since(self, version: int) -> list[str]:
        """Return the memories whose texts our own runs rewrote after a version."""
        with reading(self.engine) as connection:
            return journal.rewritten_since(connection, self.bank_id, version)

    def kinds_since(self, version: int) -> set[str]:
        """Return the kinds of the runs that anybody journalled after a version."""
        with reading(self.engine) as connection:
            return journal.kinds_since(connection, self.bank_id, version)

    # ---- writing

    def start_unseen_at(self, weight: float) -> None:
        """Give every memory that no run has touched this weight, from now on, in this process."""
        with self._refreshing:
            if weight != self.unseen_weight:
                self.unseen_weight = weight
                self._columns = Columns(unseen_weight=weight)

    def lock(self, purpose: str, *, wait: float = WAIT_SECONDS) -> AbstractContextManager[BankLock]:
        """Return a context manager that holds the bank's lock.

        Raises:
            BankLockedError: On entering, when a live owner holds it and still does after ``wait`` seconds.
        """
        return bank_lock(self.engine, self.bank_id, self.scope, purpose, wait=wait)

    def lock_holder(self) -> str | None:
        """Tell who holds this bank's lock, for people; None where nobody does."""
        query = select(locks).where(locks.c.bank_id == self.bank_id).order_by(locks.c.acquired_at)
        with reading(self.engine) as connection:
            held = [row for row in connection.execute(query) if may_overlap(row.scope, self.scope)]
        return f"{held[0].purpose} by pid {held[0].pid} on {held[0].host}" if held else None

    @contextmanager
    def transaction(
        self,
        kind: str,
        *,
        lock: BankLock | None = None,
        target: str | None = None,
        run_id: str | None = None,
        parent: str | None = None,
    ) -> Iterator[StateTransaction]:
        """Open one journalled run; it is committed whole when the block ends without an error.

        Args:
            kind: See ``Run.kind``.
            lock: Where the caller holds the bank's lock.
            target: The run that this one undoes.
            run_id: Chosen beforehand; default: a new one.
            parent: The dream cycle that this run belongs to.
        """
        with state_transaction(
            self.engine,
            self.bank_id,
            self.scope,
            kind,
            lock=lock,
            target=target,
            run_id=run_id,
            parent=parent,
            unseen_weight=self.unseen_weight,
        ) as transaction:
            yield transaction

    def delete(self, ids: Sequence[str]) -> Run:
        """Delete memories softly, as one run that can be undone."""
        with self.transaction("delete") as run:
            run.set(ids, {"deleted": [1.0] * len(ids)})
        return self.run(run.run_id)

    def set_weights(self, weights: Mapping[str, float]) -> Run:
        """Give memories new weights by hand, as one run that can be undone; they never recover above these.

        Raises:
            InvalidMemoryError: A weight is not a number in [0, 1].
            BankLockedError: A dreamer is at work.
        """
        for memory_id, weight in weights.items():
            if not isinstance(weight, (int, float, np.number)) or not 0.0 <= weight <= 1.0:
                raise InvalidMemoryError(f"weight {weight!r} of {memory_id!r} is outside [0, 1]")
        with self.lock("reweight") as lock, self.transaction("reweight", lock=lock) as run:
            run.set(list(weights), {"weight": list(weights.values())})
            ceilings = {memory_id: float(weight) for memory_id, weight in weights.items()}
            write_decisions(run.connection, self.bank_id, run.run_id, weights=ceilings)
        return self.run(run.run_id)

    def restore(self, digests: Mapping[str, str]) -> Run:
        """Give memories their full weight back, w = 1, s = 0, not deleted, and trust them from now on.

        Args:
            digests: ``Record.digest`` of each memory: what is trusted is what was looked at.

        Raises:
            BankLockedError: A dreamer is at work.
        """
        ids = list(digests)
        names = ("weight", "suspicion", "deleted")
        with self.lock("restore") as lock, self.transaction("restore", lock=lock) as run:
            run.set(ids, {name: [DEFAULTS[name]] * len(ids) for name in names})
            ceilings = dict.fromkeys(ids, FULL)
            write_decisions(run.connection, self.bank_id, run.run_id, digests=digests, weights=ceilings)
            run.report = {"memories": len(ids), "first": ids[0] if ids else None}
        return self.run(run.run_id)

    def distrust(self, ids: Sequence[str]) -> Run:
        """Let sweeps judge memories again that were restored; their weights stay as they are until then.

        Raises:
            BankLockedError: A dreamer is at work.
        """
        with self.lock("distrust") as lock, self.transaction("distrust", lock=lock) as run:
            taken_back = dict.fromkeys(ids, TAKEN_BACK)
            write_decisions(run.connection, self.bank_id, run.run_id, digests=taken_back)
            run.report = {"memories": len(taken_back), "first": next(iter(taken_back), None)}
        return self.run(run.run_id)

    # ---- access statistics

    def record_access(self, ids: Iterable[str]) -> None:
        """Count one retrieval of each id; written in the background every few seconds, and on close."""
        self._access.record(ids)

    def flush(self) -> None:
        """Write the access counts gathered so far.

        Raises:
            StateError: The database refused; the counts are kept for the next try.
        """
        self._access.flush()

    @property
    def closed(self) -> bool:
        """Tell whether ``close`` was called."""
        return not self._closer.alive

    def close(self) -> None:
        """Write what is buffered and let the database go; the object is not usable afterwards."""
        self._closer()

    # ---- journal

    def runs(
        self, limit: int | None = None, *, kinds: Collection[str] | None = None, whole: bool = False
    ) -> list[Run]:
        """Return this bank's runs, newest first, ``whole``: without cycles' repairs."""
        with reading(self.engine) as connection:
            return journal.list_runs(connection, self.bank_id, self.scope, limit, kinds, whole=whole)

    def run(self, run_id: str) -> Run:
        """Return one run.

        Raises:
            JournalError: There is no such run in this bank.
        """
        with reading(self.engine) as connection:
            return journal.get_run(connection, self.bank_id, self.scope, run_id)

    def undo(self, run_id: str, lock: BankLock | None = None) -> Run:
        """Undo a run; the undo is itself a run, and undoing that is a redo.

        Args:
            run_id: The run.
            lock: Where the caller holds it already.

        Raises:
            JournalError: Unknown run, already undone, or changed again by later runs.
            BankLockedError: A dreamer is at work.
        """
        with (
            nullcontext(lock) if lock else self.lock("undo") as held,
            self.transaction("undo", lock=held, target=run_id) as transaction,
        ):
            self.revert(transaction, run_id)
        return self.run(transaction.run_id)

    def revert(self, transaction: StateTransaction, run_id: str) -> Run:
        """Undo a run inside an open transaction of kind ``undo``; returns the run as it was."""
        connection = transaction.connection
        target = journal.get_run(connection, self.bank_id, self.scope, run_id)
        transaction.scope = target.scope
        children = journal.applied_children(connection, target)
        journal.require_applied(target)
        journal.revert(transaction, connection, [*children, target])
        journal.mark_undone(connection, target)
        transaction.report = {"undone": target.run_id, "kind": target.kind}
        if children:
            transaction.report["children"] = [child.run_id for child in children]
        return target

    def amend_report(self, run_id: str, report: Mapping[str, Any]) -> None:
        """Complete the report of a run that went on after it was journalled, such as a dream cycle."""
        with writing(self.engine) as connection:
            journal.amend_report(connection, self.bank_id, run_id, report)

    def edges(self) -> list[Edge]:
        """Return the explicit edges of the memory graph, those of undone repairs left out."""
        with reading(self.engine) as connection:
            return read_edges(connection, self.bank_id)

    def retrieval_keys(self) -> list[RetrievalKey]:
        """Return the retrieval keys that repairs wrote, those of undone repairs left out."""
        with reading(self.engine) as connection:
            return read_keys(connection, self.bank_id)

    def keyed_ids(self) -> list[str]:
        """Return the memory of each retrieval key, once per key."""
        with reading(self.engine) as connection:
            return read_keyed(connection, self.bank_id)

    # ---- inner

    def _version_query(self) -> Any:
        return select(banks.c.version).where(banks.c.bank_id == self.bank_id)

    def _register(self, collection: str, name: str) -> int:
        query = select(banks.c.bank_id).where(banks.c.collection == collection)
        with reading(self.engine) as connection:
            found = connection.execute(query).scalar()
        if found is not None:
            return int(found)
        with writing(self.engine) as connection:
            try:
                with connection.begin_nested():
                    connection.execute(
                        insert(banks).values(
                            collection=collection, name=name, version=0, created_at=time.time()
                        )
                    )
            except IntegrityError:
                logger.debug("bank %r was registered by another process meanwhile", name)
        with reading(self.engine) as connection:
            return int(connection.execute(query).scalar_one())


def _memory_state(row: dict[str, Any], pending: Access | None) -> MemoryState:
    values = {name: row[name] for name in _STATE_FIELDS}
    state = MemoryState(**{**values, "deleted": bool(row["deleted"])})
    if pending is None:
        return state
    return replace(state, retrievals=state.retrievals + pending.retrievals, last_access=pending.last_access)


def _close(engine: Engine, version: VersionReader, access: AccessCounter) -> None:
    access.flush_quietly()
    version.close()
    engine.dispose()
