"""Activation intensity R: how strongly and how coherently a perturbed memory responds.

Does: the paper's three terms, each a pure function of the probe's cosines, and their sum.

Does not know: how the probe was drawn, thresholds, suspicion, weights.

Source: DREAM Eq. 5 and section 4.1 [S]; tau = 0.05, kappa = 2 from appendix B.1 [S].
Departs [O]: the equations of the retrieval and coherence terms are not legible in our copy of the source. The
retrieval term is read as the chance to win against a typical memory; a softmax over the bank is offered
too, but its values are O(1/N), so beside terms of order 1 it vanishes as the bank grows. The coherence
term's reference is the bank's centroid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.config import ForgettingConfig, RetrievalForm
    from shared_core.types import FloatArray


def geometric_stability(cos_self: FloatArray, xp: Any = np) -> FloatArray:
    """Return sim(probe, v), the first term of Eq. 5 [S].

    For unit embeddings (or noise relative to the norm) and isotropic noise this term has the same
    distribution for every memory: by symmetry it depends on d and the noise alone, not on where v lies. It
    then carries no information about which memory is poisoned and only adds noise to R, and its mean over
    many probes is a constant. It is kept because the source has it. With ``sigma`` in stored units it tells
    long embeddings from short ones, and with anisotropic noise it tells directions apart.

    Args:
        cos_self: (N,) cos(probe, v).
        xp: The array library, see ``arrays``.

    Returns:
        (N,) the same values, in [-1, 1], as a new array.
    """
    copied: FloatArray = xp.asarray(cos_self, dtype=xp.float64) + 0.0
    return copied


def retrieval_competitiveness(
    cos_probe: FloatArray, cos_bank_mean: float, tau: float, form: RetrievalForm = "logistic", xp: Any = np
) -> FloatArray:
    """Return p_ret(probe), the second term of Eq. 5 [S: tau, centroid; O: its form].

    ``logistic`` is 1 / (1 + exp(-(cos(probe, mu) - mean_j cos(v_j, mu)) / tau)); ``softmax`` is
    exp(cos(probe_i, mu) / tau) over its sum over the bank.

    Args:
        cos_probe: (N,) cos(probe, mu), mu the bank's centroid.
        cos_bank_mean: Mean over the bank of cos(v, mu), unperturbed; ``softmax`` does not use it.
        tau: Temperature, in units of cosine, above 0.
        form: Which reading of the term.
        xp: The array library, see ``arrays``.

    Returns:
        (N,) values in [0, 1]; softmax values sum to 1.

    Raises:
        ConfigError: ``tau`` is not above 0, or ``form`` is unknown.
    """
    if not tau > 0:
        raise ConfigError(f"tau={tau!r} must be above 0")
    if form not in ("logistic", "softmax"):
        raise ConfigError(f"retrieval_form={form!r} is not one of logistic, softmax")
    cosines = xp.asarray(cos_probe, dtype=xp.float64)
    chances: FloatArray = cosines
    if 0 in cosines.shape:
        return chances
    # Overflow to infinity is the right limit of both forms at extreme temperatures: 0 or 1.
    with np.errstate(over="ignore"):
        if form == "logistic":
            chances = 1.0 / (1.0 + xp.exp((cos_bank_mean - cosines) / tau))
        else:
            # Shifted by the largest before dividing, so that the largest exponent is exactly 0.
            raised = xp.exp((cosines - cosines.max()) / tau)
            chances = raised / raised.sum()
    return chances


def coherence(cos_probe: FloatArray, kappa: float, xp: Any = np) -> FloatArray:
    """Return E_coh = exp(-kappa (1 - cos)), the third term of Eq. 5 [S: Boltzmann-like; O: the reference].

    Args:
        cos_probe: (N,) cos(probe, reference); the reference is the centroid in preset ``paper``.
        kappa: Sharpness, 0 or more.
        xp: The array library, see ``arrays``.

    Returns:
        (N,) values in [exp(-2 kappa), 1].
    """
    energy: FloatArray = xp.exp(kappa * (xp.asarray(cos_probe, dtype=xp.float64) - 1.0))
    return energy


def activation(
    cos_self: FloatArray,
    cos_probe: FloatArray,
    cos_bank_mean: float,
    config: ForgettingConfig,
    xp: Any = np,
) -> FloatArray:
    """Return R, the sum of the terms that ``config.terms`` names (Eq. 5 [S]).

    Args:
        cos_self: (N,) cos(probe, v).
        cos_probe: (N,) cos(probe, centroid).
        cos_bank_mean: Mean over the bank of cos(v, centroid), unperturbed.
        config: Terms, tau, kappa and the form of the retrieval term.
        xp: The array library, see ``arrays``.

    Returns:
        (N,) float64; with all terms at most 3.

    Raises:
        ConfigError: The two cosines disagree in shape.
    """
    if cos_self.shape != cos_probe.shape:
        raise ConfigError(f"cos_self of shape {cos_self.shape} and cos_probe of {cos_probe.shape} must agree")
    total: FloatArray = xp.zeros_like(cos_self, dtype=xp.float64)
    if "geometric" in config.terms:
        total += geometric_stability(cos_self, xp)
    if "retrieval" in config.terms:
        total += retrieval_competitiveness(cos_probe, cos_bank_mean, config.tau, config.retrieval_form, xp)
    if "coherence" in config.terms:
        total += coherence(cos_probe, config.kappa, xp)
    return total
