"""What Dreamer and Consolidator do in joint training, and what it brings: the frozen Analyst between them.

A weak memory is asked about, a question that fails is diagnosed, the diagnosis becomes a repair, and the
repair is supposed. Whoever's turn it is draws a group of replies, the others answer as they would in a dream:
the likeliest reply, and the rules' where that cannot be used. Nothing is written.

Source: MemDream section 3.3.2, Eq. 12 [S]; that a reply which leads to no repair is worth 0, as much as
leaving the memory alone, and that the Consolidator plays what the Dreamer asked, are ours [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from shared_core.agents.llm_analyst import diagnosis_task
from shared_core.agents.llm_consolidator import quotes_task
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.errors import ChatReplyError
from shared_core.training.dataset import diagnosis_of
from shared_core.training.held_out import REPLY_TOKENS

if TYPE_CHECKING:
    from shared_core.agents.asking import Task
    from shared_core.agents.protocol import Diagnosis, Probe, Retrieval
    from shared_core.bank.repairing import Repair
    from shared_core.chat import ChatMessage
    from shared_core.training.backbone import Backbone
    from shared_core.training.backbone import Rollout as Reply
    from shared_core.training.dataset import Example
    from shared_core.training.dataset_forms import AgentName
    from shared_core.training.practice import Practice, Practices

Made = TypeVar("Made")

ANSWERED, NO_DIAGNOSIS, NO_REPAIR = "answered already", "no diagnosis", "no repair"
"""Why a usable reply brings nothing; ``parsing`` has the reasons of unusable ones."""


@dataclass(frozen=True)
class Rollout:
    """One reply, and what it brought."""

    tokens: tuple[int, ...]
    reward: float
    """Eq. 12, in [-1, 1]."""
    valid: bool
    """Whether it passed every check."""
    reason: str
    """Why it led to no repair; empty if it did."""


@dataclass(frozen=True)
class Played:
    """A group: one prompt, and the replies drawn for it."""

    prompt: Sequence[ChatMessage]
    rollouts: Sequence[Rollout]


@dataclass
class _Line:
    """A question on its way to a repair."""

    practice: Practice
    probe: Probe | None
    reason: str
    diagnosis: Diagnosis | None = None
    plan: Repair | None = None


class Stage:
    """Plays both agents' turns.

    Args:
        backbone: All three adapters.
        practices: The memory of each talk.
        spare: Consolidator's examples, played where the Dreamer's questions lead to too few repairs.
    """

    def __init__(self, backbone: Backbone, practices: Practices, spare: Sequence[Example] = ()) -> None:
        self._backbone = backbone
        self._practices = practices
        self._spare = spare
        self._analyst = RuleAnalyst()

    def dream(self, examples: Sequence[Example], group: int, temperature: float, seed: int) -> list[Played]:
        """Let the Dreamer draw a group of questions about each weak memory, and reward what they lead to."""
        drawn = self._questions(examples, samples=group, temperature=temperature, seed=seed)
        lines = [line for _, _, line in drawn]
        self._diagnose(lines)
        worded = self._worded([line for line in lines if line.plan is not None])
        repairs = {id(line): repair for line, repair in worded}
        groups: list[Played] = []
        for at in range(0, len(drawn), group):
            part = drawn[at : at + group]
            rollouts = [_rollout(reply, line, repairs.get(id(line))) for _, reply, line in part]
            groups.append(Played(part[0][0], rollouts))
        return groups

    def consolidate(
        self, examples: Sequence[Example], group: int, temperature: float, seed: int
    ) -> list[Played]:
        """Let the Consolidator draw a group of texts for each repair that the Dreamer's questions lead to."""
        lines = [line for _, _, line in self._questions(examples)]
        self._diagnose(lines)
        states = self._states(lines, len(examples), seed)
        tasks = [quotes_task(line.practice.graph, plan, brief=True) for line, plan in states]
        prompts = [task.prompt.messages for task in tasks]
        replies = self._replies("consolidator", prompts, samples=group, temperature=temperature, seed=seed)
        groups: list[Played] = []
        for at, ((line, _), task) in enumerate(zip(states, tasks, strict=True)):
            rollouts: list[Rollout] = []
            for reply in replies[at * group : (at + 1) * group]:
                repair, reason = _read(task, reply)
                rollouts.append(_rollout(reply, replace(line, reason=reason), repair))
            groups.append(Played(prompts[at], rollouts))
        return groups

    # ---- inner

    def _questions(
        self, examples: Sequence[Example], **drawing: Any
    ) -> list[tuple[Sequence[ChatMessage], Reply, _Line]]:
        """Return prompt, reply and question of each example, or of each sample."""
        asked = [(self._practices.of(example.talk), example) for example in examples]
        tasks = [(practice, practice.task(example)) for practice, example in asked]
        open_tasks = [(practice, task) for practice, task in tasks if task is not None]
        prompts = [task.prompt.messages for _, task in open_tasks]
        samples = drawing.get("samples", 1)
        found = []
        for at, reply in enumerate(self._replies("dreamer", prompts, **drawing)):
            practice, task = open_tasks[at // samples]
            probe, reason = _read(task, reply)
            found.append((prompts[at // samples], reply, _Line(practice, probe, reason)))
        return found

    def _diagnose(self, lines: Sequence[_Line]) -> None:
        """Let the Analyst explain each question that fails, and the rules plan the repair."""
        failed: list[tuple[_Line, Probe, Retrieval]] = []
        for line in lines:
            if line.probe is None:
                continue
            outcome = line.practice.trials.ask(line.probe)
            if outcome.f1 < 1.0:
                failed.append((line, line.probe, outcome))
            else:
                line.reason = ANSWERED
        tasks = [
            diagnosis_task(line.practice.graph, probe, outcome, line.practice.allowed, brief=True)
            for line, probe, outcome in failed
        ]
        named = self._made("analyst", tasks)
        for (line, probe, outcome), diagnosis in zip(failed, named, strict=True):
            graph = line.practice.graph
            ruled = [] if diagnosis else self._analyst.diagnose(graph, [(probe, outcome)])
            line.diagnosis = diagnosis or (ruled[0] if ruled else None)
            line.plan = (
                line.practice.trials.consolidator.propose(graph, line.diagnosis) if line.diagnosis else None
            )
            if line.plan is None:
                line.reason = NO_REPAIR if line.diagnosis else NO_DIAGNOSIS

    def _worded(self, lines: Sequence[_Line]) -> list[tuple[_Line, Repair]]:
        """Return the repairs, worded by the Consolidator where it can."""
        plans = [(line, line.plan) for line in lines if line.plan is not None]
        tasks = [
            quotes_task(line.practice.graph, plan, brief=True) if plan.memories else None
            for line, plan in plans
        ]
        texts = self._made("consolidator", tasks)
        return [(line, text or plan) for (line, plan), text in zip(plans, texts, strict=True)]

    def _states(self, lines: Sequence[_Line], most: int, seed: int) -> list[tuple[_Line, Repair]]:
        """Return what the Consolidator can word: repairs of questions, then of spare examples."""
        spare = np.random.default_rng(seed).permutation(len(self._spare))
        found = [(line, line.plan) for line in lines if line.plan is not None and line.plan.memories]
        for at in spare:
            if len(found) >= most:
                break
            example = self._spare[at]
            practice, diagnosis = self._practices.of(example.talk), diagnosis_of(example)
            plan = practice.trials.consolidator.propose(practice.graph, diagnosis)
            if plan is not None and plan.memories:
                found.append((_Line(practice, diagnosis.probe, "", diagnosis, plan), plan))
        return found

    def _made(self, agent: AgentName, tasks: Sequence[Task[Made] | None]) -> list[Made | None]:
        """Return what an agent's likeliest replies say; None where one cannot be used or none is asked."""
        asked = [at for at, task in enumerate(tasks) if task is not None]
        found: list[Made | None] = [None] * len(tasks)
        open_tasks = [task for task in tasks if task is not None]
        replies = self._replies(agent, [task.prompt.messages for task in open_tasks])
        for at, task, reply in zip(asked, open_tasks, replies, strict=True):
            found[at], _ = _read(task, reply)
        return found

    def _replies(
        self, agent: AgentName, prompts: Sequence[Sequence[ChatMessage]], **drawing: Any
    ) -> Sequence[Reply]:
        if not prompts:
            return []
        return self._backbone.generate(agent, prompts, max_tokens=REPLY_TOKENS[agent], **drawing)


def _rollout(reply: Reply, line: _Line, repair: Repair | None) -> Rollout:
    """Return a reply with its reward: the F1 that its repair brings to fresh questions (Eq. 12)."""
    if repair is None or line.probe is None:
        valid = line.reason in {ANSWERED, NO_DIAGNOSIS, NO_REPAIR}
        return Rollout(reply.tokens, 0.0, valid=valid, reason=line.reason)
    return Rollout(reply.tokens, line.practice.gain(line.probe, repair), valid=True, reason="")


def _read(task: Task[Made], reply: Reply) -> tuple[Made | None, str]:
    try:
        return task.read(reply.text), ""
    except ChatReplyError as error:
        return None, error.reason
