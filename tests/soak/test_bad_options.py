"""Whatever is given to a config is a config, or refused with a ConfigError."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.agents import DreamConfig
from shared_core.bank.tiers import TierConfig
from shared_core.config import (
    AssociativeConfig,
    ConsolidationConfig,
    CouplingConfig,
    ForgettingConfig,
    RetrievalConfig,
)
from shared_core.errors import ConfigError
from shared_core.evaluation.stream import StreamConfig
from shared_core.evaluation.triggers import TriggerConfig as TriggerSearchConfig
from shared_core.fleet import FleetConfig
from shared_core.scheduling import SchedulerConfig, TriggerConfig
from shared_core.training.grpo import GrpoConfig
from shared_core.training.joint import JointConfig
from shared_core.training.rewards import RewardConfig
from shared_core.training.sft import SftConfig
from tests.soak.effort import effort
from tests.soak.hostile import anything

CONFIGS = [
    AssociativeConfig, ConsolidationConfig, CouplingConfig, DreamConfig, FleetConfig, ForgettingConfig,
    GrpoConfig, JointConfig, RetrievalConfig, RewardConfig, SchedulerConfig, SftConfig, StreamConfig,
    TierConfig, TriggerConfig, TriggerSearchConfig,
]  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: f"{kind.__module__}-{kind.__name__}")
def test_a_config_is_refused_with_the_option_named(kind: Any) -> None:
    names = [item.name for item in fields(kind)]

    @effort(150)
    @given(st.sampled_from(names), anything)
    def holds(name: str, value: Any) -> None:
        with suppress(ConfigError):
            kind(**{name: value})

    holds()


@effort(100)
@given(name=anything, agent=anything, overrides=st.dictionaries(st.text(max_size=5), anything, max_size=2))
def test_a_preset(name: Any, agent: Any, overrides: dict[str, Any]) -> None:
    with suppress(ConfigError):
        ForgettingConfig.preset(name, agent, **overrides)
