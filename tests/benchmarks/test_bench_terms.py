"""What the terms of preset hardened cost in a large bank; asserts no time. Run by ``make bench``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shared_core import CouplingConfig
from shared_core.dynamics import find_coupling
from shared_core.dynamics.terms.nearest import nearest_rows
from tests.conftest import unit_rows

pytestmark = pytest.mark.bench

ROWS, DIMENSION, VOCABULARY = 100_000, 384, 30_000


def texts(rng: np.random.Generator, words: int) -> list[str]:
    """Texts of Zipf-distributed words."""
    frequency = 1.0 / np.arange(1, VOCABULARY + 1) ** 1.05
    drawn = rng.choice(VOCABULARY, size=(ROWS, words), p=frequency / frequency.sum())
    return [" ".join(f"w{word}" for word in row) for row in drawn.tolist()]


def test_coupling(benchmark: Any, rng: np.random.Generator) -> None:
    keys, values, unit = texts(rng, 20), texts(rng, 40), unit_rows(rng, ROWS, DIMENSION)
    found = benchmark.pedantic(
        lambda: find_coupling(
            keys, values, unit, lambda new: unit_rows(rng, len(new), DIMENSION), CouplingConfig()
        ),
        rounds=1,
    )
    assert found.score.shape == (ROWS,)


def test_nearest(benchmark: Any, rng: np.random.Generator) -> None:
    unit = unit_rows(rng, ROWS, DIMENSION)
    assert benchmark.pedantic(lambda: nearest_rows(unit, 20), rounds=1).shape == (ROWS, 20)
