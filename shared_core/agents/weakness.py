"""How weak each memory is, and which memory it lacks a link to.

Reads the graph and, for the partners, rankings; decides nothing about repairs.

Source: MemDream Eq. 3 and Eq. 4 [S]; the lambdas, the threshold and the bound T are ours [O].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.associations import graded_weights
from shared_core.agents.protocol import Target, Weakness
from shared_core.bank.derived import SUSPECT
from shared_core.dynamics.terms.nearest import nearest_rows

if TYPE_CHECKING:
    from shared_core.agents.dream_config import DreamConfig
    from shared_core.bank.graph import MemoryGraph
    from shared_core.types import Array, BoolArray, FloatArray

LEAST_WEIGHT = 0.1
"""Memories below it are forgotten ones, and never repaired [O]."""
RELATED = 0.2
"""Centred cosine from which two memories have something to do with each other [O]."""
LONG_SESSION, SESSION_EXACT = 256, 4_000
"""Memories of a session from which its nearest are sought for all at once, and beyond which by cells [O]."""
_KINDS: tuple[Weakness, ...] = ("isolated", "redundant", "stale")


def usable(graph: MemoryGraph) -> Array:
    """Return the rows that may be asked about and quoted: not derived, suspect or forgotten."""
    rows: Array = np.flatnonzero(is_usable(graph))
    return rows


def is_usable(graph: MemoryGraph) -> BoolArray:
    """Return which memories may be asked about and quoted, shape (N,)."""
    found: BoolArray = ~graph.derived & (graph.suspicion < SUSPECT) & (graph.weights >= LEAST_WEIGHT)
    return found


def worth_asking(graph: MemoryGraph, value: FloatArray | None = None) -> Array:
    """Return the usable rows that say something: not the emptiest third by ``graded_weights`` [O].

    Probes about greetings would protect them from losing rank.

    Args:
        graph: The graph.
        value: How much each memory says, where it is known; see ``telling``.
    """
    rows = usable(graph)
    if not len(rows):
        return rows
    weights = graded_weights(graph, 1.0, value)[rows]
    found: Array = rows[weights >= np.quantile(weights, 1 / 3)]
    return found


def weakness_terms(graph: MemoryGraph) -> FloatArray:
    """Return the three terms of Eq. 3 before their lambdas, shape (N, 3), each in [0, 1].

    T is the age of the oldest memory, "now" the time of the latest, so that the same bank gives the same
    scores; a memory of unknown age counts as fresh.
    """
    found = np.zeros((len(graph), 3))
    if not len(graph):
        return found
    degrees = np.zeros(len(graph), np.int64)
    found[:, 1] = _nearest_in_long_sessions(graph)
    for row in range(len(graph)):
        linked = graph.linked(row)
        degrees[row] = graph.degree(row, linked)
        mates = graph.in_session.get(int(graph.session[row]), np.zeros(0, np.int64))
        near = np.union1d(linked, mates) if len(mates) < LONG_SESSION else linked
        near = near[near != row]
        if len(near):
            found[row, 1] = max(found[row, 1], float((graph.unit[near] @ graph.unit[row]).max()))
    found[:, 0] = 1.0 - degrees / max(1, int(degrees.max()))
    known = graph.last_access[~np.isnan(graph.last_access)]
    if len(known) and (span := float(known.max() - known.min())) > 0:
        found[:, 2] = np.nan_to_num((known.max() - graph.last_access) / span)
    return np.clip(found, 0.0, 1.0)


def _nearest_in_long_sessions(graph: MemoryGraph) -> FloatArray:
    """Return the cosine of each memory of a long session to its nearest there, 0 for others, shape (N,)."""
    found = np.zeros(len(graph))
    for rows in graph.in_session.values():
        if len(rows) >= LONG_SESSION:
            unit = graph.unit[rows]
            near = nearest_rows(unit, 1, exact=SESSION_EXACT)[:, 0]
            found[rows] = np.einsum("ij,ij->i", unit, unit[near])
    return np.maximum(found, 0.0)


def weak_targets(terms: FloatArray, rows: Sequence[int], config: DreamConfig, limit: int) -> list[Target]:
    """Return the weakest of some rows with phi(v) at or over the threshold, weakest first.

    Args:
        terms: Of ``weakness_terms``, shape (N, 3).
        rows: Candidates.
        config: The lambdas and the threshold.
        limit: Most targets.
    """
    parts = terms * np.array([config.connectivity, config.redundancy, config.staleness])
    score = parts.sum(axis=1)
    order = sorted(
        (row for row in rows if score[row] >= config.threshold), key=lambda row: (-score[row], row)
    )
    return [
        Target(row=row, partner=None, weakness=_KINDS[int(parts[row].argmax())], score=float(score[row]))
        for row in order[:limit]
    ]


def bridge_partner(
    graph: MemoryGraph, centred: FloatArray, row: int, rankings: Sequence[Sequence[int]]
) -> int | None:
    """Return the unlinked memory most often retrieved together with a row (Eq. 4), None where there is none.

    Args:
        graph: The graph; what shares an entity or session with the row, or an edge, is linked already.
        centred: Embeddings without what all have in common, shape (N, d): short texts look alike for no
            reason, and are partners only from a cosine of ``RELATED`` here.
        row: The target.
        rankings: What local probes about the target retrieved; those without the target count nothing.
    """
    allowed = is_usable(graph)
    allowed[graph.linked(row)] = False
    allowed[graph.in_session.get(int(graph.session[row]), [])] = False
    allowed[row] = False
    counts: Counter[int] = Counter()
    for ranking in rankings:
        if row in ranking:
            # what a repair would add stands behind the graph's own
            counts.update(other for other in ranking if other < len(allowed) and allowed[other])
    near = {other: float(centred[other] @ centred[row]) for other in counts}
    related = [other for other in counts if near[other] >= RELATED]
    return max(related, key=lambda other: (counts[other], near[other], -other), default=None)
