"""Policies that learn: a small one for every bank, and LoRA adapters for the three agents of a dream."""

from shared_core.training.advantages import group_advantages, group_loss
from shared_core.training.backbone import Backbone, LoraSettings
from shared_core.training.dataset import TrainingSet, read_training_set, write_training_set
from shared_core.training.grpo import GrpoConfig, train_grpo
from shared_core.training.held_out import HeldOut, evaluate
from shared_core.training.joint import JointConfig, train_joint
from shared_core.training.lora_agents import lora_agents
from shared_core.training.policy import Policy, load_policy, save_policy
from shared_core.training.policy_analyst import PolicyAnalyst, policy_path, trained_analyst
from shared_core.training.policy_training import PolicyReport, PolicyTraining, train_policy
from shared_core.training.practice import Practice, Practices, talk_of
from shared_core.training.rewards import RewardConfig
from shared_core.training.run_card import RunCard
from shared_core.training.sft import SftConfig, train_sft
from shared_core.training.teaching import teach

__all__ = [
    "Backbone",
    "GrpoConfig",
    "HeldOut",
    "JointConfig",
    "LoraSettings",
    "Policy",
    "PolicyAnalyst",
    "PolicyReport",
    "PolicyTraining",
    "Practice",
    "Practices",
    "RewardConfig",
    "RunCard",
    "SftConfig",
    "TrainingSet",
    "evaluate",
    "group_advantages",
    "group_loss",
    "load_policy",
    "lora_agents",
    "policy_path",
    "read_training_set",
    "save_policy",
    "talk_of",
    "teach",
    "train_grpo",
    "train_joint",
    "train_policy",
    "train_sft",
    "trained_analyst",
    "write_training_set",
]
