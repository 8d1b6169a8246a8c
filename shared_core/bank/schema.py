"""Tables of the state database, and how an engine for it is opened (design 5).

Knows SQL through SQLAlchemy Core; knows nothing of Chroma, of embeddings or of what the numbers mean.
SQLite (one file, write-ahead log) and PostgreSQL are supported, by the same code and the same tests.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    cast,
    create_engine,
    event,
    func,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from shared_core.bank.postgres_link import connect_arguments, limit_waiting
from shared_core.bank.state_url import parse_url, reason_of, shown_url
from shared_core.errors import DreamError, MissingExtraError, StateError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 4
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
    sqlite_with_rowid=False,
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
    Column("parent", String(64)),
    Index("dream_runs_bank", "bank_id", "created_at"),
    Index("dream_runs_parent", "parent"),
)

changes = Table(
    "dream_changes",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("field", String(16), primary_key=True),
    Column("before", Float(53), nullable=False),
    Column("after", Float(53), nullable=False),
    sqlite_with_rowid=False,
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

edges = Table(
    "dream_edges",
    metadata,
    Column("bank_id", Integer, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("run_id", String(64), primary_key=True),
    Index("dream_edges_run", "run_id"),
)

keys = Table(
    "dream_keys",
    metadata,
    Column("bank_id", Integer, primary_key=True),
    Column("run_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("memory_id", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("text", Text, nullable=False),
    Column("embedding", LargeBinary),
)

decisions = Table(
    "dream_decisions",
    metadata,
    Column("bank_id", Integer, primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("run_id", String(64), primary_key=True),
    # of either, NULL: the run said nothing about it
    Column("digest", String(64)),
    Column("weight", Float(53)),
    sqlite_with_rowid=False,
)

tiers = Table(
    "dream_tiers",
    metadata,
    Column("bank_id", Integer, primary_key=True),
    Column("memory_id", Text, primary_key=True),
    Column("tier", String(8), nullable=False),
    Column("session", Text, nullable=False),
    Column("since", Float(53), nullable=False),
    # whole, or SQLite would rather walk all tiers by the primary key
    Index("dream_tiers_session", "bank_id", "tier", "session", "since"),
    sqlite_with_rowid=False,
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
    parsed = parse_url(url)
    try:
        engine = create_engine(
            parsed,
            pool_pre_ping=parsed.get_backend_name() != "sqlite",
            connect_args=connect_arguments(parsed),
        )
    except NoSuchModuleError as error:
        raise StateError(f"state_url {shown_url(parsed)} names an unknown driver: {error}") from None
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "the PostgreSQL driver", "postgres") from None
    except (SQLAlchemyError, ValueError, TypeError) as error:
        # an option such as ?timeout=x is read here, without a message of SQLAlchemy's own
        raise StateError(
            f"state_url {shown_url(parsed)} has a bad option: {reason_of(error, parsed)}"
        ) from None
    if engine.dialect.name == "sqlite":
        _configure_sqlite(engine)
    limit_waiting(engine)
    try:
        _prepare(engine)
    except (SQLAlchemyError, ValueError, TypeError) as error:
        engine.dispose()
        # without the cause: SQLAlchemy's own message quotes parameters
        raise StateError(
            f"cannot open the state database {shown_url(parsed)}: {reason_of(error, parsed)}"
        ) from None
    except StateError:
        engine.dispose()
        raise
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection to read and decode from.

    Raises:
        StateError: The database failed, or holds what this package never wrote.
    """
    try:
        with _translated(engine), engine.connect() as connection:
            yield connection
    except DreamError:
        raise
    except (ValueError, TypeError) as error:
        # SQLite keeps any type in any column, and reports are JSON: what was altered fails when decoded
        raise StateError(
            f"the state database {shown_url(engine.url)} was altered: {reason_of(error, engine.url)}"
        ) from None


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that takes the write lock at its start.

    Raises:
        StateError: The database failed; nothing was written.
    """
    with _translated(engine), engine.execution_options(dream_write=True).begin() as connection:
        yield connection


@contextmanager
def _translated(engine: Engine) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        # without the cause: SQLAlchemy's own message quotes parameters
        raise StateError(
            f"the state database {shown_url(engine.url)} failed: {reason_of(error, engine.url)}"
        ) from None


def upsert(engine: Engine, table: Table) -> Any:
    """Return an INSERT of the engine's dialect that can say ON CONFLICT."""
    return (sqlite if engine.dialect.name == "sqlite" else postgresql).insert(table)


