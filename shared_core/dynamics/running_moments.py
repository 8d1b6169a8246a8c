"""Running moments: count, mean and spread per coordinate, kept up while rows come and go.

Does: first and second moments of rows, and their update by rows that are added or removed, without another
look at the others.

Does not know: what the rows are.

Source: none, ours [O]. The update is that of Chan, Golub and LeVeque (1979). Squared deviations from the mean
are kept rather than squares, whose difference would lose a small spread around a large mean. Rounding is
relative to the largest spread there was: after nearly all rows have gone, compute those left anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from shared_core.dynamics.blocks import SERIAL, Workers, blocks
from shared_core.errors import ConfigError
from shared_core.types import FloatArray

_BLOCK_ELEMENTS = 1 << 16


@dataclass(frozen=True, eq=False)
class Moments:
    """Of n rows with d coordinates; of plain numbers, where d is left out."""

    count: int
    """n, 0 or more."""
    mean: FloatArray
    """(d,) float64, zeros where there are no rows."""
    scatter: FloatArray
    """(d,) float64, the sum of squared deviations from the mean."""

    @classmethod
    def of(cls, rows: FloatArray, workers: Workers = SERIAL) -> Moments:
        """Return the moments of (n, d) rows, or of (n,) numbers, from one read of them."""
        dim = max(1, int(np.prod(rows.shape[1:])))

        def part_moments(_number: int, part: slice) -> Moments:
            block = rows[part].astype(np.float64, copy=False)
            mean = block.mean(axis=0)
            return cls(len(block), mean, np.square(block - mean).sum(axis=0))

        parts = blocks(len(rows), max(1, _BLOCK_ELEMENTS // dim))
        nothing = cls(0, np.zeros(rows.shape[1:]), np.zeros(rows.shape[1:]))
        return reduce(cls.merged, workers.map(part_moments, parts), nothing)

    @property
    def total(self) -> FloatArray:
        """(d,) the sum of the rows."""
        return np.asarray(self.count * self.mean)

    @property
    def std(self) -> FloatArray:
        """(d,) population standard deviation; zeros where there are no rows."""
        return np.asarray(np.sqrt(self.scatter / max(1, self.count)))

    def merged(self, other: Moments) -> Moments:
        """Return the moments of these rows and others."""
        if not self.count or not other.count:
            return other if other.count else self
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        between = np.square(apart) * (self.count * other.count / count)
        return Moments(count, mean, self.scatter + other.scatter + between)

    def without(self, other: Moments) -> Moments:
        """Return the moments of what is left when the rows of ``other``, which must be among these, go.

        Raises:
            ConfigError: There are more rows to remove than there are.
        """
        count = self.count - other.count
        if count < 0:
            raise ConfigError(f"{other.count} rows cannot be removed from {self.count}")
        if not other.count:
            return self
        if not count:
            return Moments(0, np.zeros_like(self.mean), np.zeros_like(self.mean))
        mean = self.mean + (self.mean - other.mean) * (other.count / count)
        between = np.square(other.mean - mean) * (count * other.count / self.count)
        # what is left has no spread below zero, whatever the rounding
        return Moments(count, mean, np.maximum(0.0, self.scatter - other.scatter - between))

    def added(self, rows: FloatArray) -> Moments:
        """``merged`` with the moments of (n, d) rows."""
        return self.merged(Moments.of(rows))

    def removed(self, rows: FloatArray) -> Moments:
        """``without`` the moments of (n, d) rows."""
        return self.without(Moments.of(rows))
