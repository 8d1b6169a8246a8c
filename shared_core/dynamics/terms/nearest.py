"""The nearest memories of each memory: all cosines, in blocks, or by cells in a large bank. Pure numpy.

Source: none, ours [O]. Cells are an inverted file: every memory belongs to the nearest of about sqrt(N)
sampled memories, and is compared with the members of its few nearest cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array, FloatArray

BLOCK = 1024
"""Rows of cosines that are held at once: 1024 N numbers, never N x N."""
EXACT = 40_000
"""Memories up to which all cosines are computed: half a minute on two cores [O]."""
PROBED = 40
"""Cells that a memory is compared with [O]."""
_ITSELF = -2.0


def nearest_rows(unit: FloatArray, count: int, *, exact: int = EXACT, seed: int = 0) -> Array:
    """Return the rows of the nearest other memories of each memory, nearest first.

    Args:
        unit: (N, d) unit vectors.
        count: How many, at most.
        exact: Above so many memories most of the nearest are found, not all.
        seed: Of the sampled cells.

    Returns:
        Shape (N, min(count, N - 1)), at least no column.
    """
    size = len(unit)
    count = max(0, min(count, size - 1))
    if not count:
        return np.zeros((size, 0), np.int64)
    if size > exact:
        return _by_cells(unit, count, seed)
    found = np.zeros((size, count), np.int64)
    for start in range(0, size, BLOCK):
        rows = np.arange(start, min(start + BLOCK, size))
        found[rows] = _best(unit, rows, None, count)
    return found


def _by_cells(unit: FloatArray, count: int, seed: int) -> Array:
    size = len(unit)
    rng = np.random.default_rng(seed)
    centres = unit[np.sort(rng.choice(size, int(np.sqrt(size)), replace=False))]
    # neighbouring cells share most of what they are compared with, so that a cell is one block
    own = np.concatenate(
        [np.argmax(unit[start : start + BLOCK] @ centres.T, axis=1) for start in range(0, size, BLOCK)]
    )
    members = np.split(
        np.argsort(own, kind="stable"), np.cumsum(np.bincount(own, minlength=len(centres)))[:-1]
    )
    probed = np.argsort(-(centres @ centres.T), axis=1, kind="stable")
    found = np.zeros((size, count), np.int64)
    for cell, rows in enumerate(members):
        others = np.concatenate([members[near] for near in _enough(probed[cell], members, count)])
        for start in range(0, len(rows), BLOCK):
            part = rows[start : start + BLOCK]
            found[part] = _best(unit, part, others, count)
    return found


def _enough(cells: Array, members: list[Array], count: int) -> Array:
    """Return the nearest cells: as many as are probed, and more where they hold too few memories."""
    held = np.cumsum([len(members[cell]) for cell in cells])
    return cells[: max(PROBED, int(np.searchsorted(held, count + 1)) + 1)]


def _best(unit: FloatArray, rows: Array, others: Array | None, count: int) -> Array:
    """Return for ``rows`` the nearest of ``others``, of all where that is None."""
    cosines = unit[rows] @ (unit if others is None else unit[others]).T
    itself = rows if others is None else np.argsort(others)[np.searchsorted(np.sort(others), rows)]
    cosines[np.arange(len(rows)), itself] = _ITSELF
    near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(cosines, near, axis=1), axis=1, kind="stable")
    near = np.take_along_axis(near, order, axis=1)
    return near if others is None else others[near]
