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

if TYPE_CHECKING:
    from shared_core.agents.dream_config import DreamConfig
    from shared_core.bank.graph import MemoryGraph
    from shared_core.types import Array, FloatArray

LEAST_WEIGHT = 0.1
"""Memories below it are forgotten ones, and never repaired [O]."""
RELATED = 0.2
"""Centred cosine from which two memories have something to do with each other [O]."""
_KINDS: tuple[Weakness, ...] = ("isolated", "redundant", "stale")


def usable(graph: MemoryGraph) -> Array:
    """Return the rows that may be asked about and quoted: not derived, suspect or forgotten."""
    found = ~graph.derived & (graph.suspicion < SUSPECT) & (graph.weights >= LEAST_WEIGHT)
    rows: Array = np.flatnonzero(found)
    return rows


def worth_asking(graph: MemoryGraph) -> Array:
    """Return the usable rows that say something: not the emptiest third by ``graded_weights`` [O].

    Probes about greetings would protect them from losing rank.
    """
    rows = usable(graph)
    if not len(rows):
        return rows
    value = graded_weights(graph, 1.0)[rows]
    found: Array = rows[value >= np.quantile(value, 1 / 3)]
    return found


def weakness_terms(graph: MemoryGraph) -> FloatArray:
    """Return the three terms of Eq. 3 before their lambdas, shape (N, 3), each in [0, 1].

    T is the age of the oldest memory, "now" the time of the latest, so that the same bank gives the same
    scores; a memory of unknown age counts as fresh.
    """
    found = np.zeros((len(graph), 3))
    if not len(graph):
        return found
    degrees = graph.degrees()
    found[:, 0] = 1.0 - degrees / max(1, int(degrees.max()))
    for row in range(len(graph)):
        mates = graph.in_session.get(int(graph.session[row]), np.zeros(0, np.int64))
        near = np.union1d(graph.linked(row), mates)
        near = near[near != row]
        if len(near):
            found[row, 1] = max(0.0, float((graph.unit[near] @ graph.unit[row]).max()))
    known = graph.last_access[~np.isnan(graph.last_access)]
    if len(known) and (span := float(known.max() - known.min())) > 0:
        found[:, 2] = np.nan_to_num((known.max() - graph.last_access) / span)
    return np.clip(found, 0.0, 1.0)


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
    linked = set(graph.linked(row).tolist()) | {row}
    linked.update(graph.in_session.get(int(graph.session[row]), np.zeros(0, np.int64)).tolist())
    allowed = set(usable(graph).tolist()) - linked
    counts: Counter[int] = Counter()
    for ranking in rankings:
        if row in ranking:
            counts.update(other for other in ranking if other in allowed)
    near = {other: float(centred[other] @ centred[row]) for other in counts}
    related = [other for other in counts if near[other] >= RELATED]
    return max(related, key=lambda other: (counts[other], near[other], -other), default=None)
