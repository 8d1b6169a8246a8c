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
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import Connection, Engine, Float, Row, cast, delete, extract, func, insert, select, update

from shared_core.bank.schema import SQLITE_BUSY_SECONDS, banks, locks, writing
from shared_core.errors import BankLockedError, StateError

STALE_SECONDS = 60.0
HEARTBEAT_SECONDS = 10.0
WAIT_SECONDS = 2.0
"""How long a short write waits for another one; a sweep takes longer and is reported instead."""
ADDING_SUFFIX = "-adding"
"""Of an empty file beside a state database in SQLite whose collection is on a server."""
_ADDING_CLASS = 0x44524541
"""Ours among the advisory locks of a PostgreSQL database; the other half of the key is the bank."""
_POLL_SECONDS = 0.02
_PROCESS = uuid.uuid4().hex[:16]
_given_back: set[str] = set()
"""Tokens of locks of this process whose rows could not be removed."""
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
        try:
            self._insert()
        except StateError:
            # a commit that got no answer may have been carried out: this process takes it over at once then
            _given_back.add(self._token)
            raise
        threading.Thread(target=self._beat, name="dream-lock-heartbeat", daemon=True).start()

    def _insert(self) -> None:
        with writing(self._engine) as connection:
            # serialises acquisitions on PostgreSQL; SQLite's write lock has done so already
            connection.execute(
                select(banks.c.bank_id).where(banks.c.bank_id == self._bank_id).with_for_update()
            )
            now = database_time(connection)
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
        """Give the lock back; releasing a lock that was taken over changes nothing.

        Where the database refuses, as on a full disk, that is logged: what was done under the lock is done,
        or has told why not. This process takes the lock over at once then, others by the stale heartbeat.
        """
        self._stop.set()
        try:
            with writing(self._engine) as connection:
                connection.execute(delete(locks).where(locks.c.token == self._token))
        except StateError:
            _given_back.add(self._token)
            logger.warning("the lock of %r could not be given back", self._purpose, exc_info=True)

    def _take_over(self, connection: Connection, row: Row[Any], now: float) -> None:
        if not is_dead(row, now):
            raise BankLockedError(
                f"another process is at work on this bank: {row.purpose!r} by pid {row.pid} on "
                f"{row.host}, since {now - row.acquired_at:.0f} s; wait for it, or end it"
            )
        logger.warning(
            "taking over the lock of %r, pid %d on %s, which is gone", row.purpose, row.pid, row.host
        )
        connection.execute(delete(locks).where(locks.c.token == row.token))

    def _renewal(self) -> Any:
        return update(locks).where(locks.c.token == self._token).values(heartbeat_at=_clock(self._engine))

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


@contextmanager
def adding_lock(engine: Engine, bank_id: int, collection: str, *, shared: bool) -> Iterator[None]:
    """Hold the lock under which memories are added: whoever adds the same id then sees it and is told.

    Nothing to do with the dreamer's lock: dreams and additions do not wait for each other.

    Args:
        engine: Of the state database.
        bank_id: The bank.
        collection: A key of the collection; within a process one lock serves all banks open on it.
        shared: Whether other processes may add too, as to a Chroma server.

    Raises:
        StateError: The database failed, or SQLite's lock was not had within ``SQLITE_BUSY_SECONDS``.
    """
    with _adding_guard:
        mine = _adding.setdefault(collection, threading.Lock())
    with mine, _adding_elsewhere(engine, bank_id) if shared else nullcontext():
        yield


@contextmanager
def _adding_elsewhere(engine: Engine, bank_id: int) -> Iterator[None]:
    """Exclude other processes; a lock whose owner died is free at once, for its connection is gone."""
    if engine.dialect.name == "sqlite":
        with _file_locked(f"{engine.url.database}{ADDING_SUFFIX}"):
            yield
        return
    with writing(engine) as connection:
        # asked for again and again: one long wait could not be told from a server that stands still
        had = select(func.pg_try_advisory_xact_lock(_ADDING_CLASS, bank_id))
        while not connection.execute(had).scalar_one():
            time.sleep(_POLL_SECONDS)
        yield


@contextmanager
def _file_locked(path: str) -> Iterator[None]:
    # a database of its own, so that no other write waits for an addition
    connection = sqlite3.connect(path, timeout=SQLITE_BUSY_SECONDS, isolation_level=None)
    try:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            raise StateError(
                f"another process adds memories, {path} is locked: {error}; try again, or use PostgreSQL"
            ) from None
        yield
    finally:
        connection.close()


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


def database_time(connection: Connection) -> float:
    """Return the Unix time by which heartbeats are judged, seconds: hosts' own clocks may disagree."""
    clock = _clock(connection.engine)
    return clock if isinstance(clock, float) else float(connection.execute(select(clock)).scalar_one())


def _clock(engine: Engine) -> Any:
    # SQLite is used by the processes of one host
    if engine.dialect.name == "sqlite":
        return time.time()
    return cast(extract("epoch", func.clock_timestamp()), Float(53))


def is_dead(row: Row[Any], now: float) -> bool:
    """Tell whether the owner of a lock's row is gone."""
    if now - row.heartbeat_at > STALE_SECONDS or row.token in _given_back:
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
    return _is_zombie(row.pid)


def _is_zombie(pid: int) -> bool:
    """Tell whether a process has ended and only waits for its parent to ask; known on Linux alone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False
