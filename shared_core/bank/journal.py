"""Reading the journal, and undoing what it records.

An undo is a run like any other, so undoing an undo is a redo. A run whose values were changed again since
is refused: undoing it would silently discard the later run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, Select, Table, and_, insert, or_, select, update

from shared_core.bank.columns import DEFAULTS
from shared_core.bank.schema import changes, contents, runs
from shared_core.errors import JournalError, StateError
from shared_core.language.counting import counted

if TYPE_CHECKING:
    from shared_core.bank.transaction import StateTransaction

SHOWN_RUNS = 3
_TOUCHED = {changes: ("memory_id", "field"), contents: ("memory_id",)}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One journalled change of the bank."""

    run_id: str
    kind: str
    """sweep, feedback, add, update, delete, restore, distrust, reweight, cycle, repair, quarantine, undo."""
    status: str
    """applied, undone, pending (in progress, or its process died), aborted (rolled back after a crash)."""
    scope: str
    """The tenant's filter as canonical JSON, "" where the bank is the whole collection."""
    target: str | None
    """The run that an undo undid."""
    created_at: float
    """Unix time, seconds, UTC."""
    version: int
    changes: int
    """How many values it changed."""
    config: dict[str, Any] = field(repr=False)
    report: dict[str, Any] = field(repr=False)
    parent: str | None = None
    """The dream cycle that a repair belongs to."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class ContentChange:
    """A text that a run wrote: what it was and what it became, with embeddings as float32 bytes."""

    memory_id: str
    before: dict[str, Any] | None
    before_embedding: bytes | None
    after: dict[str, Any] | None
    after_embedding: bytes | None


def list_runs(
    connection: Connection,
    bank_id: int,
    scope: str,
    limit: int | None = None,
    kinds: Collection[str] | None = None,
    *,
    whole: bool = False,
) -> list[Run]:
    """Return this scope's runs, newest first; the unscoped bank sees every run.

    Args:
        connection: To the state database.
        bank_id: The bank.
        scope: The tenant's.
        limit: Most runs.
        kinds: Only these; default: all.
        whole: Leave out runs that belong to another, a dream cycle's repairs.
    """
    query = _runs(bank_id, scope)
    if whole:
        query = query.where(runs.c.parent.is_(None))
    if kinds is not None:
        query = query.where(runs.c.kind.in_(list(kinds)))
    query = query.order_by(runs.c.version.desc(), runs.c.created_at.desc(), runs.c.run_id.desc())
    return [_run(row) for row in connection.execute(query.limit(limit))]


def get_run(connection: Connection, bank_id: int, scope: str, run_id: str) -> Run:
    """Return one run.

    Raises:
        JournalError: No such run in this bank, or it belongs to another tenant.
    """
    row = connection.execute(_runs(bank_id, scope).where(runs.c.run_id == run_id)).one_or_none()
    if row is None:
        raise JournalError(f"no run {run_id!r} in this bank: `dream log` lists the runs")
    return _run(row)


def newest_config(
    connection: Connection,
    bank_id: int,
    scopes: Collection[str],
    kinds: Collection[str],
    saying: str,
    *,
    applied: bool = False,
) -> dict[str, Any] | None:
    """Return the config of the newest run that says something; None where none does.

    Args:
        connection: To the state database.
        bank_id: The bank.
        scopes: Of the runs; empty for all.
        kinds: Of the runs.
        saying: A part of the config's JSON.
        applied: Only of runs that still hold.
    """
    query = select(runs.c.config).where(
        runs.c.bank_id == bank_id,
        runs.c.kind.in_(list(kinds)),
        runs.c.config.contains(saying, autoescape=True),
    )
    if scopes:
        query = query.where(runs.c.scope.in_(list(scopes)))
    if applied:
        query = query.where(runs.c.status == "applied")
    found = connection.execute(query.order_by(runs.c.version.desc()).limit(1)).scalar()
    return None if found is None else dict(_decoded(found))


def applied_children(connection: Connection, run: Run) -> list[Run]:
    """Return the applied runs that belong to a dream cycle, newest first."""
    query = select(runs).where(runs.c.parent == run.run_id, runs.c.status == "applied")
    return [_run(row) for row in connection.execute(query.order_by(runs.c.version.desc()))]


def revert(transaction: StateTransaction, connection: Connection, reverted: Sequence[Run]) -> None:
    """Put every value that runs changed back to what it was, inside an open transaction, and mark them.

    Args:
        transaction: The undo.
        connection: Its connection.
        reverted: Applied runs, newest first; more than one where a dream cycle is undone whole.

    Raises:
        JournalError: A later run changed the same values again.
    """
    before: dict[str, dict[str, float]] = defaultdict(dict)
    for run in reverted:
        require_last(connection, run)
        rows = connection.execute(select(changes).where(changes.c.run_id == run.run_id)).all()
        stored = transaction.read(sorted({row.memory_id for row in rows}))
        changed = {
            row.memory_id
            for row in rows
            if before[row.memory_id].get(row.field, stored.get(row.memory_id, DEFAULTS)[row.field])
            != row.after
        }
        if changed:
            raise JournalError(
                f"run {run.run_id} ({run.kind}) cannot be undone: the state of "
                f"{counted(len(changed), 'memory')}, such as {min(changed)!r}, is not what the journal says"
            )
        for row in rows:
            before[row.memory_id][row.field] = row.before
        _set_status(connection, [run.run_id], "undone")
    transaction.assign(before)


def mark_undone(connection: Connection, run: Run) -> None:
    """Record that ``run`` no longer holds.

    If it was an undo, its target holds again, with the runs of a cycle that it undid; if that was an undo
    too, what it undid does not, and so on.
    """
    run_id: str | None = run.run_id
    status = "undone"
    while run_id is not None:
        _set_status(connection, [run_id], status)
        row = connection.execute(select(runs.c.target, runs.c.report).where(runs.c.run_id == run_id)).one()
        run_id = row.target
        status = "applied" if status == "undone" else "undone"
        if run_id is not None:
            _set_status(connection, _decoded(row.report).get("children", []), status)


def amend_report(connection: Connection, bank_id: int, run_id: str, report: Mapping[str, Any]) -> None:
    """Replace a run's report."""
    found = update(runs).where(runs.c.bank_id == bank_id, runs.c.run_id == run_id)
    connection.execute(found.values(report=json.dumps(dict(report), sort_keys=True)))


