"""Where each memory lies relative to its bank: norms, centroid, cosines.

Does: validates raw embeddings and reads them in blocks, without a normalised copy of the bank.

Does not know: noise, activation, weights.

Source: DREAM section 4.1 names the bank's centroid [S]; that it is the mean of the unit vectors, normalised,
is [O], so that no memory moves it by its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.blocks import SERIAL, Workers, blocks
from shared_core.errors import ConfigError, InvalidMemoryError

if TYPE_CHECKING:
    from shared_core.types import Array, FloatArray

SMALLEST_NORM, LARGEST_NORM = 1e-15, 1e15
"""Outside, squares leave the range of single precision; no embedder comes near either."""
_BLOCK_ELEMENTS = 1 << 17
"""Half a megabyte: stays in cache between two uses, and below where BLAS would wait for its threads."""


@dataclass(frozen=True, eq=False)
class BankGeometry:
    """What a sweep needs to know of N embeddings of dimension d."""

    norms: FloatArray
    """(N,) Euclidean norms, in stored units."""
    direction: FloatArray
    """(d,) unit vector of the centroid; zeros where the unit vectors cancel."""
    cosines: FloatArray
    """(N,) cos(v, centroid) in [-1, 1]; zeros where there is no direction."""
    identical: bool
    """Every memory has the same direction, up to rounding."""


def as_matrix(embeddings: Array) -> FloatArray:
    """Return the embeddings as a float32 or float64 matrix, without a copy where they are one already.

    Args:
        embeddings: (N, d) numbers.

    Returns:
        (N, d) float32 or float64; never written to.

    Raises:
        ConfigError: The shape is not two-dimensional.
    """
    matrix = np.asarray(embeddings)
    if matrix.ndim != 2:
        raise ConfigError(f"embeddings have shape {matrix.shape}, expected (memories, dimensions)")
    if matrix.dtype in (np.float32, np.float64):
        return matrix
    return matrix.astype(np.float32 if matrix.dtype == np.float16 else np.float64)


def measure(
    embeddings: FloatArray,
    *,
    norms: FloatArray | None = None,
    total: FloatArray | None = None,
    workers: Workers = SERIAL,
) -> BankGeometry:
    """Return norms, centroid and cosines, from two reads of the bank, or one (section 4.1).

    Args:
        embeddings: (N, d) float32 or float64 rows, N at least 1: raw, or of norm 1 where ``norms`` is given.
        norms: (N,) norms of the raw rows, where the rows were divided by them; None for raw rows.
        total: (d,) sum of the rows of norm 1, where it is kept up, see ``running_moments``: saves one read.
            Only with ``norms``.
        workers: Threads that read.

    Returns:
        The bank's geometry in float64. Cosines that differ only by rounding are made equal.

    Raises:
        InvalidMemoryError: A row has no direction: its norm is 0, not finite, or beyond any embedder's.
    """
    count, dim = embeddings.shape
    parts = blocks(count, max(1, _BLOCK_ELEMENTS // max(1, dim)))
    lengths = None
    if norms is None:
        norms, total = _norms_and_sum(embeddings, parts, workers)
        lengths = norms
    elif total is None:
        total = _sum(embeddings, parts, workers)
    _reject_rows_without_direction(norms)
    mean = total / count
    length = float(np.linalg.norm(mean))
    rounding = 16 * float(np.finfo(embeddings.dtype).eps)
    if length <= rounding:
        return BankGeometry(norms, np.zeros_like(mean), np.zeros(count), identical=False)
    direction = mean / length
    cosines = _cosines(embeddings, direction, lengths, parts, workers)
    identical = bool(cosines.min() >= 1.0 - rounding)
    # Without noise a threshold would otherwise find outliers among rounding errors.
    if np.ptp(cosines) <= rounding:
        cosines = np.full(count, 1.0 if identical else float(cosines.mean()))
    return BankGeometry(norms, direction, cosines, identical)


def _norms_and_sum(
    embeddings: FloatArray, parts: list[slice], workers: Workers
) -> tuple[FloatArray, FloatArray]:
    """Return the norms (N,) and the sum of the unit vectors (d,), each block read once."""
    norms = np.empty(len(embeddings))

    def read(_number: int, part: slice) -> FloatArray:
        rows = embeddings[part]
        # Bad rows are named after the pass; testing each block would cost another read.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            norms[part] = lengths
            return np.asarray((1 / lengths) @ rows)

    return norms, _added_up(workers.map(read, parts), embeddings.shape[1])


def _sum(embeddings: FloatArray, parts: list[slice], workers: Workers) -> FloatArray:
    """Return the sum of the rows, (d,)."""
    ones = np.ones(parts[0].stop, embeddings.dtype)
    sums = workers.map(lambda _number, part: ones[: part.stop - part.start] @ embeddings[part], parts)
    return _added_up(sums, embeddings.shape[1])


def _added_up(sums: list[FloatArray], dim: int) -> FloatArray:
    # one by one, in double precision: the result must not depend on who computed which
    total = np.zeros(dim)
    for part in sums:
        total += part
    return total


def _cosines(
    embeddings: FloatArray,
    direction: FloatArray,
    norms: FloatArray | None,
    parts: list[slice],
    workers: Workers,
) -> FloatArray:
    """Return cos(v, direction), (N,), of rows with these norms; of norm 1 where None."""
    cosines = np.empty(len(embeddings))
    narrow = direction.astype(embeddings.dtype)

    def read(_number: int, part: slice) -> None:
        # einsum reads at memory bandwidth; BLAS is slower on such a tall matrix, or waits for its threads.
        dots = np.einsum("ij,j->i", embeddings[part], narrow)
        np.clip(dots if norms is None else dots / norms[part], -1.0, 1.0, out=cosines[part])

    workers.map(read, parts)
    return cosines


def _reject_rows_without_direction(norms: FloatArray) -> None:
    valid = (norms >= SMALLEST_NORM) & (norms <= LARGEST_NORM)
    if valid.all():
        return
    bad = np.flatnonzero(~valid)
    raise InvalidMemoryError(
        f"embedding in row {bad[0]} has norm {norms[bad[0]]:g}, expected a finite norm from "
        f"{SMALLEST_NORM:g} to {LARGEST_NORM:g} ({len(bad)} of {len(norms)} rows are invalid): "
        "embed these memories again or remove them"
    )


def unit_rows(matrix: FloatArray) -> FloatArray:
    """Return the rows of (n, d) scaled to norm 1, in the same dtype; a row of norm 0, or not finite, is 0."""
    matrix = np.where(np.isfinite(matrix).all(axis=1, keepdims=True), matrix, matrix.dtype.type(0))
    # the largest entry first: the squares of huge or tiny numbers leave the range of float32
    peak = np.abs(matrix).max(axis=1, keepdims=True, initial=0.0)
    unit: FloatArray = np.divide(matrix, peak, out=np.zeros_like(matrix), where=peak > 0)
    norm = np.linalg.norm(unit, axis=1, keepdims=True)
    np.divide(unit, norm, out=unit, where=norm > 0)
    return unit
