"""Where the columns of a sweep lie while it runs, and what computes on them.

Does: names what a sweep asks of an array library, and answers for numpy. The steps of a sweep take such a
library as ``xp`` and use only functions that numpy and torch both have, so that no formula is written twice.

Does not know: torch; ``shared_core.device`` answers for it.

Source: none, ours [O].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shared_core.dynamics.blocks import BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_core.types import Array, FloatArray


class Draws(Protocol):
    """A stream of random numbers; numpy's generator is one."""

    def standard_normal(self, size: int, dtype: Any) -> Any:
        """(size,) normal numbers in single precision; ``dtype`` is numpy's."""

    def standard_gamma(self, shape: float, size: int, dtype: Any) -> Any:
        """(size,) gamma numbers of this shape, 0 or more, in single precision."""


class Arrays(Protocol):
    """An array library, and the place where its arrays lie."""

    xp: Any
    """Its module."""
    block: int
    """Memories at once; part of what a seed means."""
    drawn: int
    """Memories whose noise is drawn at once, as above."""
    shared: bool
    """Blocks may be computed in several threads."""

    def put(self, column: FloatArray) -> Any:
        """Return a column, (N,) float64, as an array of this library; never written to."""

    def take(self, column: Any) -> Array:
        """Return an array of this library, (N,), as numpy's."""

    def streams(self, rng: np.random.Generator, count: int) -> Sequence[Draws]:
        """Return the random stream of each block; their seeds are drawn from ``rng``."""


class NumpyArrays:
    """Columns in this process's memory."""

    xp: Any = np
    block = BLOCK
    drawn = BLOCK // 2
    shared = True

    def put(self, column: FloatArray) -> FloatArray:
        """Return the column itself."""
        return column

    def take(self, column: Array) -> Array:
        """Return the column itself."""
        return column

    def streams(self, rng: np.random.Generator, count: int) -> list[np.random.Generator]:
        """Return ``rng`` itself, then independent generators that are seeded from it."""
        if count < 2:
            return [rng]
        seeds = np.random.SeedSequence(rng.integers(0, 1 << 32, size=4, dtype=np.uint32).tolist())
        return [rng, *(np.random.Generator(np.random.SFC64(seed)) for seed in seeds.spawn(count - 1))]


NUMPY = NumpyArrays()
