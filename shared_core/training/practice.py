"""One talk as a memory to practise on: what agents are asked about it, and what their replies are worth.

Every repair is only supposed in a ``ProbeIndex`` and taken back; scoring leaves the practice as it was.
A reply is hostile data: it is read and checked by the task that asked for it, and only what passes is scored.

Source: MemDream Eq. 8-10 for single agents, Eq. 12 for joint training [S]; what stands for each term of one
rollout is ours [O], see ``rewards``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.agents.dream_config import DreamConfig
from shared_core.agents.llm_analyst import diagnosis_task
from shared_core.agents.llm_consolidator import quotes_task
from shared_core.agents.llm_dreamer import question_task
from shared_core.agents.protocol import Diagnosis, Probe, Retrieval, Target
from shared_core.agents.rule_analyst import is_filler, same_content
from shared_core.agents.rule_consolidator import source_of
from shared_core.agents.weakness import usable, weakness_terms
from shared_core.errors import ChatReplyError, ConfigError
from shared_core.training import rewards as formulas
from shared_core.training.dataset import diagnosis_of, probe_of, retrieval_of
from shared_core.training.practice_graph import graph_of, talk_of
from shared_core.training.practice_trials import Trials
from shared_core.training.rewards import RewardConfig

if TYPE_CHECKING:
    from shared_core.agents.asking import Task
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.repairing import Repair
    from shared_core.training.dataset import Example, Talk, TrainingSet
    from shared_core.types import Embedder, FloatArray

__all__ = ["Practice", "Practices", "Score", "graph_of", "talk_of"]

NO_TASK = "nothing to ask"
"""Reason where a case gives no task: its memories may not be shown, or nothing can be written."""
KEPT = 128
"""Practices that ``Practices`` holds at once."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a reply is worth."""

    reward: float
    """In [0, 1]; 0 where the reply cannot be used."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """Of Eq. 8, 9 or 10, by name; empty where the reply cannot be used."""
    valid: bool
    """Whether the reply passed every check."""
    reason: str = ""
    """Why it did not."""


@dataclass(frozen=True)
class _Judged:
    """The terms of one usable reply, but for the one that compares it with its group."""

    terms: dict[str, float]
    kind: str
    """What is counted in a group: the kind of question, or the operation."""


class Practice:
    """A talk's graph, searched and repaired on trial; not safe for threads.

    Args:
        talk: The talk.
        embedder: Embeds pages, queries and derived texts.
        rewards: Weights of the terms.
        config: k, gamma, the lambdas of Eq. 3 and the seed are used.

    Raises:
        ConfigError: The talk has no page.
    """

    def __init__(
        self,
        talk: Talk,
        embedder: Embedder,
        *,
        rewards: RewardConfig | None = None,
        config: DreamConfig | None = None,
    ) -> None:
        self.talk = talk
        self.embedder = embedder
        self.config = config or DreamConfig()
        self.rewards = rewards or RewardConfig()
        self.graph = graph_of(talk, embedder)
        self.allowed: frozenset[int] = frozenset(usable(self.graph).tolist())
        self.weakness = _phi(self.graph, self.config)
        """phi(v) of every row (Eq. 3)."""
        self.trials = Trials(self.graph, embedder, self.config)
        self.verifier, self.consolidator = self.trials.verifier, self.trials.consolidator

    # ---- tasks

    def task(self, example: Example) -> Task[Any] | None:
        """Return what an agent is asked, and how its reply is read; None where there is nothing to ask.

        Raises:
            ConfigError: The example names a memory that this talk does not have.
        """
        if example.agent == "dreamer":
            rows = [self._row(memory_id) for memory_id in example.case["targets"]]
            target = Target(
                row=rows[0],
                partner=rows[1] if len(rows) > 1 else None,
                weakness=example.case["weakness"],
                score=example.case["score"],
            )
            return question_task(self.graph, target, self.allowed, brief=True)
        if example.agent == "analyst":
            self._known(probe := probe_of(example))
            return diagnosis_task(self.graph, probe, retrieval_of(example), self.allowed, brief=True)
        self._known(probe_of(example))
        plan = self.consolidator.propose(self.graph, diagnosis_of(example))
        return quotes_task(self.graph, plan, brief=True) if plan is not None and plan.memories else None

    # ---- rewards of single agents (Eq. 8-10)

    def score(self, example: Example, reply: str) -> Score:
        """Return what a reply is worth by itself: the terms that compare rollouts of a group are 1."""
        return self.score_group(example, [reply])[0]

    def score_group(self, example: Example, replies: Sequence[str]) -> list[Score]:
        """Return what each of several replies to the same example is worth.

        Args:
            example: The case.
            replies: The rollouts of one group; equal ones are judged once and count each.

        Raises:
            ConfigError: The example names a memory that this talk does not have.
        """
        task = self.task(example)
        if task is None:
            return [Score(reward=0.0, valid=False, reason=NO_TASK) for _ in replies]
        judged = {reply: self._judged(example, task, reply) for reply in dict.fromkeys(replies)}
        found = [judged[reply] for reply in replies]
        usable_ones = [one for one in found if isinstance(one, _Judged)]
        shares = iter(formulas.rollout_shares([one.kind for one in usable_ones]))
        return [
            self._scored(example, one, next(shares))
            if isinstance(one, _Judged)
            else Score(reward=0.0, valid=False, reason=one)
            for one in found
        ]

    # ---- joint training (Eq. 12)

    def repair_of(self, probe: Probe) -> tuple[Repair | None, float]:
        """Return the rules' verified repair for a question, as ``Trials.repair_of`` does."""
        return self.trials.repair_of(probe)

    def gain(self, probe: Probe, repair: Repair | None) -> float:
        """Return r_joint of a repair (Eq. 12), as ``Trials.gain`` does."""
        return self.trials.gain(probe, repair)

    # ---- inner: the three agents

    def _judged(self, example: Example, task: Task[Any], reply: str) -> _Judged | str:
        """Return the terms of a reply, or why it cannot be used."""
        try:
            made = task.read(reply)
        except ChatReplyError as error:
            return error.reason
        if isinstance(made, Probe):
            return self._question(made)
        if isinstance(made, Diagnosis):
            return self._diagnosis(made)
        return self._derived(example, made)

    def _question(self, probe: Probe) -> _Judged:
        """Eq. 8."""
        f1 = self.trials.ask(probe).f1
        phi = float(self.weakness[self.graph.row_of[probe.targets[0]]])
        terms = {
            "discrimination": formulas.rollout_discrimination(f1, phi, *self._spread),
            "downstream": self.trials.repair_of(probe)[1],
        }
        return _Judged(terms, probe.query_type)

    def _diagnosis(self, diagnosis: Diagnosis) -> _Judged:
        """Eq. 9."""
        outcome = self.trials.ask(diagnosis.probe)
        repair = self.consolidator.propose(self.graph, diagnosis)
        helps = repair is not None and self.trials.verified(diagnosis.probe, outcome, repair) > 0
        known = formulas.actionable([diagnosis.targets], self.graph.ids) == 1.0
        terms = {
            "actionable": formulas.rollout_actionable(known, helps=helps),
            "size": formulas.rollout_size(len(diagnosis.targets), self._needed(diagnosis, outcome)),
            "structure": formulas.structure([True]),
        }
        return _Judged(terms, diagnosis.operation)

    def _derived(self, example: Example, repair: Repair) -> _Judged:
        """Eq. 10."""
        (memory,) = repair.memories
        affected = self._affected(example, memory.sources)
        with self.trials.supposed(repair):
            f1 = self.trials.f1(affected)
        sources = [source_of(self.graph, self.graph.row_of[source]) for source in memory.sources]
        operation = diagnosis_of(example).operation
        return _Judged(formulas.consolidator_terms(operation, f1, memory.text, sources), operation)

    def _scored(self, example: Example, judged: _Judged, share: float) -> Score:
        if example.agent == "dreamer":
            terms = {**judged.terms, "coverage": share}
            reward = formulas.dreamer_reward(terms, self.rewards.dreamer)
        elif example.agent == "analyst":
            terms = {**judged.terms, "diversity": share}
            reward = formulas.analyst_reward(terms, self.rewards.analyst)
        else:
            terms = judged.terms
            reward = formulas.consolidator_reward(terms, self.rewards.consolidator)
        return Score(reward=reward, terms=terms, valid=True)

    def _needed(self, diagnosis: Diagnosis, outcome: Retrieval) -> int:
        """Return how many memories an operation needs to name [O]."""
        graph, wanted = self.graph, diagnosis.probe.targets
        others = [
            row for one in outcome.ids if one not in wanted and (row := graph.row_of[one]) in self.allowed
        ]
        if diagnosis.operation == "prune":
            return sum(is_filler(graph.texts[row], graph.speakers[row]) for row in others)
        if diagnosis.operation == "merge":
            first = graph.row_of[wanted[0]]
            return max(2, 1 + sum(same_content(graph, first, row) for row in others))
        return len(wanted) if diagnosis.operation == "synthesize" else 1

    def _affected(self, example: Example, sources: Sequence[str]) -> list[Probe]:
        """Return the questions on which a derived memory is judged: fresh ones, or what people asked [O]."""
        probe = probe_of(example)
        if example.signal == "dream":
            return [probe, *self.trials.fresh(probe, sources, seed=0)]
        asked = [
            Probe(
                query=fact.query,
                expected_answer="",
                targets=(fact.page,),
                query_type="fact",
                weakness=probe.weakness,
            )
            for fact in self.talk.facts
            if fact.page in sources
        ]
        return asked or [probe]

    # ---- inner: the bank

    @cached_property
    def _spread(self) -> tuple[float, float]:
        """Mean of phi over the usable memories, and the largest distance from it."""
        phi = self.weakness[sorted(self.allowed)]
        return (float(phi.mean()), float(np.abs(phi - phi.mean()).max())) if len(phi) else (0.0, 0.0)

    def _known(self, probe: Probe) -> None:
        for memory_id in probe.targets:
            self._row(memory_id)

    def _row(self, memory_id: str) -> int:
        row = self.graph.row_of.get(memory_id)
        if row is None:
            raise ConfigError(
                f"talk {self.talk.name!r} has no page {memory_id!r}: the example is of another talk"
            )
        return row