def _set_status(connection: Connection, run_ids: Sequence[str], status: str) -> None:
    connection.execute(update(runs).where(runs.c.run_id.in_(list(run_ids))).values(status=status))


def require_applied(run: Run) -> None:
    """Refuse to undo what does not hold.

    Raises:
        JournalError: The run is undone, pending or aborted.
    """
    if run.status != "applied":
        raise JournalError(
            f"run {run.run_id} ({run.kind}) is {run.status}, only an applied run can be undone"
        )


def require_last(connection: Connection, run: Run) -> None:
    """Refuse to undo what later runs built upon, even where the values are the same again by now.

    What was undone does not count, nor does the undo that cancelled it: both together changed nothing. That
    holds only where both came after ``run``.

    Raises:
        JournalError: An applied later run changed the same field or text of the same memory.
    """
    cancelled = runs.alias()
    of_no_effect = select(cancelled.c.run_id).where(
        cancelled.c.run_id == runs.c.target, cancelled.c.status == "undone", cancelled.c.version > run.version
    )
    later = connection.execute(
        select(runs.c.run_id, runs.c.kind)
        .where(
            runs.c.bank_id == select(runs.c.bank_id).where(runs.c.run_id == run.run_id).scalar_subquery(),
            runs.c.version > run.version,
            runs.c.status == "applied",
            ~of_no_effect.exists(),
            or_(*(_touches(table, run, keys) for table, keys in _TOUCHED.items())),
        )
        .order_by(runs.c.version.desc())
    ).all()
    if later:
        named = ", ".join(f"{row.run_id} ({row.kind})" for row in later[:SHOWN_RUNS])
        more = f" and {len(later) - SHOWN_RUNS} more" if len(later) > SHOWN_RUNS else ""
        raise JournalError(
            f"run {run.run_id} ({run.kind}) was built upon: undo first, newest first: {named}{more}"
        )


def touched_ids(connection: Connection, run_id: str) -> list[str]:
    """Return the memories that a run changed, texts and state alike."""
    queries = (select(table.c.memory_id).where(table.c.run_id == run_id) for table in _TOUCHED)
    return sorted({memory_id for query in queries for memory_id in connection.execute(query).scalars()})


def write_contents(connection: Connection, run_id: str, written: list[ContentChange]) -> None:
    """Journal texts before they are written to the collection."""
    rows = [
        {
            "run_id": run_id,
            "memory_id": change.memory_id,
            "before": None if change.before is None else json.dumps(change.before),
            "before_embedding": change.before_embedding,
            "after": None if change.after is None else json.dumps(change.after),
            "after_embedding": change.after_embedding,
        }
        for change in written
    ]
    if rows:
        connection.execute(insert(contents), rows)


def read_contents(connection: Connection, run_id: str) -> list[ContentChange]:
    """Return the texts that a run wrote."""
    return [
        ContentChange(
            row.memory_id,
            None if row.before is None else _decoded(row.before),
            row.before_embedding,
            None if row.after is None else _decoded(row.after),
            row.after_embedding,
        )
        for row in connection.execute(select(contents).where(contents.c.run_id == run_id))
    ]


def rewritten_since(connection: Connection, bank_id: int, version: int) -> list[str]:
    """Return the ids whose texts were rewritten by runs after ``version``."""
    query = select(contents.c.memory_id).join(runs, runs.c.run_id == contents.c.run_id)
    query = query.where(runs.c.bank_id == bank_id, runs.c.version > version).distinct()
    return list(connection.execute(query).scalars())


def kinds_since(connection: Connection, bank_id: int, version: int) -> set[str]:
    """Return the kinds of the runs after ``version``."""
    query = select(runs.c.kind).where(runs.c.bank_id == bank_id, runs.c.version > version).distinct()
    return set(connection.execute(query).scalars())


def pending_runs(connection: Connection, bank_id: int, scope: str) -> list[Run]:
    """Return runs that wrote texts and never said that they were done."""
    return [_run(row) for row in connection.execute(_runs(bank_id, scope).where(runs.c.status == "pending"))]


def _runs(bank_id: int, scope: str) -> Select[Any]:
    query = select(runs).where(runs.c.bank_id == bank_id)
    return query.where(runs.c.scope == scope) if scope else query


def _run(row: Row[Any]) -> Run:
    values = {key: value for key, value in row._mapping.items() if key != "bank_id"}
    return Run(**{**values, "config": _decoded(row.config), "report": _decoded(row.report)})


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise StateError(f"the journal was altered: it holds what is no JSON ({error})") from None


def _touches(table: Table, run: Run, keys: Sequence[str]) -> Any:
    theirs, mine = table.alias(), table.alias()
    # theirs first: many later runs are small, and SQLite without statistics keeps to the order given
    same = select(theirs.c.run_id).join(mine, and_(*(theirs.c[key] == mine.c[key] for key in keys)))
    return same.where(theirs.c.run_id == runs.c.run_id, mine.c.run_id == run.run_id).exists()
