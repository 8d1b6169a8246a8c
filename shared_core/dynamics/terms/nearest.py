"""The nearest memories of each memory: all cosines, in blocks, or by cells in a large bank. Pure numpy.

Source: none, ours [O]. Cells are an inverted file of cells of one size, whatever the bank's: it is split by
k-means, some ways at a time, until each part is small enough, and each memory is compared with the members
of the cells whose centres are nearest to it. Which those are is found the same way, among the cells' centres.
So the work per memory hardly grows with the bank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array, FloatArray

BLOCK = 1024
"""Rows of cosines that are held at once: 1024 N numbers, never N x N."""
EXACT = 10_000
"""Memories up to which all cosines are computed: about as long as by cells for so many [O]."""
CELL = 128
"""Memories of a cell, about [O]."""
PROBED = 48
"""Cells that a memory is compared with [O]."""
NEAR_GROUPS = 8
"""Groups of cells in which these are looked for [O]."""
_BRANCHES, _ROUNDS, _PER_BRANCH = 32, 4, 64
"""Of k-means: parts of a split, iterations, and sampled memories per part."""
_VISITORS = 4096
"""Rows that are compared with a cell at once."""
_ROW = (1 << 32) - 1
_NOBODY = -2.0


def nearest_rows(unit: FloatArray, count: int, *, exact: int = EXACT, seed: int = 0) -> Array:
    """Return the rows of the nearest other memories of each memory, nearest first.

    Args:
        unit: (N, d) unit vectors.
        count: How many, at most.
        exact: Above so many memories most of the nearest are found, not all.
        seed: Of the samples that split a large bank.

    Returns:
        Shape (N, min(count, N - 1)), at least no column.
    """
    size = len(unit)
    count = max(0, min(count, size - 1))
    if not count:
        return np.zeros((size, 0), np.int64)
    # no cell holds fewer than a quarter of ``CELL``, and eight or all are looked at
    if size > exact and count <= CELL:
        return _by_cells(unit, count, seed)
    found = np.zeros((size, count), np.int64)
    for start in range(0, size, BLOCK):
        rows = np.arange(start, min(start + BLOCK, size))
        cosines = unit[rows] @ unit.T
        cosines[np.arange(len(rows)), rows] = _NOBODY
        found[rows] = _largest(cosines, count)
    return found


def _by_cells(unit: FloatArray, count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    cells = _split(unit, CELL, rng)
    centres = _means(unit, cells)
    groups = _split(centres, max(1, int(np.sqrt(len(centres)))), rng)
    group_centres = _means(centres, groups)
    near = np.concatenate(
        [
            _largest(unit[start : start + BLOCK] @ group_centres.T, min(NEAR_GROUPS, len(groups)))
            for start in range(0, len(unit), BLOCK)
        ]
    )
    probed = _visit(unit, near, centres, groups, min(PROBED, len(cells)))
    return _visit(unit, probed, unit, cells, count, itself=True)


def _split(unit: FloatArray, size: int, rng: np.random.Generator) -> list[Array]:
    """Return rows in parts of ``size`` / 4 to 2 ``size``: near each other, but where very many are alike."""
    left, parts = [np.arange(len(unit))], []
    while left:
        rows = left.pop()
        if len(rows) <= 1.5 * size:
            parts.append(rows)
            continue
        found = _merged(_branches(unit, rows, min(_BRANCHES, -(-len(rows) // size)), rng), size / 4)
        if max(map(len, found)) > 0.9 * len(rows):
            parts += np.array_split(rows, -(-len(rows) // size))
        else:
            left += found
    return parts


def _merged(parts: list[Array], smallest: float) -> list[Array]:
    """Return the parts with those that are smaller than ``smallest`` put together."""
    kept = sorted((part for part in parts if len(part) >= smallest), key=len)
    small = [part for part in parts if len(part) < smallest]
    if not small:
        return kept
    rest = np.concatenate(small)
    if len(rest) < smallest and kept:
        return [np.concatenate([kept[0], rest]), *kept[1:]]
    return [*kept, rest]


def _branches(unit: FloatArray, rows: Array, count: int, rng: np.random.Generator) -> list[Array]:
    """Return rows in at most ``count`` parts, by k-means on a sample of them."""
    sample = np.sort(rng.choice(rows, min(len(rows), _PER_BRANCH * count), replace=False))
    centres = unit[np.sort(rng.choice(sample, count, replace=False))]
    for _round in range(_ROUNDS):
        centres = _means(unit, _parts(unit, sample, centres))
    return _parts(unit, rows, centres)


def _parts(unit: FloatArray, rows: Array, centres: FloatArray) -> list[Array]:
    """Return rows by the centre that each is nearest to; no part is empty."""
    own = np.concatenate(
        [
            np.argmax(unit[rows[start : start + BLOCK]] @ centres.T, axis=1)
            for start in range(0, len(rows), BLOCK)
        ]
    )
    sizes = np.bincount(own, minlength=len(centres))
    ordered = rows[np.argsort(own, kind="stable")]
    return [part for part in np.split(ordered, np.cumsum(sizes)[:-1]) if len(part)]


def _means(unit: FloatArray, parts: list[Array]) -> FloatArray:
    """Return the direction of each part's mean."""
    total = np.stack([unit[rows].sum(axis=0) for rows in parts])
    norms = np.linalg.norm(total, axis=1, keepdims=True)
    means: FloatArray = total / np.maximum(norms, np.finfo(total.dtype).tiny)
    return means


