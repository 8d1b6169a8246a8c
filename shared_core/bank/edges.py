"""Explicit edges of the memory graph, in SQL; an edge holds as long as the repair that made it does.

Edges that follow from the memories themselves (shared entity, same session) are never stored: an index of
entities gives them without cliques.

Source: MemDream section 3.1 (edges connect nodes that share entities, a session, or a merge) [S].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, insert, select

from shared_core.bank.schema import edges, runs

EdgeKind = Literal["provenance", "bridge", "merged"]


@dataclass(frozen=True)
class Edge:
    """An undirected edge between two memories; of a derived one, ``source`` is what it quotes."""

    source: str
    target: str
    kind: EdgeKind


def read_edges(connection: Connection, bank_id: int) -> list[Edge]:
    """Return the edges whose repair is applied, each once, in a stable order."""
    query = (
        select(edges.c.source, edges.c.target, edges.c.kind)
        .join(runs, runs.c.run_id == edges.c.run_id)
        .where(edges.c.bank_id == bank_id, runs.c.status == "applied")
        .distinct()
        .order_by(edges.c.source, edges.c.target, edges.c.kind)
    )
    return [Edge(*row) for row in connection.execute(query)]


def write_edges(connection: Connection, bank_id: int, run_id: str, written: Sequence[Edge]) -> None:
    """Store the edges of one repair, inside its transaction."""
    rows = [
        {
            "bank_id": bank_id,
            "source": edge.source,
            "target": edge.target,
            "kind": edge.kind,
            "run_id": run_id,
        }
        for edge in dict.fromkeys(written)
    ]
    if rows:
        connection.execute(insert(edges), rows)
