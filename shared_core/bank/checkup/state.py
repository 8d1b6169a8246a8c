"""What the state database says, over a connection that cannot write."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, Row, create_engine, func, inspect, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from shared_core.bank.derived import PREFIX
from shared_core.bank.lock import STALE_SECONDS, database_time, is_dead
from shared_core.bank.postgres_link import connect_arguments, limit_waiting
from shared_core.bank.schema import (
    SCHEMA_VERSION,
    banks,
    locks,
    memories,
    meta,
    runs,
)
from shared_core.bank.state_url import parse_url, reason_of, shown_url
from shared_core.errors import MissingExtraError, StateError
from shared_core.types import Check

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from shared_core.bank.checkup.content import Collection

LARGE_LOG = 64 * 2**20
"""Bytes of a write-ahead log from which somebody keeps it from shrinking."""
CLOCKS_APART = 5.0
"""Seconds; locks of other hosts are judged by the clock, see ``STALE_SECONDS``."""
FUTURE = 60.0
SHOWN = 3


def state_checks(
    url: str | URL, collection: Collection | None, *, now: float, deep: bool = False
) -> list[Check]:
    """Check a state database, and what it holds of a collection.

    Args:
        url: SQLAlchemy URL.
        collection: None: only what concerns all of them.
        now: Unix time, seconds.
        deep: Let SQLite check its file.

    Raises:
        StateError: The database cannot be reached or read.
        MissingExtraError: The driver of PostgreSQL is not installed.
    """
    parsed = parse_url(url)
    file = Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None
    if file is not None and not file.is_file():
        found = f"{file} is not there yet, and every weight is 1"
        return [Check(name="state", status="ok", found=found, todo="nothing: opening the bank creates it")]
    engine = _read_only(parsed, file)
    try:
        with engine.connect() as connection:
            checks = [_schema(connection, parsed)]
            if file is not None:
                checks += _sqlite_checks(connection, file, deep)
            if checks[0].status == "fail" or not inspect(connection).has_table(banks.name):
                return checks
            return checks + _bank_checks(connection, collection, now)
    except (SQLAlchemyError, ValueError, TypeError) as error:
        # without the cause: SQLAlchemy's own message quotes parameters
        raise StateError(
            f"cannot read the state database {shown_url(parsed)}: {reason_of(error, parsed)}"
        ) from None
    finally:
        engine.dispose()


def _read_only(url: URL, file: Path | None) -> Engine:
    if file is None:
        try:
            engine = create_engine(url, poolclass=NullPool, connect_args=connect_arguments(url))
            limit_waiting(engine)
            return engine.execution_options(postgresql_readonly=True)
        except ModuleNotFoundError as error:
            raise MissingExtraError(error.name or "the PostgreSQL driver", "postgres") from None
        except (SQLAlchemyError, ValueError, TypeError) as error:
            raise StateError(f"state_url {shown_url(url)}: {reason_of(error, url)}") from None
    # where nobody has it open SQLite would make a log and an index beside it, were it not told otherwise
    mode = "mode=ro" if _size(_log(file)) else "mode=ro&immutable=1"
    address = f"{file.resolve().as_uri()}?{mode}"
    return create_engine("sqlite://", creator=lambda: sqlite3.connect(address, uri=True), poolclass=NullPool)


def _schema(connection: Connection, url: URL) -> Check:
    shown = shown_url(url)
    if not inspect(connection).has_table(meta.name):
        return Check(
            name="state",
            status="ok",
            found=f"{shown} answers, and holds nothing of ours yet",
            todo="nothing: opening the bank creates its tables",
        )
    stored = connection.execute(select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
    version = int(stored or 0)
    if version > SCHEMA_VERSION:
        return Check(
            name="state",
            status="fail",
            found=f"{shown} has schema {version}, and this version reads up to {SCHEMA_VERSION}",
            todo="upgrade dream-memory",
        )
    if version < SCHEMA_VERSION:
        return Check(
            name="state",
            status="warn",
            found=f"{shown} has schema {version}, of an older version; this one has {SCHEMA_VERSION}",
            todo="back it up: opening the bank upgrades it, and older versions refuse it then",
        )
    return Check(name="state", status="ok", found=f"{shown} answers, schema {version}")


def _sqlite_checks(connection: Connection, file: Path, deep: bool) -> list[Check]:
    size = _size(_log(file))
    if size > LARGE_LOG:
        checks = [
            Check(
                name="state log",
                status="warn",
                found=f"the write-ahead log has {size / 2**20:.0f} MiB: a reader keeps it from shrinking",
                todo="end processes that hold the bank open and do nothing",
            )
        ]
    else:
        told = f"write-ahead log, {size / 2**10:.0f} KiB" if size else "no write-ahead log is left behind"
        checks = [Check(name="state log", status="ok", found=told)]
    if deep:
        damage = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
        checks.append(
            Check(name="state integrity", status="ok", found="SQLite finds no damage")
            if damage == "ok"
            else Check(
                name="state integrity",
                status="fail",
                found=f"SQLite reports: {damage}",
                todo="restore the state database from a backup",
            )
        )
    return checks


def _bank_checks(connection: Connection, collection: Collection | None, now: float) -> list[Check]:
    checks = [_clock(connection, now)]
    if connection.dialect.name == "postgresql":
        # by which heartbeats were written: this host's own clock may be wrong
        now = database_time(connection)
    if collection is None:
        return [*checks, *_locks(connection, None, now), *_pending(connection, None)]
    bank_id = connection.execute(select(banks.c.bank_id).where(banks.c.collection == collection.key)).scalar()
    if bank_id is None:
        unseen = Check(name="bank", status="ok", found="no state of this collection yet; every weight is 1")
        return [*checks, unseen, *_orphans(connection, None, collection)]
    return [
        *checks,
        *_locks(connection, int(bank_id), now),
        *_pending(connection, int(bank_id)),
        *_orphans(connection, int(bank_id), collection),
    ]


def _locks(connection: Connection, bank_id: int | None, now: float) -> list[Check]:
    query = select(locks) if bank_id is None else select(locks).where(locks.c.bank_id == bank_id)
    held = connection.execute(query.order_by(locks.c.acquired_at)).all()
    if not held:
        return [Check(name="lock", status="ok", found="nobody holds it")]
    return [_lock(row, now) for row in held]


def _lock(row: Row[Any], now: float) -> Check:
    who = (
        f"{row.purpose!r} by pid {row.pid} on {row.host}, for {max(0.0, now - row.acquired_at):.0f} s, last "
        f"heartbeat {max(0.0, now - row.heartbeat_at):.0f} s ago"
    )
    if is_dead(row, now):
        todo = "nothing: the next sweep or dream takes it over"
        return Check(name="lock", status="warn", found=f"{who}; its owner is gone", todo=todo)
    todo = f"wait for it; a dead one on another host is taken over after {STALE_SECONDS:.0f} s"
    return Check(name="lock", status="ok", found=who, todo=todo)


def _pending(connection: Connection, bank_id: int | None) -> list[Check]:
    query = select(runs.c.run_id, runs.c.kind).where(runs.c.status == "pending")
    if bank_id is not None:
        query = query.where(runs.c.bank_id == bank_id)
    found = connection.execute(query.order_by(runs.c.created_at)).all()
    if not found:
        return [Check(name="pending runs", status="ok", found="none")]
    named = ", ".join(f"{row.kind} {row.run_id}" for row in found[:SHOWN])
    return [
        Check(
            name="pending runs",
            status="warn",
            found=f"{len(found)} did not finish, or are at work: {named}",
            todo="nothing: opening the bank rolls back those whose process is gone",
        )
    ]


def _orphans(connection: Connection, bank_id: int | None, collection: Collection) -> list[Check]:
    known = set()
    if bank_id is not None and collection.derived:
        query = select(memories.c.memory_id).where(
            memories.c.bank_id == bank_id, memories.c.memory_id.startswith(PREFIX)
        )
        known = set(connection.execute(query).scalars())
    orphans = [memory_id for memory_id in collection.derived if memory_id not in known]
    if not orphans:
        found = f"{len(collection.derived)}, each with its state"
        return [Check(name="derived memories", status="ok", found=found)]
    return [
        Check(
            name="derived memories",
            status="warn",
            found=f"{len(orphans)} of {len(collection.derived)} have no state: their repair never came "
            "to be, and no search returns them",
            todo="check that --state names the right database; if so, the next `dream cycle` removes them",
        )
    ]


def _clock(connection: Connection, now: float) -> Check:
    if connection.dialect.name == "postgresql":
        theirs = database_time(connection)
        if abs(theirs - now) > CLOCKS_APART:
            return Check(
                name="clock",
                status="warn",
                found=f"this host and the database are {abs(theirs - now):.0f} s apart",
                todo="set both by NTP: locks and heartbeats are compared by the clock",
            )
    newest = connection.execute(select(func.max(runs.c.created_at))).scalar()
    if newest is not None and newest > now + FUTURE:
        return Check(
            name="clock",
            status="warn",
            found=f"the journal's newest run lies {newest - now:.0f} s in the future",
            todo="set this host's clock, or that of the host that wrote it, by NTP",
        )
    return Check(name="clock", status="ok", found="no run lies in the future")


def _log(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
