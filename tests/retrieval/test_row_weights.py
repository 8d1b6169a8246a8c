"""Weights by row are those that ``Columns`` gives by id, version after version."""

from __future__ import annotations

import numpy as np

from shared_core.bank.columns import Columns
from shared_core.bank.derived import derived_id
from shared_core.retrieval.row_weights import RowWeights


def changed(rng: np.random.Generator, ids: list[str]) -> list[tuple[object, ...]]:
    return [(i, float(rng.uniform()), 0.0, 1.0, float(rng.uniform() < 0.3), 0.0) for i in ids]


def test_as_by_id_through_changes(rng: np.random.Generator) -> None:
    ids = [*(f"m{i}" for i in range(20)), derived_id(), derived_id()]
    weights = RowWeights({memory_id: row for row, memory_id in enumerate(ids)})
    columns = Columns(unseen_weight=0.7)
    versions = [columns]
    for version in range(1, 8):
        named = [*rng.choice(ids, 5, replace=False).tolist(), f"elsewhere {version}"]
        columns = columns.updated(version, changed(rng, named))
        versions.append(columns)
        np.testing.assert_array_equal(weights.of(columns), columns.effective_weights(ids))
        assert weights.of(columns) is weights.of(columns)
    # a snapshot of before, and one that was read anew
    for columns in [*versions, Columns().updated(9, changed(rng, ids[:3])), versions[3]]:
        np.testing.assert_array_equal(weights.of(columns), columns.effective_weights(ids))
