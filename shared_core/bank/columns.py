"""The state of every memory as columns in memory, for ranking and for sweeps.

Knows neither SQL nor Chroma. A memory without a row has the defaults of ``MemoryState`` (design 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shared_core.bank.derived import is_derived
from shared_core.types import FloatArray

FIELDS = ("weight", "suspicion", "consolidation", "deleted", "successes")
"""Fields that change only through journalled runs; each is a float column."""

DEFAULTS = {"weight": 1.0, "suspicion": 0.0, "consolidation": 1.0, "deleted": 0.0, "successes": 0.0}


def can_have_state(memory_id: str) -> bool:
    """Tell whether a state database can hold an id: PostgreSQL takes no NUL, SQLite's JSON ends at it."""
    return "\0" not in memory_id


@dataclass(frozen=True)
class Columns:
    """A snapshot of a bank's state at one version.

    ``rows`` may be shared with later snapshots and only ever grows; a row beyond this snapshot's arrays
    is unknown to it.
    """

    version: int = -1
    rows: dict[str, int] = field(default_factory=dict)
    values: dict[str, FloatArray] = field(default_factory=lambda: {name: np.empty(0) for name in FIELDS})
    unseen_weight: float = DEFAULTS["weight"]
    """w where there is no row; below 1 in a bank with quarantine."""

    def __len__(self) -> int:
        return len(self.values["weight"])

    @cached_property
    def reduced(self) -> int:
        """How many memories with a row count less than in full."""
        return int(np.sum((self.values["weight"] < 1.0) | (self.values["deleted"] != 0.0)))

    def gather(self, ids: Sequence[str], name: str) -> FloatArray:
        """Return one field for the given ids, shape (len(ids),), with the default where there is no row."""
        size = len(self)
        position = np.fromiter((self.rows.get(i, size) for i in ids), np.int64, len(ids))
        known = position < size
        found = np.full(len(ids), self.unseen_weight if name == "weight" else DEFAULTS[name])
        found[known] = self.values[name][position[known]]
        return found

    def effective_weights(self, ids: Sequence[str]) -> FloatArray:
        """Return w per id, shape (len(ids),); 0 for what is softly deleted, or derived and not committed."""
        weights: FloatArray = self.gather(ids, "weight") * (self.gather(ids, "deleted") == 0.0)
        unborn = [
            row for row, i in enumerate(ids) if is_derived(i) and self.rows.get(i, len(self)) >= len(self)
        ]
        weights[unborn] = 0.0
        return weights

    def updated(self, version: int, changed: Iterable[Any]) -> Columns:
        """Return the snapshot at ``version``, given the rows (id, then FIELDS in order) that changed."""
        changed = list(changed)
        if not changed:
            return Columns(version, self.rows, self.values, self.unseen_weight)
        size = len(self)
        ids = [row[0] for row in changed]
        rows = self.rows
        for memory_id in ids:
            rows.setdefault(memory_id, len(rows))
        position = np.fromiter((rows[i] for i in ids), np.int64, len(ids))
        values = {}
        for column, name in enumerate(FIELDS, start=1):
            grown = np.full(len(rows), DEFAULTS[name])
            grown[:size] = self.values[name]
            grown[position] = [row[column] for row in changed]
            values[name] = grown
        return Columns(version, rows, values, self.unseen_weight)
