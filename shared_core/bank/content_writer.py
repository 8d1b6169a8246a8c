"""Writing texts to the collection so that a crash at any instant loses nothing.

Adding needs no protocol: a record without a journal entry is simply a plain memory. Rewriting does: old
and new text are journalled as ``pending``, then Chroma is written, then the run becomes ``applied``. A run
found pending with nobody holding the lock is rolled back to the old text.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import insert, select, update

from shared_core.bank import intake, journal
from shared_core.bank.journal import ContentChange
from shared_core.bank.lock import adding_lock
from shared_core.bank.records import Record
from shared_core.bank.schema import banks, reading, runs, writing
from shared_core.bank.transaction import new_run_id
from shared_core.dynamics.geometry import SMALLEST_NORM
from shared_core.errors import BankLockedError, InvalidMemoryError, JournalError, MemoryNotFoundError
from shared_core.language.counting import counted
from shared_core.telemetry import told, traced

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.journal import Run
    from shared_core.bank.lock import BankLock
    from shared_core.bank.revision import Revision
    from shared_core.bank.state import BankState
    from shared_core.types import FloatArray, Metadata, Progress

SETTLE_SECONDS = 1.0
"""Before a rewriting is rolled back: a Chroma server may yet do what it was sent over a broken connection."""

logger = logging.getLogger(__name__)


class ContentWriter:
    """The one writer of a bank's texts."""

    def __init__(self, content: ChromaContent, state: BankState) -> None:
        self._content = content
        self._state = state

    @property
    def collection(self) -> str:
        """The collection's name."""
        return self._content.name

    def add(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadatas: Sequence[Metadata],
        embeddings: FloatArray,
        progress: Progress | None,
    ) -> Run:
        """Add new records and journal them; undoing the run deletes them softly.

        Raises:
            InvalidMemoryError: An id exists already, or an embedding is malformed; nothing was written then.
            DimensionMismatchError: The embeddings do not fit the collection.
        """
        # of two that add the same id, one must be told: Chroma would ignore it without a word
        state, shared = self._state, self._content.is_on_server()
        with adding_lock(state.engine, state.bank_id, self._content.key, shared=shared):
            if taken := self._content.existing(ids):
                raise InvalidMemoryError(
                    f"ids that exist already: {len(taken)}, such as {taken[0]!r}: use update"
                )
            intake.check_embeddings(embeddings, len(texts), self._content.dimension(), self._content.name)
            return self._add(ids, texts, metadatas, embeddings, progress)

    def _add(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadatas: Sequence[Metadata],
        embeddings: FloatArray,
        progress: Progress | None,
    ) -> Run:
        stored, since = 0, self._state.version()

        def count(stage: str, done: int, total: int) -> None:
            nonlocal stored
            stored = done
            if progress is not None:
                progress(stage, done, total)

        try:
            self._content.add(ids, texts, metadatas, embeddings, count)
        finally:
            if stored:
                with self._state.transaction("add") as run:
                    run.add(ids[:stored], since=since)
                    run.report = {"added": stored, "asked": len(ids)}
        return self._state.run(run.run_id)

    def update(self, memory_id: str, revision: Revision) -> Run:
        """Rewrite one record, from what it is once nobody else can rewrite it.

        Raises:
            MemoryNotFoundError: The memory is gone.
            InvalidMemoryError: What it would become cannot be stored.
            BankLockedError: A dreamer is at work.
        """
        with self._state.lock("update") as lock:
            self._recover()
            before = self._content.get([memory_id]).get(memory_id)
            old = self._content.get_embeddings([memory_id]).get(memory_id)
            if before is None or old is None:
                raise MemoryNotFoundError(
                    f"{memory_id!r} was removed from {self._content.name!r} meanwhile; nothing was changed"
                )
            after, new = revision.apply(before, old, self._content.name)
            change = ContentChange(memory_id, _plain(before), _bytes(old), _plain(after), _bytes(new))
            return self._run("update", [change], lock, target=None)

    @traced("dream.undo", told.undo, logged=True)
    def undo(self, run_id: str) -> Run:
        """Undo a run of texts or of state.

        Raises:
            JournalError: Unknown run, not applied, changed again since by us or another, or its memories
                have left the tenant.
            BankLockedError: A dreamer is at work.
        """
        journal.require_applied(self._state.run(run_id))
        with self._state.lock("undo") as lock:
            self._recover()
            run = self._state.run(run_id)
            journal.require_applied(run)
            self._require_tenant(run_id)
            with reading(self._state.engine) as connection:
                written = journal.read_contents(connection, run_id)
                if written:
                    journal.require_last(connection, run)
            if not written:
                return self._state.undo(run_id, lock)
            for change in written:
                if not self._holds(change):
                    raise JournalError(
                        f"the text of {change.memory_id!r} was changed again after run {run_id}, and not "
                        "through this bank: undoing would overwrite that"
                    )
            return self._run("undo", _reversed(written), lock, target=run)

    def recover(self) -> list[str]:
        """Roll back what a dead process left half written; returns the run ids. Live runs are left alone."""
        with reading(self._state.engine) as connection:
            if not journal.pending_runs(connection, self._state.bank_id, self._state.scope):
                return []
        try:
            with self._state.lock("recover", wait=0.0):
                return self._recover()
        except BankLockedError:
            logger.info("a pending run belongs to a process that is at work: left to it")
            return []

    # ---- inner

    def _require_tenant(self, run_id: str) -> None:
        """Refuse to touch a memory that another tenant owns by now."""
        if self._content.where is None:
            return
        with reading(self._state.engine) as connection:
            touched = journal.touched_ids(connection, run_id)
        left = set(touched).difference(self._content.matching(None, None, touched))
        if left:
            raise JournalError(
                f"gone from this tenant since run {run_id}: {counted(len(left), 'memory')}, such as "
                f"{min(left)!r}; only the bank without a filter can undo it"
            )

    def _run(self, kind: str, written: list[ContentChange], lock: BankLock, target: Run | None) -> Run:
        run_id = new_run_id()
        with writing(self._state.engine) as connection:
            lock.fence(connection)
            connection.execute(
                insert(runs).values(
                    run_id=run_id,
                    bank_id=self._state.bank_id,
                    # an undo belongs to whom its target belongs to
                    scope=self._state.scope if target is None else target.scope,
                    kind=kind,
                    status="pending",
                    target=None if target is None else target.run_id,
                    created_at=time.time(),
                    version=0,
                    changes=len(written),
                    config="{}",
                    report=json.dumps({"memories": [change.memory_id for change in written]}),
                )
            )
            journal.write_contents(connection, run_id, written)
        try:
            self._apply(written)
            self._finish(run_id, "applied", lock, target)
        except Exception:
            with suppress(Exception):  # the error itself matters more; opening the bank tries again
                self._recover(only=run_id)
            raise
        return self._state.run(run_id)

    def _apply(self, written: list[ContentChange]) -> None:
        for change in written:
            if change.after is not None and change.after_embedding is not None:
                self._content.replace(
                    _record(change.memory_id, change.after), np.frombuffer(change.after_embedding, np.float32)
                )

    def _holds(self, change: ContentChange) -> bool:
        """Tell whether the collection still holds what this change wrote."""
        current = self._content.get([change.memory_id]).get(change.memory_id)
        if current is None or change.after is None:
            return False
        # Chroma gives some floats back a last digit off, which digests do not tell apart
        wrote_it = _record(change.memory_id, change.after).digest == current.digest
        if not wrote_it and _plain(current) != change.after:
            return False
        if change.before != change.after:
            return True
        with self._content.anew() as content:
            stored = content.get_embeddings([change.memory_id])[change.memory_id]
        wrote = np.frombuffer(change.after_embedding or b"", np.float32)
        # Chroma normalises in cosine space, so only directions can be compared
        return len(wrote) == len(stored) and np.allclose(_direction(wrote), _direction(stored), atol=1e-5)

    def _finish(self, run_id: str, status: str, lock: BankLock | None, target: Run | None) -> None:
        bank = banks.c.bank_id == self._state.bank_id
        with writing(self._state.engine) as connection:
            connection.execute(update(banks).where(bank).values(version=banks.c.version + 1))
            version = connection.execute(select(banks.c.version).where(bank)).scalar_one()
            if lock is not None:
                lock.fence(connection)
            connection.execute(
                update(runs).where(runs.c.run_id == run_id).values(status=status, version=version)
            )
            if target is not None:
                journal.mark_undone(connection, target)

    def _recover(self, only: str | None = None) -> list[str]:
        if not self._pending(only):
            return []
        with writing(self._state.engine) as connection:
            # a commit that got no answer has come after this, or never does
            row = select(banks.c.bank_id).where(banks.c.bank_id == self._state.bank_id)
            connection.execute(row.with_for_update())
        pending = self._pending(only)
        if self._content.is_on_server():
            time.sleep(SETTLE_SECONDS)
        with reading(self._state.engine) as connection:
            contents = {run.run_id: journal.read_contents(connection, run.run_id) for run in pending}
        for run in pending:
            logger.warning("rolling back %s %s, which did not finish", run.kind, run.run_id)
            # what somebody else wrote meanwhile is theirs
            self._apply(_reversed([change for change in contents[run.run_id] if self._holds(change)]))
            self._finish(run.run_id, "aborted", None, None)
        return [run.run_id for run in pending]

    def _pending(self, only: str | None) -> list[Run]:
        with reading(self._state.engine) as connection:
            pending = journal.pending_runs(connection, self._state.bank_id, self._state.scope)
        return [run for run in pending if only in (None, run.run_id)]


def _record(memory_id: str, plain: dict[str, Any]) -> Record:
    return Record(memory_id, plain["text"], plain["metadata"])


def _plain(record: Record) -> dict[str, Any]:
    return {"text": record.text, "metadata": dict(record.metadata)}


def _bytes(embedding: FloatArray) -> bytes:
    return np.asarray(embedding, np.float32).tobytes()


def _direction(embedding: FloatArray) -> FloatArray:
    return embedding / max(float(np.linalg.norm(embedding)), SMALLEST_NORM)


def _reversed(written: list[ContentChange]) -> list[ContentChange]:
    return [
        ContentChange(c.memory_id, c.after, c.after_embedding, c.before, c.before_embedding) for c in written
    ]
