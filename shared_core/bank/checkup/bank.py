"""Every check of one bank, in the order in which a fault of one explains those of the next."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import URL

from shared_core.bank.checkup import files
from shared_core.bank.checkup.content import Collection, Database, read_database, read_server
from shared_core.bank.checkup.index import index_check
from shared_core.bank.checkup.state import state_checks
from shared_core.bank.chroma import STATE_FILE
from shared_core.bank.location import STATE_URL_VARIABLE
from shared_core.bank.state_url import parse_url
from shared_core.errors import DreamError
from shared_core.language.counting import counted
from shared_core.types import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVERS = ("http://", "https://")
CHROMA_FILE = "chroma.sqlite3"
SHOWN_NAMES = 20
UNIT_WITHIN = 1e-3
"""Of a norm of 1."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What a check-up saw."""

    checks: list[Check]
    collections: list[str]
    """Names of the collections that are there."""


def examine(
    location: str,
    collection: str | None = None,
    *,
    state_url: str | None = None,
    dimension: int | None = None,
    deep: bool = False,
    now: float | None = None,
) -> Examined:
    """Check a Chroma database, one of its collections, and the state that belongs to it.

    Args:
        location: Directory of an embedded Chroma, or URL of a server.
        collection: Its name; None: only what concerns all of them.
        state_url: As for ``MemoryBank.open``.
        dimension: What the embedder gives, where that is known.
        deep: Read both databases whole and let SQLite check them.
        now: Unix time, seconds; default: the clock's.
    """
    now = time.time() if now is None else now
    on_server = location.startswith(SERVERS)
    try:
        database = (
            read_server(location, collection)
            if on_server
            else read_database(Path(location), collection, deep)
        )
    except DreamError as error:
        todo = _unreached(location, on_server)
        return Examined(
            checks=[Check(name="chroma", status="fail", found=str(error), todo=todo)], collections=[]
        )
    checks = [_reached(location, database), *_integrity(database)]
    if collection is not None:
        checks += _collection_checks(database, collection, dimension)
    folder = None if on_server else Path(location)
    url = state_url or os.environ.get(STATE_URL_VARIABLE) or _beside(folder)
    checks += _state(url, database.found, now, deep)
    if folder is not None:
        if database.found is not None and database.found.vector_segment:
            checks.append(index_check(folder, database.found.vector_segment))
        checks += files.file_checks(folder, _state_file(url), database.keys)
    return Examined(checks=checks, collections=database.names)


def _unreached(location: str, on_server: bool) -> str:
    if on_server:
        return "start the server (`chroma run`), or mend the URL"
    if (Path(location) / CHROMA_FILE).is_file():
        return "open it once with Chroma, which recovers a write that was broken off; else restore a backup"
    return f"give the directory that holds {CHROMA_FILE}"


def _reached(location: str, database: Database) -> Check:
    return Check(
        name="chroma",
        status="ok",
        found=f"{location} holds {counted(len(database.names), 'collection')}" + _listed(database.names),
        todo="" if database.names else "fill one, or look in another place",
    )


def _listed(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f": {', '.join(names[:SHOWN_NAMES])}{more}"


def _integrity(database: Database) -> list[Check]:
    if database.integrity is None:
        return []
    if database.integrity == "ok":
        return [Check(name="chroma integrity", status="ok", found="SQLite finds no damage")]
    return [
        Check(
            name="chroma integrity",
            status="fail",
            found=f"SQLite reports: {database.integrity}",
            todo="restore Chroma's directory from a backup",
        )
    ]


def _collection_checks(database: Database, name: str, dimension: int | None) -> list[Check]:
    found = database.found
    if found is None:
        there = f"no collection {name!r}; there are{_listed(database.names) or ' none'}"
        return [
            Check(name="collection", status="fail", found=there, todo="give --collection one of those names")
        ]
    count = Check(
        name="collection",
        status="ok" if found.memories else "warn",
        found=f"{name!r} holds {counted(found.memories, 'record')}",
        todo="" if found.memories else "add memories: there is nothing to search",
    )
    return [count, _space(found), _dimension(found, dimension)]


def _space(found: Collection) -> Check:
    if found.space == "cosine":
        return Check(name="space", status="ok", found="cosine")
    measured = f"{len(found.norms)} of {counted(found.memories, 'embedding')} measured, of length "
    if found.norms and all(abs(norm - 1.0) <= UNIT_WITHIN for norm in found.norms):
        return Check(
            name="space", status="ok", found=f"{found.space}; {measured}1, where it ranks as cosine does"
        )
    lengths = f"; {measured}{min(found.norms):.3g} to {max(found.norms):.3g}" if found.norms else ""
    return Check(
        name="space",
        status="warn",
        found=f"{found.space}: Chroma's index ranks by it, this package by cosine{lengths}",
        todo="leave backend at 'auto', which scans them all: 'index' would miss some"
        if found.norms
        else "nothing, where embeddings have length 1; else leave backend at 'auto', which scans them all: "
        "'index' would miss some",
    )


def _dimension(found: Collection, dimension: int | None) -> Check:
    if found.dimension is None:
        return Check(name="dimension", status="skip", found="the collection is empty")
    if dimension is None:
        return Check(
            name="dimension",
            status="skip",
            found=f"the collection has {found.dimension}",
            todo="give --embedder NAME to compare it with the embedder's",
        )
    if dimension == found.dimension:
        return Check(name="dimension", status="ok", found=f"collection and embedder have {dimension}")
    return Check(
        name="dimension",
        status="fail",
        found=f"the collection has {found.dimension}, the embedder {dimension}",
        todo="use the embedder that the collection was filled with",
    )


def _state(url: str | URL | None, found: Collection | None, now: float, deep: bool) -> list[Check]:
    if url is None:
        return [
            Check(
                name="state",
                status="fail",
                found="a Chroma server has no place for weights, and no state database is named",
                todo="give --state URL or set DREAM_STATE_URL",
            )
        ]
    try:
        return state_checks(url, found, now=now, deep=deep)
    except DreamError as error:
        return [
            Check(
                name="state",
                status="fail",
                found=str(error),
                todo="mend --state or DREAM_STATE_URL, start the database, or restore it from a backup",
            )
        ]


def _beside(folder: Path | None) -> URL | None:
    return None if folder is None else URL.create("sqlite", database=str((folder / STATE_FILE).resolve()))


def _state_file(url: str | URL | None) -> Path | None:
    try:
        parsed = None if url is None else parse_url(url)
    except DreamError:
        return None
    if parsed is None or parsed.get_backend_name() != "sqlite" or parsed.database is None:
        return None
    return Path(parsed.database)
