"""How hard the soak tests try: a short, repeatable run; long and random by ``make soak-random``."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, settings

SOAK = float(os.environ.get("DREAM_SOAK", "0"))
"""How many times the short run; 0 is the short run itself, the same examples every time."""


def effort(examples: int, steps: int = 50) -> settings:
    """Return the settings of a property test that makes so many examples in the short run."""
    return settings(
        max_examples=max(1, round(examples * (SOAK or 1))),
        stateful_step_count=max(1, round(steps * (2 if SOAK else 1))),
        derandomize=not SOAK,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def many(short: int) -> int:
    """Return how often to do what is done ``short`` times in the short run."""
    return max(1, round(short * (SOAK or 1)))


class LetterEmbedder:
    """Counts pairs of letters, signed: the same text has the same direction, other texts have others."""

    dimension = 16

    def embed_documents(self, texts: list[str]) -> Sequence[Sequence[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = np.full(self.dimension, 0.01)
        for first, second in zip(f" {text}", f"{text} ", strict=True):
            place = ord(first) * 31 + ord(second) * 7
            vector[place % self.dimension] += 1.0 if place // self.dimension % 2 else -1.0
        return [float(number) for number in vector]
