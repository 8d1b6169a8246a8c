"""The paper's three terms as terms of a bank: each memory's response to its probes, negated.

Does: probes the bank as a sweep with the same seed does, and averages each term of Eq. 5 over the iterations.

Does not know: thresholds, weights, texts.

Source: DREAM Eq. 5 and section 4.1 [S]; the terms themselves are in ``activation``. Departs [O]: a sweep with
preset ``paper`` judges each iteration, a term the average of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.activation import coherence, geometric_stability, retrieval_competitiveness
from shared_core.dynamics.probing import bank_probe
from shared_core.dynamics.terms.registry import activation_term
from shared_core.dynamics.terms.view import BankView, TermEvidence, TermResult

if TYPE_CHECKING:
    from shared_core.types import FloatArray


@activation_term("geometric")
def geometric(view: BankView) -> TermResult:
    """How far a memory's own probe is from it: the first term of Eq. 5, negated.

    For unit embeddings and isotropic noise it is chance, see ``geometric_stability``.
    """
    return _responses(view, lambda cos_self, _cos_probe, _mean: geometric_stability(cos_self))


@activation_term("retrieval")
def retrieval(view: BankView) -> TermResult:
    """How badly a memory's probe competes for the bank's centroid: the second term of Eq. 5, negated."""
    tau, form = view.config.tau, view.config.retrieval_form
    return _responses(
        view, lambda _self, cos_probe, mean: retrieval_competitiveness(cos_probe, mean, tau, form)
    )


@activation_term("coherence")
def coherent(view: BankView) -> TermResult:
    """How incoherent a memory's probe is with the bank's centroid: the third term of Eq. 5, negated."""
    return _responses(view, lambda _self, cos_probe, _mean: coherence(cos_probe, view.config.kappa))


def _responses(view: BankView, term: Callable[[FloatArray, FloatArray, float], FloatArray]) -> TermResult:
    geometry = view.geometry if view.norms is None else replace(view.geometry, norms=view.norms)
    # as in a sweep with this seed
    rng = np.random.Generator(np.random.SFC64(view.config.seed))
    probe = bank_probe(view.unit * geometry.norms[:, None], geometry, view.config, rng)
    mean = float(geometry.cosines.mean())
    total = np.zeros(len(view))
    for _iteration in range(view.config.iterations):
        total += term(*probe(), mean)
    typical = float(np.median(geometry.cosines))

    def evidence(row: int) -> TermEvidence:
        cosine = float(geometry.cosines[row])
        return TermEvidence(
            text=f"its cosine with the bank's centroid is {cosine:.2f}, where the median is {typical:.2f}",
            details={"response": float(total[row] / view.config.iterations), "centroid_cosine": cosine},
        )

    return TermResult(score=-total / view.config.iterations, evidence=evidence)
