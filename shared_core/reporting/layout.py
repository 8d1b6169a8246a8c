"""Where the nodes of a graph stand on a sheet: a force layout, the same for the same graph. numpy only.

Every node repels every other, edges pull their ends together, and the middle holds everything; at the end
nodes that still overlap are pushed apart. O(N^2) per step: made for a thousand nodes.

Source: Fruchterman and Reingold, Graph drawing by force-directed placement (1991) [S]; the start from the
principal components, the pull to the middle, and the parting of overlaps are ours [O].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array, FloatArray

SHEET = 1000.0
STEPS, PARTING_STEPS = 120, 30
MIDDLE = 0.06
"""Pull to the middle per step, as a share of the distance."""
GOLDEN = np.pi * (3.0 - np.sqrt(5.0))
TINY = 1e-6


def place_nodes(start: FloatArray, edges: Array, strength: FloatArray) -> FloatArray:
    """Return a place on a sheet for each node, shape (N, 2), in [0, 1000].

    Args:
        start: (N, d) what nodes of near content should stand near by, such as embeddings; d may be 0.
        edges: (E, 2) numbers of nodes.
        strength: (E,) how much each edge pulls.
    """
    count = len(start)
    if count == 0:
        return np.empty((0, 2))
    place = _first_places(start)
    ideal = 1.0 / np.sqrt(count)
    for heat in np.linspace(0.1, 0.005, STEPS):
        move = _repulsion(place, ideal) - MIDDLE * place * np.sqrt(count)
        _pull(move, place, edges, strength, ideal)
        length = np.sqrt((move**2).sum(axis=1, keepdims=True)) + TINY
        place += move / length * np.minimum(length, heat)
    return _on_sheet(_parted(_on_sheet(place), 0.62 * SHEET / np.sqrt(count)))


def _first_places(start: FloatArray) -> FloatArray:
    """Return the two main directions of the content, on a spiral so that nothing coincides, (N, 2)."""
    count = len(start)
    turn = np.arange(count) * GOLDEN
    radius = np.sqrt((np.arange(count) + 0.5) / count)
    spiral: FloatArray = 0.5 * radius[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    if count < 3 or start.shape[1] < 2:
        return spiral
    centred = start.astype(np.float64) - start.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    axes = directions[:, -2:]
    # a direction and its opposite are equally good: the larger side is made positive, for the same picture
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    main: FloatArray = centred @ axes
    spread = np.abs(main).max()
    found: FloatArray = 0.1 * spiral + (main / spread if spread > TINY else 0.0)
    return found


def _repulsion(place: FloatArray, ideal: float) -> FloatArray:
    """Return the sum of ideal^2 / distance away from every other node, (N, 2)."""
    x, y = place[:, 0].astype(np.float32), place[:, 1].astype(np.float32)
    dx, dy = x[:, None] - x, y[:, None] - y
    share = np.float32(ideal**2) / (dx * dx + dy * dy + np.float32(TINY))
    np.fill_diagonal(share, 0.0)
    return np.stack([(share * dx).sum(axis=1), (share * dy).sum(axis=1)], axis=1).astype(np.float64)


def _pull(move: FloatArray, place: FloatArray, edges: Array, strength: FloatArray, ideal: float) -> None:
    """Add distance^2 / ideal along every edge to ``move``."""
    if not len(edges):
        return
    one, other = edges[:, 0], edges[:, 1]
    apart = place[one] - place[other]
    force = apart * (np.sqrt((apart**2).sum(axis=1)) / ideal * strength)[:, None]
    np.subtract.at(move, one, force)
    np.add.at(move, other, force)


def _parted(place: FloatArray, least: float) -> FloatArray:
    """Push apart what stands nearer than ``least``."""
    for _ in range(PARTING_STEPS):
        dx, dy = place[:, 0, None] - place[:, 0], place[:, 1, None] - place[:, 1]
        apart = np.sqrt(dx * dx + dy * dy) + TINY
        short = np.clip(least - apart, 0.0, None)
        np.fill_diagonal(short, 0.0)
        if not short.any():
            break
        share = 0.5 * short / apart
        place = place + np.stack([(share * dx).sum(axis=1), (share * dy).sum(axis=1)], axis=1)
    return place


def _on_sheet(place: FloatArray) -> FloatArray:
    low, high = place.min(axis=0), place.max(axis=0)
    side = float((high - low).max())
    if side < TINY:
        return np.full_like(place, SHEET / 2)
    found: FloatArray = SHEET / 2 + (place - (low + high) / 2) * (SHEET / side)
    return found
