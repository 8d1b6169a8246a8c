"""The small policy as an analyst of the dream cycle.

Asks an inner analyst first, and then decides for each failed probe: repair it so, otherwise, or not at all.
What it chooses is verified by the cycle like any repair.

Source: none, ours [O].
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.errors import ConfigError
from shared_core.training.features import SKIP, Scene
from shared_core.training.policy import Policy, load_policy

if TYPE_CHECKING:
    from shared_core.agents.protocol import Analyst, Diagnosis, Probe, Retrieval
    from shared_core.bank import MemoryBank
    from shared_core.bank.graph import MemoryGraph


class PolicyAnalyst:
    """Satisfies ``Analyst``.

    ::

        DreamCycle(bank, analyst=trained_analyst(bank)).run()

    Args:
        policy: Decides.
        inner: Diagnoses first; default: by rules, which is what policies are trained with.
    """

    def __init__(self, policy: Policy, inner: Analyst | None = None) -> None:
        self.policy = policy
        self.inner: Analyst = inner or RuleAnalyst()
        self._scene: Scene | None = None

    def diagnose(self, graph: MemoryGraph, failures: Sequence[tuple[Probe, Retrieval]]) -> list[Diagnosis]:
        """Return the diagnoses that the policy would act on, those that cost most F1 first."""
        if not failures:
            return []
        # rounds of a cycle share one snapshot
        if self._scene is None or self._scene.graph is not graph:
            self._scene = Scene(graph)
        cases = self._scene.cases(failures, self.inner.diagnose(graph, failures))
        scores = self.policy.scores(
            np.stack([case.features for case in cases]), np.stack([case.allowed for case in cases])
        )
        chosen = scores.argmax(axis=1).tolist()
        return [case.options[choice] for case, choice in zip(cases, chosen, strict=True) if choice != SKIP]


def trained_analyst(bank: MemoryBank, path: Path | None = None, *, inner: Analyst | None = None) -> Analyst:
    """Return the bank's policy as an analyst where it did better than the rules, else the inner analyst.

    Args:
        bank: The bank.
        path: Of the policy; default: ``policy_path(bank)``.
        inner: See ``PolicyAnalyst``.

    Raises:
        ConfigError: There is no policy, or it cannot be read; see ``load_policy``.
    """
    policy, card = load_policy(path or policy_path(bank))
    return PolicyAnalyst(policy, inner) if card.get("used") is True else inner or RuleAnalyst()


def policy_path(bank: MemoryBank) -> Path:
    """Return where a bank's policy is: beside its state database.

    Raises:
        ConfigError: The state is in no file.
    """
    url = bank.state.engine.url
    if not url.drivername.startswith("sqlite") or not url.database:
        raise ConfigError(
            "the bank's state is in no file, beside which its policy could lie: name a path for the policy"
        )
    file = Path(url.database)
    bank_of = f"{bank.state.bank_id}\n{bank.state.scope}"
    name = hashlib.sha256(bank_of.encode()).hexdigest()[:12]
    return file.with_name(f"{file.stem}-policy-{name}.safetensors")
