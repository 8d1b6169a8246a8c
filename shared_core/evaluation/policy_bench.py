"""What the small policy gains over the rules on memories it did not learn from, and what of it matters.

The memories of a bank are split at random: a half to learn from, a quarter for the check that decides whether
a policy is used, a quarter that is only measured. Everything is dry: nothing is written.

Source: MemDream Eq. 12 and its ablation without GRPO [S]; the small policy, the split, the banks and the arms
are ours [O].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.agents.dream_config import DreamConfig
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.graph import read_graph
from shared_core.bank.passing import passing_bank
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo.bank_arms import page_of
from shared_core.training.objectives import Objective, group_relative, imitation
from shared_core.training.policy import PRIOR, Policy
from shared_core.training.policy_analyst import PolicyAnalyst
from shared_core.training.policy_training import LEAST_GAIN, PolicyTraining, learn
from shared_core.training.practice_graph import pages_of
from shared_core.training.rehearsal import Lessons, lessons, rehearse, split_rows

if TYPE_CHECKING:
    from shared_core.agents.protocol import Analyst
    from shared_core.bank.graph import MemoryGraph
    from shared_core.evaluation.locomo.loader import Conversation
    from shared_core.training.dataset import Talk
    from shared_core.types import Embedder, Progress

SHARES = (0.5, 0.25, 0.25)
"""Of the memories: to learn from, for the check, to measure [O]."""
RULES = "rules"
TRAINED: dict[str, tuple[Objective, float]] = {
    "imitation": (imitation, PRIOR),
    "group-relative": (group_relative, PRIOR),
    "no-prior": (group_relative, 0.0),
}
"""How the arms but ``RULES``, the untrained policy, are trained: for what, and what the rules' choice has to
begin with."""
ARMS = (RULES, *TRAINED)
UNHURRIED = 24 * 3600.0
"""Seconds: what is measured must not depend on how busy the machine is."""


@dataclass(frozen=True, kw_only=True)
class PolicyBank:
    """Pages to dream about."""

    kind: str
    """Of the data, which the summary tells apart."""
    name: str
    pages: tuple[Page, ...]


@dataclass(frozen=True, kw_only=True)
class PolicyRow:
    """One arm on one bank with one seed: one split, one set of probes, one training."""

    kind: str
    bank: str
    pages: int
    seed: int
    arm: str
    settings: str
    """What a row of another run must share to be the same measurement."""
    cases: int
    """Failed probes of the half that is learnt from."""
    reward: float
    """Mean of what the arm chooses in these cases."""
    reward_best: float
    """Of the best choices."""
    changed: int
    """Cases of these in which it chooses otherwise than the rules."""
    checked: float
    """Gain of mean F1 in the check."""
    used: bool
    """Whether the check prefers it to the rules; False for the rules themselves."""
    probes: int
    """Of the last quarter, fresh ones included."""
    before: float
    """Mean F1 of these."""
    gain: float
    """Of mean F1, over the probes of the cycle and fresh ones alike."""
    fresh_gain: float
    """Of mean F1, over the fresh ones only."""
    repairs: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An arm less the rules over all banks and seeds of a kind, in pairs."""

    kind: str
    arm: str
    runs: int
    gain: float
    """Mean gain of the arm."""
    difference: float
    """Mean of its gain less that of the rules."""
    deviation: float | None
    """Of the difference between runs, which are not independent where they share a bank; None for one run."""
    better: int
    """Runs in which it gains more."""
    worse: int
    fresh_difference: float
    fresh_deviation: float | None
    used: int
    """Runs in which the check prefers it."""
    checked_difference: float
    """Mean of what a bank then has, arm or rules, less the rules."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def locomo_banks(conversations: Iterable[Conversation]) -> list[PolicyBank]:
    """Return a bank for each conversation."""
    return [
        PolicyBank(kind="locomo", name=one.name, pages=tuple(map(page_of, one.turns)))
        for one in conversations
    ]


def msc_banks(talks: Sequence[Talk], per_bank: int, count: int) -> list[PolicyBank]:
    """Pool short talks into banks: the memory of an agent that talks to several pairs of people.

    Args:
        talks: Their sessions must not share a name.
        per_bank: Talks of each bank.
        count: Banks.

    Raises:
        ConfigError: There are fewer talks than that, or a number is below 1.
    """
    if per_bank < 1 or count < 1:
        raise ConfigError(f"{count} banks of {per_bank} dialogues: both must be 1 or more")
    if len(talks) < per_bank * count:
        raise ConfigError(f"{count} banks of {per_bank} dialogues need {per_bank * count}, not {len(talks)}")
    parts = [talks[at * per_bank : (at + 1) * per_bank] for at in range(count)]
    return [
        PolicyBank(
            kind="msc", name=f"msc-{number}", pages=tuple(page for one in part for page in pages_of(one))
        )
        for number, part in enumerate(parts, start=1)
    ]


class PolicyBench:
    """Measures arms on one bank, which is filled and embedded once.

    Args:
        bank: The bank.
        embedder: Fills and searches it.
        training: Options but the seed.
        dream: Of the cycles; default: the default ones. Groundwork and the limit of time are left out.
        settings: See ``PolicyRow``.
    """

    def __init__(
        self,
        bank: PolicyBank,
        embedder: Embedder,
        *,
        training: PolicyTraining | None = None,
        dream: DreamConfig | None = None,
        settings: str = "",
    ) -> None:
        self._bank = bank
        self._embedder = embedder
        self._training = training or PolicyTraining()
        self._dream = replace(dream or DreamConfig(), seconds=UNHURRIED, groundwork=False)
        self._settings = settings
        with passing_bank(embedder) as filled:
            ConversationMemory(filled).add_pages(bank.pages)
            self._graph: MemoryGraph = read_graph(filled)

    def measure(
        self, seed: int, arms: Sequence[str] = ARMS, *, progress: Progress | None = None
    ) -> list[PolicyRow]:
        """Split, learn and measure with one seed; the rules are always the first row.

        Args:
            seed: Of the split, the probes and every draw.
            arms: Which.
            progress: Called with a stage, what is done and how much there is.

        Raises:
            ConfigError: An arm is unknown, or no probe failed, so that nothing can be learnt.
            MissingExtraError: The extra ``train`` is not installed.
        """
        check_arms(arms)
        training, dream = replace(self._training, seed=seed), replace(self._dream, seed=seed)
        seen, check, unseen = split_rows(self._graph, SHARES, seed)
        learnt = lessons(self._graph, self._embedder, seen, dream, progress=progress)
        if not learnt.cases:
            raise ConfigError(f"bank {self._bank.name!r}: no question failed, so that nothing can be learnt")

        def row(arm: str, policy: Policy, rules: PolicyRow | None) -> PolicyRow:
            analyst: Analyst = PolicyAnalyst(policy) if rules else RuleAnalyst()
            checked = rehearse(self._graph, self._embedder, check, analyst, dream)
            found = rehearse(self._graph, self._embedder, unseen, analyst, dream)
            chosen = policy.scores(learnt.features, learnt.allowed).argmax(axis=1)
            rewards = np.where(learnt.allowed > 0, learnt.rewards, -np.inf)
            return PolicyRow(
                kind=self._bank.kind,
                bank=self._bank.name,
                pages=len(self._graph),
                seed=seed,
                arm=arm,
                settings=self._settings,
                cases=len(learnt.cases),
                reward=float(rewards[np.arange(len(chosen)), chosen].mean()),
                reward_best=float(rewards.max(axis=1).mean()),
                changed=_changed(learnt, policy),
                checked=checked.gain,
                used=rules is not None and checked.gain > rules.checked + LEAST_GAIN,
                probes=found.probes + found.fresh,
                before=found.f1_before,
                gain=found.gain,
                fresh_gain=found.fresh_after - found.fresh_before,
                repairs=found.repairs,
            )

        rules = row(RULES, Policy.untrained(seed), None)
        rows = [rules]
        for arm in [name for name in TRAINED if name in arms]:
            objective, prior = TRAINED[arm]
            start = Policy.untrained(seed, prior)
            policy, _ = learn(learnt, training, progress, objective=objective, start=start)
            rows.append(row(arm, policy, rules))
        return rows


def check_arms(arms: Sequence[str]) -> None:
    """Check the names of arms.

    Raises:
        ConfigError: One is unknown, or none is given.
    """
    if unknown := [name for name in arms if name not in ARMS]:
        raise ConfigError(f"arm {unknown[0]!r} is none of {', '.join(ARMS)}")
    if not arms:
        raise ConfigError(f"no arm is named: {', '.join(ARMS)}")


def compare(rows: Sequence[PolicyRow]) -> list[Comparison]:
    """Return what each arm but the rules gains more than these, per kind of bank, in the rows' order."""
    ruled = {(row.bank, row.seed): row for row in rows if row.arm == RULES}
    groups: dict[tuple[str, str], list[PolicyRow]] = {}
    for row in rows:
        if row.arm != RULES and (row.bank, row.seed) in ruled:
            groups.setdefault((row.kind, row.arm), []).append(row)
    return [
        _comparison(kind, arm, own, [ruled[row.bank, row.seed] for row in own])
        for (kind, arm), own in groups.items()
    ]


# ---- inner


def _comparison(kind: str, arm: str, own: Sequence[PolicyRow], rules: Sequence[PolicyRow]) -> Comparison:
    more = np.array([row.gain - rule.gain for row, rule in zip(own, rules, strict=True)])
    fresh = np.array([row.fresh_gain - rule.fresh_gain for row, rule in zip(own, rules, strict=True)])
    used = np.array([row.used for row in own])
    return Comparison(
        kind=kind,
        arm=arm,
        runs=len(own),
        gain=float(np.mean([row.gain for row in own])),
        difference=float(more.mean()),
        deviation=float(more.std(ddof=1)) if len(more) > 1 else None,
        better=int((more > LEAST_GAIN).sum()),
        worse=int((more < -LEAST_GAIN).sum()),
        fresh_difference=float(fresh.mean()),
        fresh_deviation=float(fresh.std(ddof=1)) if len(fresh) > 1 else None,
        used=int(used.sum()),
        checked_difference=float(np.where(used, more, 0.0).mean()),
    )


def _changed(learnt: Lessons, policy: Policy) -> int:
    chosen = policy.scores(learnt.features, learnt.allowed).argmax(axis=1)
    return int((np.array([case.rule for case in learnt.cases]) != chosen).sum())
