"""One dreamer at a time: a lock row in the state database, with owner and heartbeat (design 5).

A lock whose owner died is taken over: at once where the process ran on this host and is gone, else when
its heartbeat is older than ``STALE_SECONDS``. Locks of tenants that cannot share a memory do not exclude
each other. Readers never look at it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from shared_core.bank.schema import banks, locks, writing
from shared_core.errors import BankLockedError, StateError

STALE_SECONDS = 60.0
HEARTBEAT_SECONDS = 10.0
WAIT_SECONDS = 2.0
"""How long a short write waits for another one; a sweep takes longer and is reported instead."""
_POLL_SECONDS = 0.02
_PROCESS = uuid.uuid4().hex[:16]
_adding: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_adding_guard = threading.Lock()

logger = logging.getLogger(__name__)


class BankLock:
    """A held lock; ``fence`` proves inside a transaction that it is still ours."""

    def __init__(self, engine: Engine, bank_id: int, scope: str, purpose: str) -> None:
        self._engine = engine
        self._bank_id = bank_id
        self._scope = scope
        self._purpose = purpose
        self._token = f"{_PROCESS}-{uuid.uuid4().hex}"
        self._stop = threading.Event()

    def acquire(self) -> None:
        """Take the lock, or take it over from a dead owner.

        Raises:
            BankLockedError: A live owner holds this bank, or a tenant that may overlap with this one.
        """
        now = time.time()
        with writing(self._engine) as connection:
            # serialises acquisitions on PostgreSQL; SQLite's write lock has done so already
            connection.execute(
                select(banks.c.bank_id).where(banks.c.bank_id == self._bank_id).with_for_update()
            )
            held = connection.execute(select(locks).where(locks.c.bank_id == self._bank_id)).all()
            for row in held:
                if may_overlap(row.scope, self._scope):
                    self._take_over(connection, row, now)
            connection.execute(
                insert(locks).values(
                    bank_id=self._bank_id,
                    scope=self._scope,
                    token=self._token,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    purpose=self._purpose,
                    acquired_at=now,
                    heartbeat_at=now,
                )
            )
        threading.Thread(target=self._beat, name="dream-lock-heartbeat", daemon=True).start()

    def fence(self, connection: Connection) -> None:
        """Refuse to write when the lock was taken over meanwhile.

        Raises:
            BankLockedError: Another owner holds the lock now; nothing may be written.
        """
        renewed = connection.execute(self._renewal())
        if renewed.rowcount != 1:
            raise BankLockedError(
                f"the lock for {self._purpose!r} was taken over by another process while this one "
                "stood still: nothing was written, run it again"
            )

    def release(self) -> None:
        """Give the lock back; releasing a lock that was taken over changes nothing."""
        self._stop.set()
        with writing(self._engine) as connection:
            connection.execute(delete(locks).where(locks.c.token == self._token))

    def _take_over(self, connection: Connection, row: Row[Any], now: float) -> None:
        if not _is_dead(row, now):
            raise BankLockedError(
                f"another process is at work on this bank: {row.purpose!r} by pid {row.pid} on "
                f"{row.host}, since {now - row.acquired_at:.0f} s; wait for it, or end it"
            )
        logger.warning(
            "taking over the lock of %r, pid %d on %s, which is gone", row.purpose, row.pid, row.host
        )
        connection.execute(delete(locks).where(locks.c.token == row.token))

    def _renewal(self) -> Any:
        return update(locks).where(locks.c.token == self._token).values(heartbeat_at=time.time())

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            try:
                with writing(self._engine) as connection:
                    connection.execute(self._renewal())
            except StateError:
                # the fence decides at commit; a missed beat alone is not a failure
                logger.warning("heartbeat of the bank's lock failed", exc_info=True)


@contextmanager
def bank_lock(
    engine: Engine, bank_id: int, scope: str, purpose: str, *, wait: float = 0.0
) -> Iterator[BankLock]:
    """Hold the bank's lock for a block.

    Raises:
        BankLockedError: A live owner holds it, and still does after ``wait`` seconds.
    """
    lock = BankLock(engine, bank_id, scope, purpose)
    deadline = time.monotonic() + wait
    while True:
        try:
            lock.acquire()
            break
        except BankLockedError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
    try:
        yield lock
    finally:
        lock.release()


def adding_lock(collection: str) -> threading.Lock:
    """Return the lock under which this process adds to a collection, however many banks are open on it."""
    with _adding_guard:
        return _adding.setdefault(collection, threading.Lock())


def may_overlap(one: str, other: str) -> bool:
    """Tell whether two scopes (canonical JSON filters, "" for all) might share a memory.

    Two plain equality filters that demand different values of the same key cannot.
    """
    if one == other or not one or not other:
        return True
    a, b = json.loads(one), json.loads(other)
    return not any(
        key in b and not key.startswith("$") and _is_plain(value) and _is_plain(b[key]) and value != b[key]
        for key, value in a.items()
    )


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool))


def _is_dead(row: Row[Any], now: float) -> bool:
    if now - row.heartbeat_at > STALE_SECONDS:
        return True
    if row.host != socket.gethostname():
        return False
    if row.pid == os.getpid():
        # a container that died and was started again has the same host and pid
        return not str(row.token).startswith(_PROCESS)
    try:
        os.kill(row.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
