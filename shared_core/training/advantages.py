"""Group-relative advantages and their loss (GRPO without a KL term), for arrays of numpy or tensors of torch.

Knows nothing about models: rewards and log-probabilities come in, numbers go out.

Source: MemDream Eq. 11 [S]; epsilon and the population's deviation are ours [O: the paper gives neither].
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from shared_core.errors import ConfigError
from shared_core.types import FloatArray

EPSILON = 1e-6
"""Added to the deviation [O]: a group of equal rewards has advantage 0, and teaches nothing."""

Numbers = TypeVar("Numbers")
"""An array of numpy or a tensor of torch."""


def group_advantages(rewards: ArrayLike, epsilon: float = EPSILON) -> FloatArray:
    """Return A = (r - mean) / (deviation + epsilon) within each group (Eq. 11).

    Args:
        rewards: Shape (..., N): N rollouts of one state in the last axis.
        epsilon: Above 0.

    Raises:
        ConfigError: A reward is no finite number, a group is empty, or ``epsilon`` is not above 0.
    """
    values = np.asarray(rewards, float)
    if not values.ndim or not values.shape[-1]:
        raise ConfigError(f"rewards of shape {values.shape} have no group: give (..., N) with N of 1 or more")
    if not np.isfinite(values).all():
        raise ConfigError("a reward is no finite number: leave its rollout out")
    if not epsilon > 0:
        raise ConfigError(f"epsilon={epsilon!r} must be above 0")
    centred = values - values.mean(axis=-1, keepdims=True)
    found: FloatArray = centred / (values.std(axis=-1, keepdims=True) + epsilon)
    return found


def drawing_temperature(temperature: float, exploration: float, done: float) -> float:
    """Return t(1 + epsilon) at the beginning of a training, falling linearly to t.

    Source: epsilon 0.2, decaying (Table 8) [S]; that it warms the draws is ours [O].

    Args:
        temperature: t.
        exploration: epsilon.
        done: Share of the training that is over, in [0, 1].
    """
    return temperature * (1.0 + exploration * (1.0 - done))


def group_loss(log_probabilities: Numbers, advantages: Numbers) -> Numbers:
    """Return L = -mean(A * log pi) over all rollouts (Eq. 11); differentiable where torch is.

    Args:
        log_probabilities: Of each rollout under the policy, shape (..., N).
        advantages: Same shape and kind; constants, so that no gradient may flow through them.

    Raises:
        ConfigError: The shapes differ.
    """
    shapes = [tuple(getattr(one, "shape", ())) for one in (log_probabilities, advantages)]
    if shapes[0] != shapes[1]:
        raise ConfigError(f"log-probabilities have shape {shapes[0]}, advantages {shapes[1]}")
    loss: Numbers = -(advantages * log_probabilities).mean()  # type: ignore[operator]
    return loss
