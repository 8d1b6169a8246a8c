"""The bank's version counter, read before every query and therefore as cheaply as the database allows."""

from __future__ import annotations

import os
import sqlite3
import threading
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from shared_core.bank.schema import banks, reading


class VersionReader:
    """Reads one bank's version; safe for threads and after a fork.

    SQLite answers in microseconds over a connection of its own, outside any transaction (which would pin
    the view, or keep the write-ahead log from shrinking). PostgreSQL is asked without BEGIN and ROLLBACK.
    """

    def __init__(self, engine: Engine, bank_id: int) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._bank_id = bank_id
        self._query = select(banks.c.version).where(banks.c.bank_id == bank_id)
        self._guard = threading.Lock()
        self._connection: Any = None
        self._owner = 0
        self._read = self._read_sqlite if engine.dialect.name == "sqlite" else self._read_any

    def read(self) -> int:
        """Return the version as last committed, by whatever process."""
        return self._read()

    def close(self) -> None:
        """Close the connection; a later ``read`` opens another."""
        with self._guard:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

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
