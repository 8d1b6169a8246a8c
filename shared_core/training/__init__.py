"""Policies that learn: advantages and rewards, and a small policy for every bank."""

from shared_core.training.advantages import group_advantages, group_loss
from shared_core.training.policy import Policy, load_policy, save_policy
from shared_core.training.policy_analyst import PolicyAnalyst, policy_path, trained_analyst
from shared_core.training.policy_training import PolicyReport, PolicyTraining, train_policy
from shared_core.training.rewards import RewardConfig

__all__ = [
    "Policy",
    "PolicyAnalyst",
    "PolicyReport",
    "PolicyTraining",
    "RewardConfig",
    "group_advantages",
    "group_loss",
    "load_policy",
    "policy_path",
    "save_policy",
    "train_policy",
    "trained_analyst",
]
