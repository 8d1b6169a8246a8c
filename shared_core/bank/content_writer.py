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

from shared_core.bank import journal
from shared_core.bank.journal import ContentChange
from shared_core.bank.records import Record
from shared_core.bank.schema import banks, runs, writing
from shared_core.bank.transaction import new_run_id
from shared_core.dynamics.geometry import SMALLEST_NORM
from shared_core.errors import BankLockedError, JournalError

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.journal import Run
    from shared_core.bank.lock import BankLock
    from shared_core.bank.state import BankState
    from shared_core.types import FloatArray, Metadata, Progress

logger = logging.getLogger(__name__)


class ContentWriter:
    """The one writer of a bank's texts."""

    def __init__(self, content: ChromaContent, state: BankState) -> None:
        self._content = content
        self._state = state

    def add(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        metadatas: Sequence[Metadata],
        embeddings: FloatArray,
        progress: Progress | None,
    ) -> Run:
        """Add new records and journal them; undoing the run deletes them softly."""
        stored = 0

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
                    run.add(ids[:stored])
                    run.report = {"added": stored, "asked": len(ids)}
        return self._state.run(run.run_id)

    def update(self, before: Record, after: Record, embeddings: tuple[FloatArray, FloatArray]) -> Run:
        """Rewrite one record.

        Args:
            before: What is stored.
            after: What shall be stored, same id.
            embeddings: Of before and after, each of shape (d,).

        Raises:
            BankLockedError: A dreamer is at work.
        """
        change = ContentChange(
            before.id, _plain(before), _bytes(embeddings[0]), _plain(after), _bytes(embeddings[1])
        )
        with self._state.lock("update") as lock:
            self._recover()
            return self._run("update", [change], lock, target=None)

    def undo(self, run_id: str) -> Run | None:
        """Undo a run that rewrote texts; None where it rewrote none and the state alone can undo it.

        Raises:
            JournalError: Unknown run, not applied, or its text was changed again since, by us or another.
            BankLockedError: A dreamer is at work.
        """
        run = self._state.run(run_id)
        with self._state.engine.connect() as connection:
            written = journal.read_contents(connection, run_id)
        if not written:
            return None
        journal.require_applied(run)
        with self._state.lock("undo") as lock:
            self._recover()
            journal.require_applied(self._state.run(run_id))
            for change in written:
                if not self._holds(change):
                    raise JournalError(
                        f"the text of {change.memory_id!r} was changed again after run {run_id}: "
                        "undo the later change first"
                    )
            return self._run("undo", _reversed(written), lock, target=run_id)

    def recover(self) -> list[str]:
        """Roll back what a dead process left half written; returns the run ids. Live runs are left alone."""
        with self._state.engine.connect() as connection:
            if not journal.pending_runs(connection, self._state.bank_id, self._state.scope):
                return []
        try:
            with self._state.lock("recover", wait=0.0):
                return self._recover()
        except BankLockedError:
            logger.info("a pending run belongs to a process that is at work: left to it")
            return []

    # ---- inner

    def _run(self, kind: str, written: list[ContentChange], lock: BankLock, target: str | None) -> Run:
        run_id = new_run_id()
        with writing(self._state.engine).begin() as connection:
            lock.fence(connection)
            connection.execute(
                insert(runs).values(
                    run_id=run_id,
                    bank_id=self._state.bank_id,
                    scope=self._state.scope,
                    kind=kind,
                    status="pending",
                    target=target,
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
                record = Record(change.memory_id, change.after["text"], change.after["metadata"])
                self._content.replace(record, np.frombuffer(change.after_embedding, np.float32))

    def _holds(self, change: ContentChange) -> bool:
        """Tell whether the collection still holds what this change wrote."""
        current = self._content.get([change.memory_id]).get(change.memory_id)
        if current is None or _plain(current) != change.after:
            return False
        if change.before != change.after:
            return True
        with self._content.anew() as content:
            stored = content.get_embeddings([change.memory_id])[change.memory_id]
        wrote = np.frombuffer(change.after_embedding or b"", np.float32)
        # Chroma normalises in cosine space, so only directions can be compared
        return len(wrote) == len(stored) and np.allclose(_direction(wrote), _direction(stored), atol=1e-5)

    def _finish(self, run_id: str, status: str, lock: BankLock | None, target: str | None) -> None:
        bank = banks.c.bank_id == self._state.bank_id
        with writing(self._state.engine).begin() as connection:
            connection.execute(update(banks).where(bank).values(version=banks.c.version + 1))
            version = connection.execute(select(banks.c.version).where(bank)).scalar_one()
            if lock is not None:
                lock.fence(connection)
            connection.execute(
                update(runs).where(runs.c.run_id == run_id).values(status=status, version=version)
            )
            if target is not None:
                undone = journal.get_run(connection, self._state.bank_id, self._state.scope, target)
                journal.mark_undone(connection, undone)

    def _recover(self, only: str | None = None) -> list[str]:
        with self._state.engine.connect() as connection:
            pending = journal.pending_runs(connection, self._state.bank_id, self._state.scope)
            pending = [run for run in pending if only in (None, run.run_id)]
            contents = {run.run_id: journal.read_contents(connection, run.run_id) for run in pending}
        for run in pending:
            logger.warning("rolling back %s %s, which did not finish", run.kind, run.run_id)
            # what somebody else wrote meanwhile is theirs
            self._apply(_reversed([change for change in contents[run.run_id] if self._holds(change)]))
            self._finish(run.run_id, "aborted", None, None)
        return [run.run_id for run in pending]


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