class Practices:
    """The practices of a training set's talks, each built when it is first asked for.

    Args:
        training_set: The set.
        embedder: For all of them.
        rewards: Weights of the terms.
        config: As for ``Practice``.
    """

    def __init__(
        self,
        training_set: TrainingSet,
        embedder: Embedder,
        *,
        rewards: RewardConfig | None = None,
        config: DreamConfig | None = None,
    ) -> None:
        self.training_set = training_set
        self.embedder = embedder
        self.rewards = rewards or RewardConfig()
        self.config = config or DreamConfig()
        self._held: OrderedDict[str, Practice] = OrderedDict()

    def score_group(self, example: Example, replies: Sequence[str]) -> list[Score]:
        """Return what each of several replies to an example is worth, on its own talk."""
        return self.of(example.talk).score_group(example, replies)

    def of(self, talk_name: str) -> Practice:
        """Return the practice of a talk; the ``KEPT`` last used ones are held.

        Raises:
            ConfigError: The set has no such talk.
        """
        if talk_name not in self._held:
            talk = self.training_set.talks.get(talk_name)
            if talk is None:
                raise ConfigError(f"the training set has no talk {talk_name!r}")
            self._held[talk_name] = Practice(talk, self.embedder, rewards=self.rewards, config=self.config)
            if len(self._held) > KEPT:
                self._held.popitem(last=False)
        self._held.move_to_end(talk_name)
        return self._held[talk_name]


# ---- inner


def _phi(graph: MemoryGraph, config: DreamConfig) -> FloatArray:
    lambdas = np.array([config.connectivity, config.redundancy, config.staleness])
    found: FloatArray = weakness_terms(graph) @ lambdas
    return found
