"""The numbers behind the figures: terms and weights of a case, memory by memory.

Knows a case and an embedder; builds a real collection and runs the library's own diagnosis. Draws nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank import MemoryBank
from shared_core.config import ForgettingConfig, Preset
from shared_core.dynamics import coherence, geometric_stability, measure, retrieval_competitiveness
from shared_core.dynamics.probing import bank_probe
from shared_core.evaluation import fill_collection
from shared_core.evaluation.poison import VALUE_KEY
from shared_core.evaluation.update_law import diagnose_bank, trajectory

if TYPE_CHECKING:
    from shared_core.evaluation import AttackCase
    from shared_core.types import BoolArray, Embedder, FloatArray


@dataclass(frozen=True, eq=False)
class CaseWeights:
    """Weights of one case in every iteration of one sweep."""

    preset: str
    weights: FloatArray
    """(T + 1, N), the start included."""
    poison: BoolArray
    """(N,)."""


@dataclass(frozen=True, eq=False)
class TermScores:
    """The three terms of Eq. 5 and their sum for one probe of the bank."""

    terms: dict[str, FloatArray]
    """(N,) each, by the name that the figure shows."""
    poison: BoolArray
    """(N,)."""


def case_weights(
    case: AttackCase, embedder: Embedder, presets: Sequence[Preset] = ("paper", "hardened"), seed: int = 0
) -> list[CaseWeights]:
    """Return how weights move in one sweep of each preset (source Fig. 7)."""
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="dream-figures-") as folder,
        MemoryBank.open(folder, "case", create=True, embedder=embedder, value_key=VALUE_KEY) as bank,
    ):
        fill_collection(bank, case)
        for preset in presets:
            config = ForgettingConfig.preset(preset, seed=seed)
            diagnosis = diagnose_bank(bank, config)
            ones = np.ones(len(diagnosis.ids))
            moved = trajectory(diagnosis, config, ones, ones, iterations=config.iterations)
            found.append(CaseWeights(preset, moved.weights, _poison(case, diagnosis.ids)))
    return found


def term_scores(case: AttackCase, embedder: Embedder, seed: int = 0) -> TermScores:
    """Return the terms of preset ``paper`` for one probe of a case's keys (source Fig. 6)."""
    config = ForgettingConfig.preset("paper", seed=seed)
    matrix = np.asarray(embedder.embed_documents([memory.key for memory in case.memories]), np.float32)
    geometry = measure(matrix)
    probe = bank_probe(matrix, geometry, config, np.random.Generator(np.random.SFC64(seed)))
    cos_self, cos_centroid = probe()
    terms = {
        "sim": geometric_stability(cos_self),
        "p_ret": retrieval_competitiveness(cos_centroid, float(geometry.cosines.mean()), config.tau),
        "E_coh": coherence(cos_centroid, config.kappa),
    }
    terms["R"] = np.sum(list(terms.values()), axis=0)
    return TermScores(terms, _poison(case, [memory.id for memory in case.memories]))


def _poison(case: AttackCase, ids: Sequence[str]) -> BoolArray:
    return np.array([memory_id in case.poison_ids for memory_id in ids], bool)
