"""Tables of the state database, and how an engine for it is opened (design 5).

Knows SQL through SQLAlchemy Core; knows nothing of Chroma, of embeddings or of what the numbers mean.
SQLite (one file, write-ahead log) and PostgreSQL are supported, by the same code and the same tests.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from shared_core.errors import MissingExtraError, StateError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

SCHEMA_VERSION = 1
SQLITE_BUSY_SECONDS = 30.0

metadata = MetaData()

meta = Table("dream_meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text))

banks = Table(
    "dream_banks",
    metadata,
    Column("bank_id", Integer, primary_key=True, autoincrement=True),
    Column("collection", String(512), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False, default=0),
    Column("created_at", Float, nullable=False),
)

memories = Table(
    "dream_memories",
    metadata,
    Column("bank_id", Integer, primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("weight", Float(53), nullable=False),
    Column("suspicion", Float(53), nullable=False),
    Column("consolidation", Float(53), nullable=False),
    Column("deleted", Float(53), nullable=False),
    Column("successes", Float(53), nullable=False),
    Column("retrievals", Integer, nullable=False),
    Column("last_access", Float(53)),
    Column("changed_version", Integer, nullable=False),
    Index("dream_memories_changed", "bank_id", "changed_version"),
)

runs = Table(
    "dream_runs",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("bank_id", Integer, nullable=False),
    Column("scope", Text, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("status", String(16), nullable=False),
    Column("target", String(64)),
    Column("created_at", Float(53), nullable=False),
    Column("version", Integer, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("config", Text, nullable=False),
    Column("report", Text, nullable=False),
    Index("dream_runs_bank", "bank_id", "created_at"),
)

changes = Table(
    "dream_changes",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("field", String(16), primary_key=True),
    Column("before", Float(53), nullable=False),
    Column("after", Float(53), nullable=False),
    Index("dream_changes_memory", "memory_id", "field"),
)

contents = Table(
    "dream_contents",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("before", Text),
    Column("before_embedding", LargeBinary),
    Column("after", Text),
    Column("after_embedding", LargeBinary),
)

locks = Table(
    "dream_locks",
    metadata,
    Column("bank_id", Integer, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("token", String(64), nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("acquired_at", Float(53), nullable=False),
    Column("heartbeat_at", Float(53), nullable=False),
)


def open_engine(url: str | URL) -> Engine:
    """Open the state database and create its tables where they are missing.

    Args:
        url: A SQLAlchemy URL: ``sqlite:////path/file.sqlite3`` or ``postgresql://...``.

    Raises:
        StateError: The database cannot be reached, is corrupt, is of an unsupported kind, or was written
            by a newer version of this package.
        MissingExtraError: PostgreSQL is asked for and its driver is not installed.
    """
    try:
        engine = create_engine(_with_driver(url), pool_pre_ping=not str(url).startswith("sqlite"))
    except (ArgumentError, NoSuchModuleError) as error:
        raise StateError(f"state_url {str(url)!r} is not a database URL: {error}") from None
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "the PostgreSQL driver", "postgres") from None
    if engine.dialect.name not in {"sqlite", "postgresql"}:
        raise StateError(f"state_url names {engine.dialect.name!r}: use SQLite or PostgreSQL")
    if engine.dialect.name == "sqlite":
        _configure_sqlite(engine)
    try:
        _create_tables(engine)
        _check_version(engine)
    except SQLAlchemyError as error:
        engine.dispose()
        raise StateError(f"cannot open the state database {engine.url!r}: {_reason(error)}") from error
    except StateError:
        engine.dispose()
        raise
    return engine


def writing(engine: Engine) -> Engine:
    """Return the same engine whose transactions take the write lock at their start."""
    return engine.execution_options(dream_write=True)


def upsert(engine: Engine, table: Table) -> Any:
    """Return an INSERT of the engine's dialect that can say ON CONFLICT."""
    return (sqlite if engine.dialect.name == "sqlite" else postgresql).insert(table)


def _with_driver(url: str | URL) -> str | URL:
    # SQLAlchemy's default PostgreSQL driver is psycopg2; the extra brings psycopg 3
    text = url if isinstance(url, str) else None
    if text is not None:
        for prefix in ("postgresql://", "postgres://"):
            if text.startswith(prefix):
                return "postgresql+psycopg://" + text[len(prefix) :]
    return url


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
        # the driver's own implicit BEGIN comes too late to make read-then-write atomic
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {int(SQLITE_BUSY_SECONDS * 1000)}")
        connection.execute("PRAGMA journal_mode = WAL")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("dream_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _create_tables(engine: Engine) -> None:
    for attempt in range(3):
        try:
            with writing(engine).begin() as connection:
                for table in metadata.sorted_tables:
                    connection.execute(CreateTable(table, if_not_exists=True))
                    for index in table.indexes:
                        connection.execute(CreateIndex(index, if_not_exists=True))
            return
        except DBAPIError:
            # PostgreSQL's IF NOT EXISTS still collides when two processes create the same table at once
            if attempt == 2 or engine.dialect.name == "sqlite":
                raise


def _check_version(engine: Engine) -> None:
    query = select(meta.c.value).where(meta.c.key == "schema_version")
    with writing(engine).begin() as connection:
        found = connection.execute(query).scalar()
    if found is None:
        try:
            with writing(engine).begin() as connection:
                connection.execute(insert(meta).values(key="schema_version", value=str(SCHEMA_VERSION)))
        except IntegrityError:
            return _check_version(engine)
    elif int(found) > SCHEMA_VERSION:
        raise StateError(
            f"the state database has schema {found}, this version reads up to {SCHEMA_VERSION}: "
            "upgrade dream-memory"
        )
    return None


def _reason(error: SQLAlchemyError) -> str:
    original = getattr(error, "orig", None)
    return str(original or error).strip().splitlines()[0]
