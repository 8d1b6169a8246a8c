"""What a teacher shows the agents of a dream: the cases of one talk, each with a reply.

The rules are the teacher, or any chat model. Every reply is read by the task that the trained agent will be
asked, and one that it refuses is dropped and counted; the case stays, for training by reward.

Source: MemDream section 3.3.2: agents are first trained on a teacher's outputs [S]; the rules as a teacher
are ours [O].
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shared_core.agents.asking import Asker, AskingLimits, Task
from shared_core.errors import ChatReplyError, ConfigError
from shared_core.training.dataset import AGENTS, RULES, Example, Signal
from shared_core.training.teaching_cases import Case, find_cases

if TYPE_CHECKING:
    from pydantic import BaseModel

    from shared_core.chat import ChatModel
    from shared_core.training.practice import Practice

PER_TALK = 12
"""Cases of each agent and signal: appendix D has 8-12 dream queries per conversation [S]."""
TAUGHT, NO_REPLY = "taught", "no reply"
"""What is counted besides the reasons of ``asking`` and ``parsing``."""


def teach(
    practice: Practice,
    *,
    signals: Sequence[Signal] = ("dream", "real"),
    per_talk: int = PER_TALK,
    teacher: ChatModel | Asker | None = None,
    name: str = "model",
    seed: int = 0,
) -> tuple[list[Example], Counter[str]]:
    """Return the examples of one talk, and what came of the cases, counted as "agent: what".

    Cases do not depend on the teacher. A model is asked the full prompt, and again once where its reply
    cannot be used; its example has the brief prompt, and the reply as plain JSON.

    Args:
        practice: The talk; left as it is.
        signals: "dream" for what the rules ask about weak memories, "real" for the talk's facts.
        per_talk: Cases of each agent and signal, at most.
        teacher: None for the rules. An ``Asker`` limits what all talks together may spend; a model has
            the default limits for every talk.
        name: Of the teacher, where it is a model.
        seed: Of what is drawn.

    Raises:
        ConfigError: ``per_talk`` is below 1.
    """
    if per_talk < 1:
        raise ConfigError(f"per_talk={per_talk} is below 1")
    cases = [one for signal in signals for one in find_cases(practice, signal, per_talk, seed)]
    counts: Counter[str] = Counter()
    if teacher is None:
        replies = [_by_rules(case, counts) for case in cases]
        name = RULES
    else:
        asker = teacher if isinstance(teacher, Asker) else Asker(teacher, AskingLimits())
        replies = _by_model(cases, asker, counts)
    return [_example(practice, *one, name) for one in zip(cases, replies, strict=True)], counts


# ---- inner


def _by_rules(case: Case, counts: Counter[str]) -> str:
    """Return the rules' reply; nothing where they have none, or the agent's task refuses it."""
    if case.reply is None:
        counts[f"{case.agent}: {NO_REPLY}"] += 1
        return ""
    reply = json.dumps(case.reply, ensure_ascii=False)
    try:
        case.brief.read(reply)
    except ChatReplyError as error:
        counts[f"{case.agent}: {error.reason}"] += 1
        return ""
    counts[f"{case.agent}: {TAUGHT}"] += 1
    return reply


def _by_model(cases: Sequence[Case], asker: Asker, counts: Counter[str]) -> list[str]:
    """Return a model's replies; nothing where it has none that the agent's task accepts."""
    before = {agent: Counter(asker.report.fallbacks.get(agent, {})) for agent in AGENTS}
    found = [reply or "" for reply in asker.ask_all([_copied(case) for case in cases])]
    counts.update(f"{case.agent}: {TAUGHT}" for case, reply in zip(cases, found, strict=True) if reply)
    for agent in AGENTS:
        for reason, count in (asker.report.fallbacks.get(agent, Counter()) - before[agent]).items():
            counts[f"{agent}: {reason}"] += count
    return found


def _copied(case: Case) -> Task[str]:
    """Return the full task of a case, whose answer is the reply itself without the prose around it."""

    def check(reply: BaseModel) -> str:
        text = json.dumps(reply.model_dump(), ensure_ascii=False)
        case.brief.read(text)
        return text

    return Task(agent=case.agent, prompt=case.full.prompt, form=case.full.form, check=check)


def _example(practice: Practice, case: Case, reply: str, teacher: str) -> Example:
    score = case.score
    if reply and case.agent == "dreamer" and case.signal == "dream":
        # a model's question is another one than the rules'
        f1 = practice.trials.verifier.index.ask(case.brief.read(reply), practice.config.k).f1
        score = (1.0 - f1) * case.case["score"]
    return Example(
        agent=case.agent,
        talk=practice.talk.name,
        split=practice.talk.split,
        signal=case.signal,
        case=case.case,
        prompt=tuple({"role": one.role, "content": one.content} for one in case.brief.prompt.messages),
        completion=reply,
        teacher=teacher if reply else "",
        score=score,
    )
