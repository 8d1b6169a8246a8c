"""Eq. 11: advantages within groups, and their loss, against literal references."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch

from shared_core.errors import ConfigError
from shared_core.training import group_advantages, group_loss


def literal(rewards: list[float], epsilon: float) -> list[float]:
    mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
    return [(reward - mean) / (deviation + epsilon) for reward in rewards]


def test_advantages_are_those_of_the_equation(rng: np.random.Generator) -> None:
    rewards = rng.normal(size=(7, 4))
    found = group_advantages(rewards, epsilon=1e-3)
    assert found == pytest.approx(np.array([literal(row, 1e-3) for row in rewards.tolist()]))


def test_only_what_is_better_than_its_group_is_made_likelier() -> None:
    found = group_advantages([[0.0, 1.0, 0.0, 1.0], [5.0, 5.0, 5.0, 5.0]])
    assert (found[0] > 0).tolist() == [False, True, False, True]
    assert found[1].tolist() == [0.0] * 4


@pytest.mark.parametrize("rewards", [1.0, np.zeros((3, 0)), [0.0, math.nan], [0.0, math.inf]])
def test_what_is_no_group_of_rewards_is_refused(rewards: object) -> None:
    with pytest.raises(ConfigError):
        group_advantages(rewards)  # type: ignore[arg-type]


def test_epsilon_must_be_above_zero() -> None:
    with pytest.raises(ConfigError, match="epsilon=0"):
        group_advantages([1.0, 2.0], epsilon=0)


def test_the_loss_is_the_same_for_arrays_and_tensors(rng: np.random.Generator) -> None:
    logs, advantages = -rng.random((3, 4)), group_advantages(rng.random((3, 4)))
    expected = -sum(
        advantages[row, column] * logs[row, column] for row in range(3) for column in range(4)
    ) / (3 * 4)
    assert float(group_loss(logs, advantages)) == pytest.approx(expected)
    assert group_loss(torch.tensor(logs), torch.tensor(advantages)).item() == pytest.approx(expected)


def test_a_step_on_the_loss_makes_the_better_rollout_likelier() -> None:
    scores = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor(group_advantages([0.0, 0.0, 1.0, 0.0]))
    group_loss(torch.log_softmax(scores, dim=0), advantages).backward()
    assert scores.grad is not None
    assert int(scores.grad.argmin()) == 2
    assert (scores.grad[[0, 1, 3]] > 0).all()


def test_shapes_must_agree() -> None:
    with pytest.raises(ConfigError, match=r"\(2,\)"):
        group_loss(np.zeros(2), np.zeros((2, 1)))
