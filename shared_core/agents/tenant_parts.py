"""A bank's graph in parts, one per owner, so that a dream of one reads nothing of another.

What joins two owners, an edge or a key that an earlier dream wrote before it was told of them, stays out of
every part.

Source: none, ours [O].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.bank.graph import FoundEntities, MemoryGraph
from shared_core.bank.tenants import NOBODY, Owner, owner_fields
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank.keys import RetrievalKey
    from shared_core.types import Array


@dataclass(frozen=True, eq=False)
class TenantPart:
    """The memories of one owner."""

    tenant: dict[str, Any]
    """Its metadata; empty where nothing tells owners apart, and for what has none of the fields."""
    graph: MemoryGraph
    keys: Sequence[RetrievalKey]
    """What earlier dreams wrote about its memories."""


class TenantParts:
    """The parts of a graph, each made when it is its turn.

    Args:
        graph: Of the whole bank.
        keys: What earlier dreams wrote.
        tenant_keys: The fields that the graph was read with.
        rng: Draws the order: where time is short, other owners have theirs in another dream.
    """

    def __init__(
        self,
        graph: MemoryGraph,
        keys: Sequence[RetrievalKey],
        tenant_keys: Sequence[str],
        rng: np.random.Generator,
    ) -> None:
        self._graph, self._keys, self._tenant_keys = graph, keys, tenant_keys
        rows: dict[Owner, list[int]] = defaultdict(list)
        for row, owner in enumerate(graph.owners):
            rows[owner].append(row)
        whose = sorted(owner for owner, own in rows.items() if not graph.derived[own].all())
        self._rows = {whose[at]: np.array(rows[whose[at]], np.int64) for at in rng.permutation(len(whose))}

    def __len__(self) -> int:
        return max(1, len(self._rows))

    def __iter__(self) -> Iterator[TenantPart]:
        if not self._tenant_keys or not self._rows:
            yield TenantPart({}, self._graph, self._keys)
            return
        keys: dict[Owner, list[RetrievalKey]] = defaultdict(list)
        for key in self._keys:
            if (row := self._graph.row_of.get(key.memory_id)) is not None:
                keys[self._graph.owners[row]].append(key)
        for owner, rows in self._rows.items():
            tenant = owner_fields(owner, self._tenant_keys)
            yield TenantPart(tenant, part_of(self._graph, rows), keys[owner])


def check_tenant_keys(graph: MemoryGraph, keys: Sequence[str]) -> None:
    """Refuse a field that no memory has: a misspelt one would join everybody's.

    Args:
        graph: Read with these keys, first of all.
        keys: The fields that were given, not remembered.

    Raises:
        ConfigError: There are memories, and none has the field.
    """
    for place, key in enumerate(keys):
        if len(graph) and all(owner[place] == NOBODY for owner in graph.owners):
            raise ConfigError(
                f"tenant_keys={list(keys)!r}: no memory has a metadata field {key!r}, so that it tells no "
                "owners apart; name the field that says whose a memory is"
            )


def part_of(graph: MemoryGraph, rows: Array) -> MemoryGraph:
    """Return the graph of some rows, ascending, and of what connects them."""
    at = {row: place for place, row in enumerate(rows.tolist())}
    texts, speakers = ([held[row] for row in at] for held in (graph.texts, graph.speakers))
    arrays = {
        name: getattr(graph, name)[rows]
        for name in ("unit", "weights", "suspicion", "successes", "last_access", "time", "session")
    }
    return replace(
        graph,
        ids=[graph.ids[row] for row in at],
        texts=texts,
        speakers=speakers,
        owners=[graph.owners[row] for row in at],
        sources={
            place: tuple(at[source] for source in graph.sources[row] if source in at)
            for row, place in at.items()
            if row in graph.sources
        },
        explicit={
            place: {at[other] for other in graph.explicit[row] if other in at}
            for row, place in at.items()
            if row in graph.explicit
        },
        found=FoundEntities(texts, speakers, arrays["time"], graph.found.extractor),
        **arrays,
    )
