"""Training the small policy on one bank, and the check that decides whether it is used.

Every choice is supposed and verified once (``rehearsal.lessons``); the policy is then trained on these
rewards by the group-relative advantage. It is used only where a dry cycle over memories that it never saw
gains more F1 with it than with the rules.

Source: MemDream Eq. 11, N = 4, exploration 0.2 that decays, AdamW, gradient norm 1, weight decay 0.01
(appendix D) [S]; the network, its rewards and the check are ours [O].
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.agents.dream_config import DreamConfig
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.bank.graph import GraphKeys, MemoryGraph, read_graph
from shared_core.config import checked_whole
from shared_core.errors import ConfigError, MissingExtraError
from shared_core.training.features import CHOICES
from shared_core.training.objectives import OBJECTIVES, Objective, ObjectiveName
from shared_core.training.policy import SHAPES, Policy, check_place, save_policy
from shared_core.training.policy_analyst import PolicyAnalyst, policy_path
from shared_core.training.rehearsal import Lessons, Outcome, lessons, rehearse, split_rows

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.types import Array, Embedder, Progress

CURVE_POINTS = 50
LEAST_GAIN = 1e-9
_UNHURRIED = 1e9
"""Seconds: what is learnt must not depend on how busy the machine is."""


@dataclass(frozen=True, kw_only=True)
class PolicyTraining:
    """How a policy is trained.

    Raises:
        ConfigError: A value is outside its range.
    """

    objective: ObjectiveName = "imitation"
    """``imitation`` of the best verified choice, which gains more on held-out memories (docs/results.md) [O],
    or ``group-relative``, Eq. 11 [S], which alone uses ``group`` and ``exploration``."""
    group: int = 4
    """N of Eq. 11: choices drawn per failed probe and step [S]."""
    steps: int = 1000
    """Over all cases; the best step by their mean reward is kept, the rules themselves if none is
    better [O]."""
    learning_rate: float = 0.01
    """[O: the paper's 1e-3 is for LoRA adapters]."""
    exploration: float = 0.2
    """Share of choices drawn evenly, falling to 0 [S]."""
    weight_decay: float = 0.01
    """[S]; pulls towards the rules, since the network only adds to them."""
    gradient_norm: float = 1.0
    """[S]."""
    held_out: float = 0.4
    """Share of the memories that the check asks about [O]."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.objective not in OBJECTIVES:
            raise ConfigError(f"objective={self.objective!r} is not one of {', '.join(OBJECTIVES)}")
        for name, least in (("group", 2), ("steps", 1), ("seed", 0)):
            checked_whole(name, getattr(self, name), least)
        for name in ("learning_rate", "gradient_norm"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)!r} must be above 0")
        if not self.weight_decay >= 0:
            raise ConfigError(f"weight_decay={self.weight_decay!r} must be 0 or more")
        if not 0 <= self.exploration <= 1:
            raise ConfigError(f"exploration={self.exploration!r} is outside [0, 1]")
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out={self.held_out!r} must be between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What training did to the mean reward of the cases."""

    rules: float
    """Of what the rules choose."""
    policy: float
    """Of what the trained policy chooses."""
    best: float
    """Of the best choices, which no policy can pass."""
    changed: int
    """Cases in which the policy chooses otherwise than the rules."""
    curve: list[float]
    """Of the policy's choices over the steps, beginning with the rules'."""


@dataclass(frozen=True, kw_only=True)
class PolicyReport:
    """What came of training a bank's policy."""

    path: str
    used: bool
    """Whether it gained more than the rules on held-out memories; if not, the rules go on deciding."""
    cases: int
    """Failed probes that it learnt from."""
    tried: int
    """Repairs that were supposed for that."""
    learning: Learning
    held_out_rules: Outcome
    held_out_policy: Outcome
    parameters: int
    memories: int
    data: str
    """SHA-256 of the memories' ids and texts."""
    seconds: float
    training: dict[str, Any]
    dream: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def train_policy(
    bank: MemoryBank,
    path: Path | None = None,
    *,
    training: PolicyTraining | None = None,
    dream: DreamConfig | None = None,
    graph_keys: GraphKeys | None = None,
    overwrite: bool = False,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> PolicyReport:
    """Train a policy on a bank and save it with its report as card; the bank is only read.

    Args:
        bank: With the embedder that it was filled with.
        path: Where the policy is saved; default: ``policy_path(bank)``.
        training: Options.
        dream: Options of the cycles that it learns from and will work in.
        graph_keys: Metadata fields that say where a memory belongs.
        overwrite: Whether an earlier policy may be replaced.
        stop: Asked while repairs are tried; what was tried by then is learnt from.
        progress: Called with a stage, what is done and how much there is.

    Raises:
        ConfigError: The bank has no embedder, nothing can be learnt from it, or the path cannot be written.
        MissingExtraError: The extra ``train`` is not installed.
    """
    if bank.embedder is None:
        raise ConfigError("probes are embedded: open the bank with embedder=..., the one it was filled with")
    training = training or PolicyTraining()
    path = path or policy_path(bank)
    check_place(path, replace=overwrite)
    _torch()
    config = replace(dream or DreamConfig(), seconds=_UNHURRIED, groundwork=False, seed=training.seed)
    started = time.perf_counter()
    graph = read_graph(bank, graph_keys)
    seen, unseen = split_rows(graph, (1 - training.held_out, training.held_out), training.seed)
    learnt = lessons(graph, bank.embedder, seen, config, stop=stop, progress=progress)
    if not learnt.cases:
        raise ConfigError(
            f"of {len(graph)} memories {len(seen)} could be asked about, and no question failed: there is "
            "nothing to learn from yet"
        )
    policy, learning = learn(learnt, training, progress)
    rules, trained = judge(graph, bank.embedder, unseen, policy, config)
    report = PolicyReport(
        path=str(path),
        used=trained.gain > rules.gain + LEAST_GAIN,
        cases=len(learnt.cases),
        tried=learnt.tried,
        learning=learning,
        held_out_rules=rules,
        held_out_policy=trained,
        parameters=policy.parameters,
        memories=len(graph),
        data=_digest(graph),
        seconds=time.perf_counter() - started,
        training=asdict(training),
        dream=config.to_dict(),
    )
    save_policy(policy, report.to_dict(), path, replace=overwrite)
    return report


def judge(
    graph: MemoryGraph, embedder: Embedder, rows: frozenset[int], policy: Policy, config: DreamConfig
) -> tuple[Outcome, Outcome]:
    """Return what a dry cycle about some memories brings with the rules, and with a policy."""
    return (
        rehearse(graph, embedder, rows, RuleAnalyst(), config),
        rehearse(graph, embedder, rows, PolicyAnalyst(policy), config),
    )


def learn(
    learnt: Lessons,
    training: PolicyTraining,
    progress: Progress | None = None,
    *,
    objective: Objective | None = None,
    start: Policy | None = None,
) -> tuple[Policy, Learning]:
    """Train a policy on cases with the reward of every choice, and keep the best step.

    Args:
        learnt: At least one case.
        training: Options.
        progress: Called as ``progress("train", step, steps)``.
        objective: What it is trained for; default: that of the options.
        start: What it begins as; default: the rules.

    Raises:
        MissingExtraError: The extra ``train`` is not installed.
    """
    torch = _torch()
    features, allowed, rewards = learnt.features, learnt.allowed, learnt.rewards
    start = start or Policy.untrained(training.seed)
    parameters = {
        name: torch.tensor(np.asarray(start.weights[name], float), requires_grad=True) for name in SHAPES
    }
    optimizer = torch.optim.AdamW(
        parameters.values(), lr=training.learning_rate, weight_decay=training.weight_decay
    )
    loss_of = (objective or OBJECTIVES[training.objective])(learnt, training, torch)
    inputs, closed = torch.tensor(features), torch.tensor(allowed <= 0)
    curve, best = [_mean_reward(start, learnt)], start
    every = max(1, training.steps // CURVE_POINTS)
    for step in range(1, training.steps + 1):
        hidden = torch.tanh(inputs @ parameters["inner"] + parameters["inner_bias"])
        scores = hidden @ parameters["outer"] + parameters["outer_bias"]
        scores = (scores + start.prior * inputs[:, : len(CHOICES)]).masked_fill(closed, -torch.inf)
        loss = loss_of(scores, step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), training.gradient_norm)
        optimizer.step()
        if step % every == 0:
            now = _policy(parameters, start.prior)
            reward = _mean_reward(now, learnt)
            best = now if reward > max(curve) else best
            curve.append(reward)
        if progress is not None:
            progress("train", step, training.steps)
    rule, chosen = np.array([case.rule for case in learnt.cases]), _choices(best, learnt)
    return best, Learning(
        rules=float(rewards[np.arange(len(rule)), rule].mean()),
        policy=max(curve),
        best=float(np.where(allowed > 0, rewards, -np.inf).max(axis=1).mean()),
        changed=int((rule != chosen).sum()),
        curve=curve,
    )


# ---- inner


def _choices(policy: Policy, learnt: Lessons) -> Array:
    found: Array = policy.scores(learnt.features, learnt.allowed).argmax(axis=1)
    return found


def _mean_reward(policy: Policy, learnt: Lessons) -> float:
    return float(learnt.rewards[np.arange(len(learnt.cases)), _choices(policy, learnt)].mean())


def _policy(parameters: dict[str, Any], prior: float) -> Policy:
    weights = {name: value.detach().numpy().astype(np.float32) for name, value in parameters.items()}
    return Policy(weights, prior)


def _digest(graph: MemoryGraph) -> str:
    found = hashlib.sha256()
    for memory_id, text in zip(graph.ids, graph.texts, strict=True):
        found.update(f"{len(memory_id)}:{memory_id}{len(text)}:{text}".encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "train") from None
    return torch
