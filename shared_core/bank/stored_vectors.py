"""The embeddings of a stored bank, as a sweep reads them: from their cache as far as they are in it.

Knows neither state nor sweeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.intake import LARGEST_USABLE, SMALLEST_USABLE, has_direction
from shared_core.bank.matrix_cache import MatrixCache
from shared_core.bank.matrix_file import CachedVectors
from shared_core.dynamics.running_moments import Moments

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.types import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Embeddings of N memories: as stored, or divided by their norms, which are then kept beside them."""

    ids: list[str]
    rows: FloatArray
    """(N, d) float32; of norm 1 where ``norms`` is given."""
    norms: FloatArray | None = None
    """(N,) float64; None where ``rows`` are as stored."""
    moments: Moments | None = None
    """Of the rows that have a direction; None where ``rows`` are as stored."""

    @property
    def directed(self) -> BoolArray:
        """(N,) which a sweep can use, see ``intake.has_direction``."""
        if self.norms is None:
            return has_direction(self.rows)
        return (self.norms >= SMALLEST_USABLE) & (self.norms <= LARGEST_USABLE)

    def only(self, chosen: BoolArray) -> StoredVectors:
        """Return the vectors of some memories, (N,), all of them directed."""
        if chosen.all():
            return self
        ids = [memory_id for memory_id, use in zip(self.ids, chosen, strict=True) if use]
        if self.norms is None or self.moments is None:
            return StoredVectors(ids, self.rows[chosen])
        left_out = ~chosen & (self.norms > 0.0) & np.isfinite(self.norms)
        moments = self.moments.removed(self.rows[left_out])
        return StoredVectors(ids, self.rows[chosen], self.norms[chosen], moments)

    def as_stored(self) -> FloatArray:
        """Return the embeddings as stored, (N, d) float32, up to rounding."""
        return self.rows if self.norms is None else self.rows * self.norms[:, None].astype(np.float32)


def read_vectors(content: ChromaContent) -> StoredVectors:
    """Return all embeddings of a bank, in order of insertion.

    Those of a large embedded collection come from their cache, and from Chroma only what was written since;
    with their norms, whether they were cached or not, so that a sweep does not depend on the cache.
    """
    cache = MatrixCache(content)
    if not cache.covers(content.count()):
        return StoredVectors(*content.embeddings())
    found = (cache.current(content.ids()) if cache.exists() else None) or _read_anew(content, cache)
    return StoredVectors(found.ids, found.unit, found.norms, found.moments)


def _read_anew(content: ChromaContent, cache: MatrixCache) -> CachedVectors:
    version = cache.version()
    if version is None:
        return CachedVectors.of(*content.embeddings())
    # an index that was loaded earlier may hold what another process has rewritten since
    with content.anew() as fresh:
        found = CachedVectors.of(*fresh.embeddings())
    cache.save(found, version)
    return found
