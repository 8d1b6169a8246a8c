"""Functional forgetting: how weights decay or recover in one iteration.

Does: the decay rate from suspicion and consolidation, and one update of the weights.

Does not know: probes, activations, how a memory came to be suspected, retrieval.

Source: DREAM section 4.3; lambda0, k, alpha_rec and theta_c from appendix B.1 [S].
Departs [O]: our copy of the source lost the equation of the decay rate. ``additive`` lets suspicion
outweigh consolidation; in ``multiplicative`` a fully consolidated memory never decays, however suspect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.config import ForgettingConfig
    from shared_core.types import BoolArray, FloatArray


def decay_rate(
    suspicion: FloatArray, consolidation: FloatArray, config: ForgettingConfig, xp: Any = np
) -> FloatArray:
    """Return lambda, the decay per iteration (section 4.3 [S: its inputs; O: its form]).

    ``additive``: lambda0 * max(0, 1 + k s - c). ``multiplicative``: lambda0 * (1 + k s) * (1 - c).

    Args:
        suspicion: (N,) s in [0, 1].
        consolidation: (N,) c in [0, 1].
        config: lambda0, k and decay_law.
        xp: The array library, see ``arrays``.

    Returns:
        (N,) rates, 0 or more, per iteration.

    Raises:
        ConfigError: The shapes disagree.
    """
    if suspicion.shape != consolidation.shape:
        raise ConfigError(
            f"suspicion of shape {suspicion.shape} and consolidation of shape {consolidation.shape} "
            "must agree"
        )
    amplified: FloatArray = 1.0 + config.k * xp.asarray(suspicion, dtype=xp.float64)
    if config.decay_law == "additive":
        return config.lambda0 * (amplified - consolidation).clip(min=0.0)
    return config.lambda0 * amplified * (1.0 - consolidation)


def update_weights(
    weights: FloatArray,
    suspicion: FloatArray,
    consolidation: FloatArray,
    abnormal: BoolArray,
    config: ForgettingConfig,
    xp: Any = np,
) -> FloatArray:
    """Reconsolidate stable memories and let the others decay (section 4.3 [S]).

    Not abnormal and c > theta_c: w <- w + alpha_rec (1 - w). Otherwise: w <- w exp(-lambda).

    Args:
        weights: (N,) w in [0, 1].
        suspicion: (N,) s in [0, 1], already updated in this iteration.
        consolidation: (N,) c in [0, 1].
        abnormal: (N,) mask from the diagnosis of this iteration.
        config: alpha_rec, theta_c and what the decay rate needs.
        xp: The array library, see ``arrays``.

    Returns:
        (N,) new weights in [0, 1].

    Raises:
        ConfigError: The shapes disagree.
    """
    if not weights.shape == suspicion.shape == abnormal.shape:
        raise ConfigError(
            f"weights of shape {weights.shape}, suspicion of shape {suspicion.shape} and abnormal of shape "
            f"{abnormal.shape} must agree"
        )
    recovered = weights + config.alpha_rec * (1.0 - weights)
    decayed = weights * xp.exp(-decay_rate(suspicion, consolidation, config, xp))
    stable = ~abnormal & (consolidation > config.theta_c)
    updated: FloatArray = xp.clip(xp.where(stable, recovered, decayed), 0.0, 1.0)
    return updated
