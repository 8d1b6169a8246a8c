"""The bank's version counter, read before every query and therefore as cheaply as the database allows."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import URL, Engine, select
from sqlalchemy.exc import SQLAlchemyError

from shared_core.bank import postgres_link
from shared_core.bank.schema import banks, reading

_QUERY = "SELECT version FROM dream_banks WHERE bank_id = %s"
_shared: WeakValueDictionary[URL, SharedConnection] = WeakValueDictionary()
_shared_guard = threading.Lock()


class SharedConnection:
    """A connection outside any transaction, which all banks of a process on one PostgreSQL share.

    One round trip per version; a pooled connection takes a second one to learn whether it still lives.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._connection: Any = None
        self._owner = 0

    def version(self, engine: Engine, bank_id: int) -> int | None:
        """Return a bank's version; None where another thread has the connection, or it is lost."""
        if not self._guard.acquire(blocking=False):
            return None
        try:
            if self._connection is None or self._owner != os.getpid():
                self._open(engine)
            cursor = self._connection.cursor()
            cursor.execute(_QUERY, (bank_id,))
            return int(cursor.fetchone()[0])
        except (engine.dialect.loaded_dbapi.Error, SQLAlchemyError, TypeError, ValueError):
            self.close()
            # those of the pool broke with it, and each would be waited for
            engine.dispose()
            return None
        finally:
            self._guard.release()

    def close(self) -> None:
        """Close the connection; a later ``version`` opens another."""
        connection, self._connection = self._connection, None
        # a forked child must not end its parent's
        if connection is not None and self._owner == os.getpid():
            with suppress(Exception):
                connection.close()

    def __del__(self) -> None:
        """Close the connection with the last bank."""
        self.close()

    def _open(self, engine: Engine) -> None:
        pooled = engine.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()
        if hasattr(connection, "answer_seconds"):
            connection.answer_seconds = postgres_link.PROBE_SECONDS
        self._connection, self._owner = connection, os.getpid()
        self._connection.rollback()
        self._connection.autocommit = True


class VersionReader:
    """Reads one bank's version; safe for threads and after a fork.

    SQLite answers in microseconds over a connection of its own, outside any transaction (which would pin
    the view, or keep the write-ahead log from shrinking). PostgreSQL is asked over a ``SharedConnection``,
    else without BEGIN and ROLLBACK.
    """

    def __init__(self, engine: Engine, bank_id: int) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._bank_id = bank_id
        self._query = select(banks.c.version).where(banks.c.bank_id == bank_id)
        self._guard = threading.Lock()
        self._connection: Any = None
        self._owner = 0
        self._shared: SharedConnection | None = None
        self._read = self._read_sqlite if engine.dialect.name == "sqlite" else self._read_postgres

    def read(self) -> int:
        """Return the version as last committed, by whatever process."""
        return self._read()

    def close(self) -> None:
        """Close the connection; a later ``read`` opens another."""
        with self._guard:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = self._shared = None

    def _read_postgres(self) -> int:
        shared = self._shared
        if shared is None:
            with _shared_guard:
                shared = self._shared = _shared.setdefault(self._engine.url, SharedConnection())
        version = shared.version(self._engine, self._bank_id)
        return self._read_any() if version is None else version

    def _read_any(self) -> int:
        with reading(self._engine) as connection:
            return int(connection.execute(self._query).scalar_one())

    def _read_sqlite(self) -> int:
        try:
            with self._guard:
                if self._connection is None or self._owner != os.getpid():
                    pooled = self._engine.raw_connection()
                    self._connection, self._owner = pooled.driver_connection, os.getpid()
                    pooled.detach()
                return int(
                    self._connection.execute(
                        "SELECT version FROM dream_banks WHERE bank_id = ?", (self._bank_id,)
                    ).fetchone()[0]
                )
        except (sqlite3.Error, SQLAlchemyError, TypeError, ValueError):
            return self._read_any()  # fails again, and says it as every other query does
