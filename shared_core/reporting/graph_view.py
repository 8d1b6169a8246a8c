"""The memory graph of the shown memories, with the edges that say something, laid out.

Explicit edges come from repairs; shared entities, sessions and nearness follow from the memories. Source: of
the kinds of edges MemDream section 3.1 [S]; which of them are drawn is ours [O].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.entity_index import COMMON, COMMON_SHARE, FEW
from shared_core.bank.graph import GraphContent, GraphKeys, graph_of
from shared_core.reporting.data import EDGE_KINDS, GraphView
from shared_core.reporting.layout import place_nodes

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.types import Array

READ_CHARACTERS = 2000
"""Of a text, in which entities are looked for."""
PER_NODE = 2
"""Edges by nearness per node, and by shared entities per node on average."""
NEAR = 0.4
"""Cosine from which two memories are near."""
PULL = {"provenance": 1.0, "merged": 1.0, "bridge": 0.1, "entity": 0.5, "session": 0.5, "near": 0.5}

Pair = tuple[int, int, int]


def graph_view(bank: MemoryBank, ids: Sequence[str], limit: int, keys: GraphKeys | None = None) -> GraphView:
    """Return the graph of memories, with at most ``limit`` edges; what has no embedding is left out."""
    records = bank.content.get(ids)
    vectors = bank.content.get_embeddings(ids)
    held = [memory_id for memory_id in ids if memory_id in records and memory_id in vectors]
    if not held:
        return GraphView(nodes=(), edges=())
    content = GraphContent.of(
        [replace(records[one], text=records[one].text[:READ_CHARACTERS]) for one in held],
        np.stack([vectors[one] for one in held]),
        keys or GraphKeys(),
    )
    explicit = bank.state.edges()
    rows = np.arange(len(held))
    graph = graph_of(content, rows, bank.state.columns(), explicit, np.full(len(held), np.nan))
    place = graph.row_of
    known = [
        (place[edge.source], place[edge.target], EDGE_KINDS.index(edge.kind))
        for edge in explicit
        if edge.source in place and edge.target in place
    ]
    # bridges are many, and say little that the others do not
    bridge = EDGE_KINDS.index("bridge")
    telling, bridges = ([edge for edge in known if (edge[2] == bridge) is many] for many in (False, True))
    entities = islice(_entities(graph), PER_NODE * len(graph))
    found = chain(telling, _sessions(graph), entities, _near(graph), bridges)
    edges = list(islice(_each_once(found), limit))
    ends = np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2)
    strength = np.array([PULL[EDGE_KINDS[kind]] for _, _, kind in edges], float)
    unit = np.nan_to_num(graph.unit)
    spots = place_nodes(unit, ends, strength).round(1).tolist()
    return GraphView(
        nodes=tuple((memory_id, x, y) for memory_id, (x, y) in zip(held, spots, strict=True)),
        edges=tuple(edges),
    )


def _each_once(edges: Iterable[Pair]) -> Iterator[Pair]:
    """Yield edges between different nodes, each pair once and by its first kind."""
    seen: set[tuple[int, int]] = set()
    for one, other, kind in edges:
        pair = (min(one, other), max(one, other))
        if one != other and pair not in seen:
            seen.add(pair)
            yield (*pair, kind)


def _sessions(graph: MemoryGraph) -> Iterator[Pair]:
    """Yield each page with the one after it in its session: a chain, where a clique would hide everything."""
    kind = EDGE_KINDS.index("session")
    for members in graph.in_session.values():
        order = members[np.argsort(np.nan_to_num(graph.time[members], nan=np.inf), kind="stable")].tolist()
        yield from ((one, other, kind) for one, other in pairwise(order))


def _entities(graph: MemoryGraph) -> Iterator[Pair]:
    """Yield who mentions an entity as a chain, the rarest entity first; a common one connects nothing."""
    kind = EDGE_KINDS.index("entity")
    index = graph.entities
    most = min(COMMON, max(FEW, int(COMMON_SHARE * len(graph))))
    for number in np.argsort(index.frequency, kind="stable").tolist():
        if 2 <= index.frequency[number] <= most:
            holders = index.holders(index.names[number]).tolist()
            yield from ((one, other, kind) for one, other in pairwise(holders))


def _near(graph: MemoryGraph) -> Iterator[Pair]:
    """Yield each memory with those of most similar embedding."""
    kind = EDGE_KINDS.index("near")
    unit = np.nan_to_num(graph.unit).astype(np.float32)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1.0)
    nearest: Array = np.argsort(-cosines, axis=1, kind="stable")[:, :PER_NODE]
    for row, others in enumerate(nearest.tolist()):
        yield from ((row, other, kind) for other in others if cosines[row, other] >= NEAR)
