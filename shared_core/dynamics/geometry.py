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

from shared_core.errors import ConfigError, InvalidMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def measure(embeddings: FloatArray) -> BankGeometry:
    """Return norms, centroid and cosines, from two reads of the bank (section 4.1).

    Args:
        embeddings: (N, d) raw float32 or float64 rows, N at least 1.

    Returns:
        The bank's geometry in float64. Cosines that differ only by rounding are made equal.

    Raises:
        InvalidMemoryError: A row has no direction: its norm is 0, not finite, or beyond any embedder's.
    """
    norms, total = _norms_and_sum(embeddings)
    _reject_rows_without_direction(norms)
    mean = total / len(norms)
    length = float(np.linalg.norm(mean))
    rounding = 16 * float(np.finfo(embeddings.dtype).eps)
    if length <= rounding:
        return BankGeometry(norms, np.zeros_like(mean), np.zeros(len(norms)), identical=False)
    direction = mean / length
    cosines = np.clip(_dots(embeddings, direction) / norms, -1.0, 1.0)
    identical = bool(cosines.min() >= 1.0 - rounding)
    # Without noise a threshold would otherwise find outliers among rounding errors.
    if np.ptp(cosines) <= rounding:
        cosines = np.full(len(norms), 1.0 if identical else float(cosines.mean()))
    return BankGeometry(norms, direction, cosines, identical)


def _norms_and_sum(embeddings: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the norms (N,) and the sum of the unit vectors (d,), each block read once."""
    count, dim = embeddings.shape
    norms, total = np.empty(count), np.zeros(dim)
    # Bad rows are named after the pass; testing each block would cost another read.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for part in _blocks(count, dim):
            rows = embeddings[part]
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            total += (1 / lengths) @ rows
            norms[part] = lengths
    return norms, total


def _dots(embeddings: FloatArray, direction: FloatArray) -> FloatArray:
    # einsum reads rows at memory bandwidth; BLAS is slower on such a tall matrix, or waits for its threads.
    return np.asarray(np.einsum("ij,j->i", embeddings, direction.astype(embeddings.dtype)))


def _blocks(count: int, dim: int) -> Iterator[slice]:
    step = max(1, _BLOCK_ELEMENTS // max(1, dim))
    return (slice(start, start + step) for start in range(0, count, step))


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
