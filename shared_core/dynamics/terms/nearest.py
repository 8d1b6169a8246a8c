"""The nearest memories of each memory, one block of cosines at a time. Pure, numpy only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array, FloatArray

BLOCK = 1024
"""Rows of cosines that are held at once: 1024 N numbers, never N x N."""
_ITSELF = -2.0


def nearest_rows(unit: FloatArray, count: int) -> Array:
    """Return the rows of the nearest other memories of each memory, nearest first.

    Args:
        unit: (N, d) unit vectors.
        count: How many, at most.

    Returns:
        Shape (N, min(count, N - 1)), at least no column.
    """
    size = len(unit)
    count = max(0, min(count, size - 1))
    found = np.zeros((size, count), np.int64)
    for start in range(0, size if count else 0, BLOCK):
        rows = np.arange(start, min(start + BLOCK, size))
        cosines = unit[rows] @ unit.T
        cosines[np.arange(len(rows)), rows] = _ITSELF
        near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(cosines, near, axis=1), axis=1, kind="stable")
        found[rows] = np.take_along_axis(near, order, axis=1)
    return found
