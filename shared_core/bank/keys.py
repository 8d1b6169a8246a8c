"""Retrieval keys: further texts by which a memory is found, written by repairs, never shown.

A key resolves to its memory: a sentence of it, or the turns around it. Keys live in the state database, so
that the user's collection holds memories only, and hold as long as the repair that wrote them does.

Source: none, ours [O]; they are what MemDream's extract and synthesize write here where the page itself is
what a reader should see (section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np
from sqlalchemy import Connection, insert, select

from shared_core.bank.schema import keys, runs

if TYPE_CHECKING:
    from shared_core.types import FloatArray

KeyKind = Literal["sentence", "scene1", "scene2", "scene4"]
STORED = np.float16
"""Half precision: the cosine of two unit vectors changes by less than 0.001."""
AT_ONCE = 2_000
"""Keys that are handed to the database together."""


@dataclass(frozen=True, eq=False)
class RetrievalKey:
    """One further text by which a memory is found; quotes the memory and its neighbours verbatim."""

    memory_id: str
    kind: KeyKind
    text: str
    embedding: FloatArray | None = None
    """Shape (d,), of the text; None where it is found by its words only."""


def read_keys(connection: Connection, bank_id: int) -> list[RetrievalKey]:
    """Return the keys whose repair is applied, in the order of writing."""
    query = (
        select(keys.c.memory_id, keys.c.kind, keys.c.text, keys.c.embedding)
        .join(runs, runs.c.run_id == keys.c.run_id)
        .where(keys.c.bank_id == bank_id, runs.c.status == "applied")
        .order_by(runs.c.version, keys.c.number)
    )
    return [RetrievalKey(*row[:3], _vector(row[3])) for row in connection.execute(query)]


def read_keyed(connection: Connection, bank_id: int) -> list[str]:
    """Return the memory of each key whose repair is applied; one with several keys stands there as often."""
    query = select(keys.c.memory_id).join(runs, runs.c.run_id == keys.c.run_id)
    return list(
        connection.execute(query.where(keys.c.bank_id == bank_id, runs.c.status == "applied")).scalars()
    )


def write_keys(connection: Connection, bank_id: int, run_id: str, written: Sequence[RetrievalKey]) -> None:
    """Store the keys of one repair, inside its transaction."""
    rows = (
        {
            "bank_id": bank_id,
            "run_id": run_id,
            "number": number,
            "memory_id": key.memory_id,
            "kind": key.kind,
            "text": key.text,
            "embedding": None if key.embedding is None else np.asarray(key.embedding, STORED).tobytes(),
        }
        for number, key in enumerate(written)
    )
    # a copy of all of them would be the most that a dream holds
    while part := list(islice(rows, AT_ONCE)):
        connection.execute(insert(keys), part)


def _vector(stored: bytes | None) -> FloatArray | None:
    return None if stored is None else np.frombuffer(stored, STORED).astype(np.float32)
