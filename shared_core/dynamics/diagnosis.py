"""Adaptive diagnosis: which memories respond abnormally, and how suspicion follows.

Does: the threshold over the bank's activations, and one update of the suspicion.

Does not know: what the activation is made of, weights, consolidation.

Source: DREAM section 4.2, eta = 0.8, gamma = 0.5 [S].
Departs [O]: the size of the suspicion's increment, which our copy of the source lost, is the standardised
deviation times ``suspicion_gain``. The literal threshold flags about a fifth of any bell-shaped bank, clean
or not; where terms decide instead, the step is their score in units of the level from which they flag, so
that it does not depend on how many others are flagged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.dynamics.blocks import BLOCK, SERIAL, Workers, blocks
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.config import ForgettingConfig
    from shared_core.types import BoolArray, FloatArray

_RELATIVE_ROUNDING = 1e-12


def moments(activation: FloatArray, workers: Workers = SERIAL, block: int = BLOCK) -> tuple[float, float]:
    """Return mean and population standard deviation over the bank (section 4.2).

    Args:
        activation: (N,) R.
        workers: Threads that compute.
        block: Memories at once.

    Returns:
        Mean and deviation, in units of R; (0, 0) for an empty bank. A deviation that is no more than
        rounding of equal values is exactly 0.
    """
    if len(activation) == 0:
        return 0.0, 0.0
    count, parts = len(activation), blocks(len(activation), block)
    mean = sum(workers.map(lambda _number, part: float(activation[part].sum()), parts)) / count
    squares = workers.map(lambda _number, part: float(((activation[part] - mean) ** 2).sum()), parts)
    std = math.sqrt(sum(squares) / count)
    largest = max(abs(float(activation.min())), abs(float(activation.max())))
    return mean, std if std > _RELATIVE_ROUNDING * largest else 0.0


def threshold(activation: FloatArray, eta: float) -> float:
    """Return theta = mean(R) - eta * std(R) (section 4.2 [S]).

    Args:
        activation: (N,) R.
        eta: How many deviations below the mean, 0 or more.

    Returns:
        theta in units of R; R itself for one memory, 0 for an empty bank.
    """
    mean, std = moments(activation)
    return mean - eta * std


def update_suspicion(
    suspicion: FloatArray,
    activation: FloatArray,
    config: ForgettingConfig,
    *,
    flagged: BoolArray | None = None,
    bank: tuple[float, float] | None = None,
    xp: Any = np,
) -> tuple[FloatArray, BoolArray]:
    """Raise the suspicion of abnormal memories, let it fade for the others (section 4.2).

    Below the threshold: s <- min(1, s + suspicion_gain * max(0, (mean - R) / std)) [S, size of the step O].
    Otherwise: s <- gamma * s [S].

    Args:
        suspicion: (N,) s in [0, 1].
        activation: (N,) R of this iteration.
        config: eta, gamma and suspicion_gain.
        flagged: (N,) who is abnormal, where another diagnosis than the threshold has decided [O]; then
            -R is a score of 1 or more for whoever is flagged, and s <- min(1, s + suspicion_gain * -R).
        bank: Mean and deviation of R over the bank, see :func:`moments`, where ``activation`` is a part.
        xp: The array library, see ``arrays``.

    Returns:
        New suspicion (N,) in [0, 1], and a mask (N,) of the abnormal memories. Where all activations
        are equal, as in a bank of one, nobody is abnormal.

    Raises:
        ConfigError: The shapes disagree.
    """
    if flagged is not None and flagged.shape != activation.shape:
        raise ConfigError(f"flagged of shape {flagged.shape} and activation of {activation.shape} must agree")
    if suspicion.shape != activation.shape:
        raise ConfigError(
            f"suspicion of shape {suspicion.shape} and activation of shape {activation.shape} must agree"
        )
    faded = config.gamma * xp.asarray(suspicion, dtype=xp.float64)
    if flagged is not None:
        abnormal, deviation = flagged, (-activation).clip(min=1.0)
    else:
        mean, std = moments(activation) if bank is None else bank
        if std == 0.0:
            return faded, xp.zeros_like(activation, dtype=bool)
        abnormal = activation < mean - config.eta * std
        deviation = ((mean - activation) / std).clip(min=0.0)
    raised = suspicion + config.suspicion_gain * deviation
    return xp.where(abnormal, raised.clip(max=1.0), faded), abnormal