def among(connection: Connection, column: Any, ids: Sequence[str]) -> Any:
    """Return the condition ``column`` IN ``ids``, of any length, as one parameter.

    A list of IN chunks made PostgreSQL scan a bank once per chunk while it had no statistics yet.
    """
    if connection.dialect.name == "sqlite":
        return column.in_(select(func.json_each(json.dumps(list(ids))).table_valued("value").c.value))
    return column == func.any(cast(list(ids), postgresql.ARRAY(Text)))


def bulk_insert(connection: Connection, statement: Any, columns: Mapping[str, list[Any]]) -> None:
    """Run an INSERT for many rows, given as one list per column, at the driver's own speed.

    100,000 rows one by one through SQLAlchemy take seconds on SQLite and far longer on PostgreSQL.
    """
    table = statement.table
    if connection.dialect.name == "sqlite":
        compiled = statement.compile(dialect=connection.dialect, column_keys=list(columns))
        rows = list(zip(*(columns[name] for name in compiled.positiontup), strict=True))
        connection.exec_driver_sql(str(compiled), rows)
        return
    arrays = [
        func.unnest(cast(cast(array_literal(values), Text), postgresql.ARRAY(table.c[name].type)))
        for name, values in columns.items()
    ]
    connection.execute(statement.from_select(list(columns), select(*arrays)))


def array_literal(values: Sequence[Any]) -> str:
    """Return values as one PostgreSQL array in text: the driver's own way takes three times as long."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
        # the driver's own implicit BEGIN comes too late to make read-then-write atomic
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {int(SQLITE_BUSY_SECONDS * 1000)}")
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            # another process is turning it on at this instant, and it does not queue for that
            logger.debug("write-ahead log: left to the process that holds the file", exc_info=True)

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get("isolation_level") == "AUTOCOMMIT":
            return
        write = options.get("dream_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _prepare(engine: Engine) -> None:
    """Create what is missing; where nothing is, opening only reads and so waits for no writer."""
    found = _schema_version(engine)
    for attempt in range(3):
        if found is not None and found >= SCHEMA_VERSION:
            break
        try:
            _create_tables(engine)
        except DBAPIError:
            # PostgreSQL's IF NOT EXISTS still collides when two processes create the same table at once
            if attempt == 2 or engine.dialect.name == "sqlite":
                raise
        found = _schema_version(engine)
    if found is not None and found > SCHEMA_VERSION:
        raise StateError(
            f"the state database has schema {found}, this version reads up to {SCHEMA_VERSION}: "
            "upgrade dream-memory"
        )


def _schema_version(engine: Engine) -> int | None:
    if not inspect(engine).has_table(meta.name):
        return None
    with engine.connect() as connection:
        found = connection.execute(select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
    return None if found is None else int(found)


def _create_tables(engine: Engine) -> None:
    """Create what is missing, and bring a database of an older version up to this one."""
    with engine.execution_options(dream_write=True).begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            _add_columns(connection, table)
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))
        version = upsert(engine, meta).values(key="schema_version", value=str(SCHEMA_VERSION))
        connection.execute(
            version.on_conflict_do_update(index_elements=["key"], set_={"value": str(SCHEMA_VERSION)})
        )


def _add_columns(connection: Connection, table: Table) -> None:
    present = {column["name"] for column in inspect(connection).get_columns(table.name)}
    for column in table.columns:
        if column.name not in present:
            kind = column.type.compile(connection.dialect)
            if not column.nullable:
                # the only ones are texts, and rows of the older version have none
                kind += " NOT NULL DEFAULT ''"
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}")
