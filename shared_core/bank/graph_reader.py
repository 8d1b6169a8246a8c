"""The memory graph of a bank, kept in step with it: what did not change is not read again.

Texts and embeddings are read whole once, and again when one was removed or rewritten; what is added is read
alone, weights come from the state's columns, edges and keys are read after runs that may have written them.

Source: none, ours [O].
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.graph import (
    GraphContent,
    GraphKeys,
    MemoryGraph,
    explicit_edges,
    graph_of,
    last_access,
    read_content,
    reweighted,
)

if TYPE_CHECKING:
    from shared_core.bank.edges import Edge
    from shared_core.bank.keys import RetrievalKey
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.bank.watch import CollectionChange
    from shared_core.types import Array, FloatArray

KEEP_EDGES = frozenset(
    {
        "add",
        "delete",
        "distrust",
        "feedback",
        "quarantine",
        "recover",
        "restore",
        "reweight",
        "sweep",
        "update",
    }
)
"""Kinds of runs that write neither edges nor keys, and undo nothing that did."""


@dataclass(frozen=True, eq=False)
class GraphReading:
    """What a bank holds at one instant; parts that did not change are the objects of the last reading."""

    graph: MemoryGraph
    """Its ``last_access`` is that of the last time the content was read whole."""
    keys: Sequence[RetrievalKey]
    content: int
    """Counts up whenever texts and embeddings were read whole: nothing is known of how they differ then."""


@dataclass(frozen=True, eq=False)
class _Held:
    content: GraphContent
    accessed: FloatArray
    """(N,) last retrieval of each record."""
    rows: Array
    """Which are visible."""
    edges: list[Edge]
    version: int


class GraphReader:
    """Reads the graph and the keys of one bank, again and again; safe for threads.

    Args:
        bank: The bank.
        keys: Metadata fields that say where a memory belongs; default: those of our own pages.
    """

    def __init__(self, bank: MemoryBank, keys: GraphKeys | None = None) -> None:
        self._bank = bank
        self._keys = keys or GraphKeys()
        self._lock = threading.Lock()
        self._watch = bank.watch()
        self._held: _Held | None = None
        self._last: GraphReading | None = None

    def read(self, *, force: bool = False) -> GraphReading:
        """Return what the bank holds now.

        Args:
            force: Read everything anew, also what another program rewrote without a trace.
        """
        with self._lock:
            held, last = self._held, self._last
            # a change is told once: until it is taken up, the next reading must be whole
            self._held = None
            change = self._watch.poll()
            # before the reading: what changes meanwhile is read twice rather than never
            version = self._bank.state.version()
            if held is None or last is None or force or self._structural(held, change, version):
                number = 0 if last is None else last.content + 1
                held, last = self._whole(version, number)
            elif change.added or version != held.version:
                held, last = self._updated(held, last, change.added, version)
            self._held, self._last = held, last
            return last

    # ---- inner

    def _structural(self, held: _Held, change: CollectionChange, version: int) -> bool:
        """Tell whether more changed than additions and state."""
        if change.touched or change.removed or version < held.version:
            return True
        newest = list(islice(reversed(self._watch.ids), len(change.added)))[::-1]
        # of a tenant: what its metadata made visible may stand between the others
        if newest != change.added:
            return True
        return version != held.version and bool(self._bank.state.rewritten_since(held.version))

    def _whole(self, version: int, number: int) -> tuple[_Held, GraphReading]:
        bank = self._bank
        if number == 0:
            content = read_content(bank.content, self._keys)
        else:
            # an embedded index may hold what another process rewrote in its older version
            with bank.content.anew() as fresh:
                # opening it writes to the file, so that the watch must look after that
                self._watch.poll(force=True)
                content = read_content(fresh, self._keys)
        return self._all(content, bank.state.edges(), bank.state.retrieval_keys(), version, number)

    def _all(
        self,
        content: GraphContent,
        edges: list[Edge],
        keys: Sequence[RetrievalKey],
        version: int,
        number: int,
        accessed: FloatArray | None = None,
    ) -> tuple[_Held, GraphReading]:
        columns = self._bank.state.columns()
        accessed = last_access(self._bank, content.ids) if accessed is None else accessed
        held = _Held(content, accessed, content.visible(columns), edges, version)
        graph = graph_of(content, held.rows, columns, edges, accessed[held.rows])
        return held, GraphReading(graph, keys, number)

    def _updated(
        self, held: _Held, last: GraphReading, added: list[str], version: int
    ) -> tuple[_Held, GraphReading]:
        state = self._bank.state
        edges, keys = held.edges, last.keys
        if version != held.version and not state.kinds_since(held.version) <= KEEP_EDGES:
            edges, keys = state.edges(), state.retrieval_keys()
        content, accessed = held.content, held.accessed
        # a whole reading may have met what came after the watch had looked, and is told of it only now
        held_ids = set(content.ids) if added else set()
        if added := [memory_id for memory_id in added if memory_id not in held_ids]:
            new = self._read(added)
            content = content.followed_by(new)
            accessed = np.concatenate([accessed, np.full(len(new), np.nan)])
        columns = state.columns()
        if content is not held.content or not np.array_equal(content.visible(columns), held.rows):
            return self._all(content, edges, keys, version, last.content, accessed)
        graph = reweighted(last.graph, columns)
        if edges != held.edges:
            graph = replace(graph, explicit=explicit_edges(edges, graph.row_of))
        return replace(held, edges=edges, version=version), GraphReading(graph, keys, last.content)

    def _read(self, ids: list[str]) -> GraphContent:
        """Return the content of new records; what is gone again is left out, and told as removed next."""
        records = self._bank.content.get(ids)
        vectors = self._bank.content.get_embeddings(ids)
        present = [memory_id for memory_id in ids if memory_id in records and memory_id in vectors]
        rows = [vectors[memory_id] for memory_id in present]
        matrix = np.stack(rows) if rows else np.empty((0, 0), np.float32)
        return GraphContent.of([records[memory_id] for memory_id in present], matrix, self._keys)
