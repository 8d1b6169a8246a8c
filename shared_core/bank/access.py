"""How often and when memories were retrieved: counted in memory, written in batches, not journalled.

Retrieval never waits for a writer: ``record`` only counts, and reading adds what is not written yet.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, select

from shared_core.bank.columns import DEFAULTS, can_have_state
from shared_core.bank.schema import banks, bulk_insert, memories, upsert, writing
from shared_core.errors import StateError

ACCESS_BUFFER = 256
"""Distinct retrieved memories that are counted in memory before they are written in one go."""
ACCESS_SECONDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    """Retrievals of one memory that are not in the database yet."""

    retrievals: int = 0
    last_access: float = 0.0

    def __add__(self, other: Access) -> Access:
        return Access(self.retrievals + other.retrievals, max(self.last_access, other.last_access))


class AccessCounter:
    """Counts retrievals of one bank; safe for threads."""

    def __init__(self, engine: Engine, bank_id: int) -> None:
        self._engine = engine
        self._bank_id = bank_id
        self._counts: dict[str, Access] = {}
        self._guard = threading.Lock()
        self._one_writer = threading.Lock()
        self._since = time.monotonic()

    def record(self, ids: Iterable[str]) -> None:
        """Count one retrieval of each id; written in the background every few seconds."""
        once = Access(1, time.time())
        with self._guard:
            for memory_id in filter(can_have_state, ids):
                self._counts[memory_id] = self._counts.get(memory_id, Access()) + once
            due = len(self._counts) >= ACCESS_BUFFER or time.monotonic() - self._since > ACCESS_SECONDS
            if due:
                self._since = time.monotonic()
        if due:
            # a sweep that is committing holds SQLite's write lock; a reader must not wait for it
            threading.Thread(target=self.flush_quietly, name="dream-access", daemon=True).start()

    def pending(self, ids: Iterable[str]) -> dict[str, Access]:
        """Return what is counted and not written yet."""
        with self._guard:
            return {memory_id: self._counts[memory_id] for memory_id in ids if memory_id in self._counts}

    def flush(self) -> None:
        """Write the counts gathered so far.

        Raises:
            StateError: The database refused; the counts are kept for the next try.
        """
        with self._one_writer:
            with self._guard:
                batch = dict(self._counts)
            if not batch:
                return
            self._write(batch)
            with self._guard:
                for memory_id, written in batch.items():
                    left = self._counts.pop(memory_id)
                    if left.retrievals > written.retrievals:
                        self._counts[memory_id] = Access(
                            left.retrievals - written.retrievals, left.last_access
                        )

    def flush_quietly(self) -> None:
        """``flush``; a failure is logged."""
        try:
            self.flush()
        except StateError:
            logger.warning("access counts could not be written, kept for the next try", exc_info=True)

    def _write(self, batch: dict[str, Access]) -> None:
        statement = upsert(self._engine, memories)
        counted = {
            "retrievals": memories.c.retrievals + statement.excluded.retrievals,
            "last_access": statement.excluded.last_access,
        }
        columns: dict[str, list[Any]] = {
            "memory_id": list(batch),
            "retrievals": [access.retrievals for access in batch.values()],
            "last_access": [access.last_access for access in batch.values()],
        }
        constant = {**DEFAULTS, "bank_id": self._bank_id, "changed_version": 0}
        columns |= {name: [value] * len(batch) for name, value in constant.items()}
        with writing(self._engine) as connection:
            # the bank's row first, as every writer does: PostgreSQL would deadlock on rows in another order
            connection.execute(
                select(banks.c.version).where(banks.c.bank_id == self._bank_id).with_for_update()
            )
            bulk_insert(
                connection,
                statement.on_conflict_do_update(index_elements=["bank_id", "memory_id"], set_=counted),
                columns,
            )
