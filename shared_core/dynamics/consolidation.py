"""Online consolidation: how task feedback strengthens the memories that were retrieved.

Does: shares out the credit of one task, and moves consolidation towards it.

Does not know: what the task was, how success was judged (the application says, it is never guessed), or
which memories were not retrieved (they keep their consolidation).

Source: DREAM section 3.3 and appendix G: an exponential average of utility [S].
Departs [O]: temperature and momentum, and the credit times K, which makes the average helper neutral.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.types import FloatArray


def attribute(scores: FloatArray, success: float, temperature: float) -> FloatArray:
    """Return each retrieved memory's utility: min(1, K softmax(scores / T)) * success [O].

    Args:
        scores: (K,) retrieval scores of the memories used for one task, finite.
        success: How well the task went, in [0, 1].
        temperature: T in units of the scores, above 0.

    Returns:
        (K,) utilities in [0, success]; empty if nothing was retrieved. Equal scores give ``success`` to all.

    Raises:
        ConfigError: ``success`` or ``temperature`` is out of range, or the scores are not a finite vector.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ConfigError(f"scores of shape {values.shape} must be a vector of finite numbers")
    if not 0.0 <= success <= 1.0:
        raise ConfigError(f"success={success!r} is outside [0, 1]")
    if not (math.isfinite(temperature) and temperature > 0):
        raise ConfigError(f"temperature={temperature!r} must be a finite number above 0")
    if values.size == 0:
        return np.empty(0)
    # Shifted by the largest before dividing: a tiny temperature then gives 0 or 1, never NaN.
    with np.errstate(over="ignore"):
        raised = np.exp((values - values.max()) / temperature)
    return np.asarray(np.minimum(1.0, values.size * raised / raised.sum()) * success)


def consolidate(consolidation: FloatArray, utility: FloatArray, momentum: float) -> FloatArray:
    """Return c <- (1 - m) c + m * utility (appendix G [S], m is [O]).

    Args:
        consolidation: (K,) c in [0, 1] of the retrieved memories.
        utility: (K,) in [0, 1], see :func:`attribute`.
        momentum: m in [0, 1]; 0 ignores the task, 1 forgets all earlier ones.

    Returns:
        (K,) new consolidation in [0, 1].

    Raises:
        ConfigError: ``momentum`` is out of range, or the shapes disagree.
    """
    if not 0.0 <= momentum <= 1.0:
        raise ConfigError(f"momentum={momentum!r} is outside [0, 1]")
    before, target = np.asarray(consolidation, dtype=np.float64), np.asarray(utility, dtype=np.float64)
    if before.shape != target.shape:
        raise ConfigError(
            f"consolidation of shape {before.shape} and utility of shape {target.shape} must agree"
        )
    return np.clip((1.0 - momentum) * before + momentum * target, 0.0, 1.0)
