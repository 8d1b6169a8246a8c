"""Writing the associations of all pages of a bank, as one dream that is undone whole.

Every page gets its keys, bridges and graded weight; nothing is probed or verified yet. What is there already
and still true is not written again, so that a second run on the same pages changes nothing.

Source: the operations are MemDream's (section 3.2) [S]; writing them for all pages, without diagnosis, is
ours [O].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.agents.associations import (
    DECAY,
    SCENES,
    bridge_edges,
    graded_weights,
    scene_keys,
    sentence_keys,
)
from shared_core.agents.tenant_parts import TenantParts, check_tenant_keys
from shared_core.agents.weakness import usable
from shared_core.bank.graph import GraphKeys, MemoryGraph, read_graph
from shared_core.bank.repairing import Repair, apply_repair, heeding, remove_unborn
from shared_core.bank.tenants import FIELD, checked_tenant_keys, known_tenant_keys
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank.edges import Edge
    from shared_core.bank.keys import RetrievalKey
    from shared_core.bank.lock import BankLock
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.types import Embedder, FloatArray, Progress

STAGES = 4
RECOVERED = 0.99
"""Weight from which nothing lowers a page, or a sweep has let it recover."""


@dataclass(frozen=True, kw_only=True)
class AssociationReport:
    """What was written."""

    run_id: str | None
    """For ``undo``, which takes everything back; None where nothing was to be written."""
    pages: int
    """Pages that were looked at: suspects, forgotten and derived memories are left out."""
    keys: int
    edges: int
    reweighted: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def associate(
    bank: MemoryBank,
    *,
    graph_keys: GraphKeys | None = None,
    decay: float = DECAY,
    progress: Progress | None = None,
    tenant_keys: Sequence[str] | None = None,
) -> AssociationReport:
    """Write sentence keys, scene keys, bridges and graded weights for the pages of a bank.

    Args:
        bank: With the embedder that it was filled with.
        graph_keys: Metadata fields that say where a memory belongs.
        decay: Strength of the graded decay; 0 leaves weights alone.
        progress: Called as ``progress("associate", done, 4)``, once for each tenant.
        tenant_keys: As in ``DreamConfig``.

    Raises:
        ConfigError: The bank has no embedder, ``decay`` is negative, or ``tenant_keys`` are no names, or name
            a field that no memory has.
        BankLockedError: Another dreamer is at work.
    """
    if bank.embedder is None:
        raise ConfigError(
            "sentences are embedded: open the bank with embedder=..., the one it was filled with"
        )
    if not decay >= 0:
        raise ConfigError(f"decay={decay!r} must be 0 or more")
    given = None if tenant_keys is None else checked_tenant_keys(tenant_keys)
    started = time.perf_counter()
    with bank.state.lock("cycle", wait=0.0) as lock:
        remove_unborn(bank, lock)
        named = known_tenant_keys(bank.state, given)
        graph = read_graph(bank, graph_keys, tenant_keys=named)
        check_tenant_keys(graph, given or ())
        parts = TenantParts(graph, bank.state.retrieval_keys(), named, np.random.default_rng(0))
        heed = heeding(bank)
        proposed = [
            heed(repair)
            for part in parts
            for repair in association_repairs(part.graph, part.keys, bank.embedder, decay, progress)
        ]
        repairs = [repair for repair in proposed if repair.changes_something]
        run_id = _commit(bank, repairs, lock, named) if repairs else None
    return AssociationReport(
        run_id=run_id,
        pages=len(usable(graph).tolist()),
        keys=sum(len(repair.keys) for repair in repairs),
        edges=sum(len(repair.edges) for repair in repairs),
        reweighted=sum(len(repair.weights) for repair in repairs),
        seconds=time.perf_counter() - started,
    )


def association_repairs(
    graph: MemoryGraph,
    keys: Sequence[RetrievalKey],
    embedder: Embedder,
    decay: float = DECAY,
    progress: Progress | None = None,
    value: FloatArray | None = None,
) -> Iterator[Repair]:
    """Yield what is not written yet, one repair per kind, each made when it is asked for.

    Args:
        graph: The pages.
        keys: What earlier dreams wrote.
        embedder: Embeds sentences.
        decay: Strength of the graded decay; 0 leaves weights alone.
        progress: See ``associate``.
        value: How much each memory says, where it is known; see ``telling``.
    """
    known = {(key.memory_id, key.kind, key.text) for key in keys}

    def new(keys: list[RetrievalKey]) -> tuple[RetrievalKey, ...]:
        return tuple(key for key in keys if (key.memory_id, key.kind, key.text) not in known)

    rows = usable(graph).tolist()
    said = {memory_id for memory_id, kind, _ in known if kind == "sentence"}
    unread = [row for row in rows if graph.ids[row] not in said]
    stages: list[Callable[[], Repair]] = [
        lambda: Repair(
            operation="extract",
            reason="each sentence of a page finds the page",
            keys=new(sentence_keys(graph, unread, lambda texts: _embed(embedder, texts))),
        ),
        lambda: Repair(
            operation="synthesize",
            reason="the turns around a page find it",
            keys=new([key for width in SCENES for key in scene_keys(graph, rows, width)]),
        ),
        lambda: Repair(
            operation="link",
            reason="pages of near content lead to each other",
            edges=tuple(edge for edge in bridge_edges(graph) if not _linked(graph, edge)),
        ),
        lambda: Repair(
            operation="prune",
            reason="pages that say little count for less",
            weights=_lowered(graph, decay, value),
        ),
    ]
    for done, stage in enumerate(stages, start=1):
        repair = stage()
        if progress is not None:
            progress("associate", done, STAGES)
        if repair.keys or repair.edges or repair.weights:
            yield repair


def _linked(graph: MemoryGraph, edge: Edge) -> bool:
    return graph.row_of[edge.target] in graph.explicit.get(graph.row_of[edge.source], ())


def _commit(bank: MemoryBank, repairs: list[Repair], lock: BankLock, tenant_keys: Sequence[str]) -> str:
    with bank.state.transaction("cycle", lock=lock) as run:
        run.config = {FIELD: list(tenant_keys)}
        run.report = {"repairs": len(repairs)}
    for repair in repairs:
        apply_repair(bank, repair, lock=lock, parent=run.run_id, tenant_keys=tenant_keys)
    return run.run_id


def _lowered(graph: MemoryGraph, decay: float, value: FloatArray | None) -> dict[str, float]:
    """Return the graded weights of pages that nothing has lowered yet; a forgotten page stays forgotten."""
    graded = graded_weights(graph, decay, value)
    fresh = np.flatnonzero((graph.weights >= RECOVERED) & (graded < RECOVERED))
    return {graph.ids[row]: float(graded[row]) for row in fresh}


def _embed(embedder: Embedder, texts: list[str]) -> FloatArray:
    return np.asarray(embedder.embed_documents(texts), np.float32)
