"""What a Chroma holds, read without opening it.

Opening an embedded Chroma writes to its file. So its SQLite is read, in a process of its own: a second SQLite
in this one would release the locks of Chroma's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shared_core.bank.chroma import ChromaContent
from shared_core.bank.chroma_client import collection_names, open_collection, opened_client
from shared_core.bank.derived import PREFIX, is_derived
from shared_core.errors import BankNotFoundError, DreamError

SECONDS, DEEP_SECONDS = 20.0, 600.0
SAMPLE = 64
"""Embeddings whose norm is measured."""
_READ = """
import array, json, math, pathlib, sqlite3, sys
file, name, first, last, sample, deep = sys.argv[1:]
database = sqlite3.connect(pathlib.Path(file).as_uri() + "?mode=ro", uri=True)
database.row_factory = sqlite3.Row
rows = [dict(row) for row in database.execute(
    "SELECT c.* FROM collections c LEFT JOIN databases d ON d.id = c.database_id "
    "ORDER BY d.name != 'default_database', c.name")]
found = next((row for row in rows if row["name"] == name), None)
told = {"collections": [[row["name"], row["id"]] for row in rows], "found": found}
if found is not None:
    told["metadata"] = [list(row) for row in database.execute(
        "SELECT key, str_value FROM collection_metadata WHERE collection_id = ?", (found["id"],))]
    segment = database.execute(
        "SELECT id FROM segments WHERE collection = ? AND scope = 'METADATA'", (found["id"],)).fetchone()
    of_segment = "FROM embeddings WHERE segment_id = ?"
    key = [segment[0] if segment else ""]
    vector = database.execute(
        "SELECT id FROM segments WHERE collection = ? AND scope = 'VECTOR'", (found["id"],)).fetchone()
    told["vector"] = vector[0] if vector else ""
    told["memories"] = database.execute("SELECT count(*) " + of_segment, key).fetchone()[0]
    told["derived"] = [row[0] for row in database.execute(
        "SELECT embedding_id " + of_segment + " AND embedding_id >= ? AND embedding_id < ?",
        [*key, first, last])]
    try:  # the last writes stay in Chroma's log
        kept = database.execute(
            "SELECT vector FROM embeddings_queue WHERE topic LIKE ? AND encoding = 'FLOAT32' "
            "AND vector IS NOT NULL ORDER BY seq_id DESC LIMIT " + sample, ["%/" + found["id"]])
        told["norms"] = [math.sqrt(sum(x * x for x in array.array("f", row[0]))) for row in kept]
    except sqlite3.Error:
        told["norms"] = []
if deep:
    told["integrity"] = database.execute("PRAGMA quick_check(1)").fetchone()[0]
print(json.dumps(told))
"""


@dataclass(frozen=True, kw_only=True)
class Collection:
    """One collection."""

    key: str
    """Its UUID."""
    space: str
    dimension: int | None
    memories: int
    derived: list[str]
    """Ids of the records that look like ours."""
    norms: list[float] = field(default_factory=list)
    """Of some embeddings, at most ``SAMPLE``; the last that were written."""
    vector_segment: str = ""
    """Names the directory of an embedded collection's index."""


@dataclass(frozen=True, kw_only=True)
class Database:
    """A Chroma database or server."""

    names: list[str]
    keys: list[str] = field(default_factory=list)
    """UUIDs of all collections; empty for a server."""
    found: Collection | None = None
    """The collection that was asked for."""
    integrity: str | None = None
    """What SQLite says of its own file; None where it was not asked."""


def read_database(folder: Path, name: str | None, deep: bool) -> Database:
    """Read the file of an embedded Chroma.

    Raises:
        BankNotFoundError: There is none, or it cannot be read.
    """
    file = folder / "chroma.sqlite3"
    if not file.is_file():
        raise BankNotFoundError(
            f"{folder} is not the directory of a Chroma database (no chroma.sqlite3 in it)"
        )
    told = _ask(file.resolve(), name, deep)
    return Database(
        names=sorted(found for found, _ in told["collections"]),
        keys=[key for _, key in told["collections"]],
        found=None if told["found"] is None else _collection(told),
        integrity=told.get("integrity"),
    )


def read_server(url: str, name: str | None) -> Database:
    """Ask a Chroma server.

    Raises:
        BankUnreachableError: It does not answer.
    """
    with opened_client(url) as client:
        names = collection_names(client)
        if name is None or name not in names:
            return Database(names=names)
        content = ChromaContent(open_collection(client, name))
        ids = content.ids()
        found = Collection(
            key=content.key,
            space=content.space,
            dimension=content.dimension(),
            memories=content.count(),
            derived=[memory_id for memory_id in ids if is_derived(memory_id)],
            norms=[float(np.linalg.norm(one)) for one in content.get_embeddings(ids[-SAMPLE:]).values()],
        )
        return Database(names=names, found=found)


def _ask(file: Path, name: str | None, deep: bool) -> Any:
    # every id that begins with the prefix stands before the prefix whose last character is the next one
    behind = PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1)
    command = [sys.executable, "-I", "-S", "-c", _READ, str(file), name or "", PREFIX, behind, str(SAMPLE)]
    try:
        done = subprocess.run(  # noqa: S603
            [*command, "1" if deep else ""],
            capture_output=True,
            text=True,
            timeout=DEEP_SECONDS if deep else SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DreamError(f"{file} cannot be read: {type(error).__name__}: {error}") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise BankNotFoundError(f"{file} cannot be read as a Chroma database: {reason}")
    return json.loads(done.stdout)


def _collection(told: Any) -> Collection:
    found = told["found"]
    return Collection(
        key=found["id"],
        space=_space(found, dict(told["metadata"])),
        dimension=found.get("dimension"),
        memories=told["memories"],
        derived=told["derived"],
        norms=told["norms"],
        vector_segment=told["vector"],
    )


def _space(found: dict[str, Any], metadata: dict[str, Any]) -> str:
    """Return the distance space; Chroma has kept it in several places, newest first."""
    schema = json.loads(found.get("schema_str") or "{}")
    configuration = json.loads(found.get("config_json_str") or "{}")
    indexes = [
        _within(schema, "keys", "#embedding", "float_list", "vector_index", "config"),
        _within(configuration, "vector_index", "hnsw"),
        _within(configuration, "vector_index", "spann"),
        *(configuration.get(kind) for kind in ("hnsw", "spann", "hnsw_configuration")),
    ]
    named = [index["space"] for index in indexes if isinstance(index, dict) and index.get("space")]
    return str((named or [metadata.get("hnsw:space") or "l2"])[0])


def _within(value: Any, *path: str) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value
