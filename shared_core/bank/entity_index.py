"""Which memories mention which entities: the memory graph's shared-entity edges, without cliques.

An entity that m memories share would make m(m - 1)/2 edges; the index holds m entries instead, and gives
degrees and neighbours from them.

Source: MemDream section 3.1 (edges between nodes that share entities) [S]; the index, and that an entity
which many memories share connects nothing, are ours [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array

COMMON = 64
"""Memories above which an entity says nothing about two of them [O]: the speakers of a conversation."""
COMMON_SHARE, FEW = 0.2, 4
"""The same as a share of the bank, for small banks; never fewer than 4 memories [O]."""


class EntityIndex:
    """Entities of N memories, filed both ways.

    Args:
        entities: The names of each memory's entities, each once.
        common: Entities in more memories than this, or than a fifth of all, connect nothing.
    """

    def __init__(self, entities: Sequence[Sequence[str]], common: int = COMMON) -> None:
        numbers: dict[str, int] = {}
        flat = [numbers.setdefault(name, len(numbers)) for names in entities for name in names]
        self.names = list(numbers)
        """(E,) every entity once."""
        self._of_memory = np.asarray(flat, np.int64)
        sizes = np.fromiter(map(len, entities), np.int64, len(entities))
        self._memory_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        owner = np.repeat(np.arange(len(entities)), sizes)
        order = np.argsort(self._of_memory, kind="stable")
        self._holders = owner[order]
        frequency = np.bincount(self._of_memory, minlength=len(numbers))
        self.frequency: Array = frequency
        """(E,) in how many memories each entity is."""
        self._entity_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(frequency)])
        most = min(common, max(FEW, int(COMMON_SHARE * len(entities))))
        self._connects = (frequency >= 2) & (frequency <= most)
        self._number = numbers

    def __len__(self) -> int:
        return len(self._memory_start) - 1

    def of(self, row: int) -> list[str]:
        """Return the entities of a memory."""
        return [self.names[entity] for entity in self._entities(row)]

    def holders(self, name: str) -> Array:
        """Return the memories that mention an entity, ascending."""
        entity = self._number.get(name)
        return self._posting(entity) if entity is not None else self._holders[:0]

    def neighbours(self, row: int) -> Array:
        """Return the memories that share a connecting entity with a memory, ascending, without itself."""
        postings = [self._posting(entity) for entity in self._entities(row) if self._connects[entity]]
        if not postings:
            return self._holders[:0]
        found: Array = np.unique(np.concatenate(postings))
        others: Array = found[found != row]
        return others

    def shared(self, one: int, other: int) -> list[str]:
        """Return what two memories both mention, the rarest first."""
        both = np.intersect1d(self._entities(one), self._entities(other))
        return [self.names[entity] for entity in both[np.argsort(self.frequency[both], kind="stable")]]

    def _entities(self, row: int) -> Array:
        found: Array = self._of_memory[self._memory_start[row] : self._memory_start[row + 1]]
        return found

    def _posting(self, entity: int) -> Array:
        found: Array = self._holders[self._entity_start[entity] : self._entity_start[entity + 1]]
        return found
