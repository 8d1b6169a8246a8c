"""What the small policy is trained for: the group-relative advantage, or the best choice of every case.

Both see the same cases with the reward of every choice; they differ in the loss alone.

Source: MemDream Eq. 11 and appendix D [S]; imitation of the best choice, the plain baseline that needs no
group and no exploration, is ours [O].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from shared_core.training.advantages import group_advantages, group_loss

if TYPE_CHECKING:
    from shared_core.training.policy_training import PolicyTraining
    from shared_core.training.rehearsal import Lessons
    from shared_core.types import Array, FloatArray

ObjectiveName: TypeAlias = Literal["imitation", "group-relative"]
TINY = 1e-12
"""Probability of a choice that cannot be made, whose logarithm must stay finite."""

Loss: TypeAlias = Callable[[Any, int], Any]
"""Returns the loss of scores, a tensor of shape (cases, choices), at a step counted from 1."""
Objective: TypeAlias = "Callable[[Lessons, PolicyTraining, Any], Loss]"
"""Makes the loss from cases, options and the module ``torch``."""


def group_relative(learnt: Lessons, training: PolicyTraining, torch: Any) -> Loss:
    """Return the loss of Eq. 11 over choices drawn from the policy, evenly mixed by exploration."""
    rng = np.random.default_rng([training.seed, 2])
    allowed, rewards = learnt.allowed, learnt.rewards
    even = torch.tensor(allowed / allowed.sum(axis=1, keepdims=True))

    def loss(scores: Any, step: int) -> Any:
        # what draws is what learns: an explored choice would else push a score without bound
        explored = training.exploration * (1 - step / training.steps)
        logs = ((1 - explored) * torch.softmax(scores, dim=1) + explored * even).clamp_min(TINY).log()
        chosen = _drawn(logs.detach().exp().numpy(), training.group, rng)
        advantages = group_advantages(np.take_along_axis(rewards, chosen, axis=1))
        return group_loss(logs.gather(1, torch.tensor(chosen)), torch.tensor(advantages))

    return loss


def imitation(learnt: Lessons, training: PolicyTraining, torch: Any) -> Loss:  # noqa: ARG001
    """Return the cross-entropy of each case's best choice; it draws nothing, so no option matters to it."""
    best = torch.tensor(best_choices(learnt))

    def loss(scores: Any, step: int) -> Any:  # noqa: ARG001
        return torch.nn.functional.cross_entropy(scores, best)

    return loss


OBJECTIVES: Mapping[ObjectiveName, Objective] = {"imitation": imitation, "group-relative": group_relative}


def best_choices(learnt: Lessons) -> Array:
    """Return the choice with the highest reward of each case, shape (cases,); of equals the rules' own."""
    rewards = np.where(learnt.allowed > 0, learnt.rewards, -np.inf)
    rule = np.array([case.rule for case in learnt.cases])
    best = rewards.argmax(axis=1)
    rows = np.arange(len(rule))
    found: Array = np.where(rewards[rows, rule] >= rewards[rows, best], rule, best)
    return found


def _drawn(probabilities: FloatArray, group: int, rng: np.random.Generator) -> Array:
    """Return a group of choices per case, shape (cases, group)."""
    summed = probabilities.cumsum(axis=1)
    summed /= summed[:, -1:]
    found: Array = (rng.random((len(summed), group, 1)) >= summed[:, None, :]).sum(axis=2)
    return found