def _visit(
    unit: FloatArray,
    near: Array,
    items: FloatArray,
    groups: list[Array],
    count: int,
    *,
    itself: bool = False,
) -> Array:
    """Return for each row the nearest items among those of the groups that it visits, nearest first.

    Args:
        unit: (N, d) unit vectors.
        near: (N, P) which groups each visits, none twice; -1 is none.
        items: (M, d) unit vectors.
        groups: Rows of ``items``.
        count: How many.
        itself: Items are the rows, and none is its own neighbour.

    Returns:
        (N, count) rows of ``items``, -1 where the groups hold fewer.
    """
    # by group, then by row: one sort of numbers, which is faster than one of places
    visits = ((near.astype(np.int64) << 32) | np.arange(len(unit))[:, None])[near >= 0]
    visits.sort()
    edges = np.searchsorted(visits, np.arange(len(groups) + 1) << 32)
    found = np.full((len(unit), count), -1, np.int32)
    cosines = np.full((len(unit), count), _NOBODY, unit.dtype)
    for group, members in enumerate(groups):
        content = items[members].T
        for start in range(edges[group], edges[group + 1], _VISITORS):
            rows = visits[start : min(start + _VISITORS, edges[group + 1])] & _ROW
            here = rows[:, None] == members if itself else None
            _improve(cosines, found, rows, unit[rows] @ content, members, here)
    best = np.argsort(-cosines, axis=1, kind="stable")
    return np.take_along_axis(found, best, axis=1)


def _improve(
    cosines: FloatArray, found: Array, rows: Array, new: FloatArray, members: Array, barred: Array | None
) -> None:
    """Keep for ``rows`` the best of what was found before and of a group's members; writes to both."""
    count = found.shape[1]
    if barred is not None:
        new[barred] = _NOBODY
    both = np.concatenate([cosines[rows], new], axis=1)
    best = np.argpartition(both, -count, axis=1)[:, -count:]
    old = np.take_along_axis(found[rows], np.minimum(best, count - 1), axis=1)
    cosines[rows] = np.take_along_axis(both, best, axis=1)
    found[rows] = np.where(best < count, old, members[np.maximum(best - count, 0)])


def _largest(values: FloatArray, count: int) -> Array:
    """Return the columns of the largest values of each row, largest first."""
    best = np.argpartition(values, -count, axis=1)[:, -count:]
    order = np.argsort(-np.take_along_axis(values, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)
