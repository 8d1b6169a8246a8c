"""What an agent is worth on talks that it never learnt from: how much of it can be used, and its reward.

The same prompts, the same greedy replies and the same rewards for the backbone alone and for an adapter, so
that a difference is the adapter's.

Source: MemDream appendix E.3, average reward on held-out conversations [S]; the share of replies that pass
every check is ours [O].
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.config import checked_whole
from shared_core.errors import ConfigError
from shared_core.training.dataset import messages_of

if TYPE_CHECKING:
    from shared_core.training.backbone import Backbone
    from shared_core.training.dataset import Example, TrainingSet
    from shared_core.training.dataset_forms import AgentName, Signal, Split
    from shared_core.training.practice import Practices, Score
    from shared_core.types import Progress

BATCH = 8
"""Prompts generated at once; of similar length, because a shorter one is padded [O]."""
REPLY_TOKENS: Mapping[str, int] = {"dreamer": 128, "analyst": 64, "consolidator": 256}
"""Of one reply at most: room for what the agent's form needs; a bare model would never end [O]."""


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """What came of an agent's replies."""

    agent: str
    adapter: bool
    """Whether the agent's adapter answered; else the backbone alone."""
    n: int
    valid: int
    """Replies that were read and passed every check."""
    mean_reward: float
    """Over all replies, in [-1, 1]; an unusable one counts 0."""
    deviation: float
    """Of the rewards, the population's."""
    talks: Mapping[str, float]
    """Mean reward of each talk."""
    reasons: Mapping[str, int]
    """Why replies could not be used."""
    seconds: float

    @property
    def valid_share(self) -> float:
        """In [0, 1]."""
        return self.valid / self.n

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        found = {**asdict(self), "talks": dict(self.talks), "reasons": dict(self.reasons)}
        return {**found, "valid_share": self.valid_share}


def evaluate(
    backbone: Backbone,
    training_set: TrainingSet,
    practices: Practices,
    agent: AgentName,
    *,
    adapter: bool,
    split: Split = "test",
    signal: Signal | None = None,
    limit: int | None = None,
    temperature: float = 0.0,
    max_tokens: int | None = None,
    batch: int = BATCH,
    seed: int = 0,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> HeldOut:
    """Let an agent answer held-out prompts, and reward every reply as in training.

    Args:
        backbone: The model and its adapters.
        training_set: Where the prompts come from.
        practices: The memory of each talk, which scores the replies.
        agent: Who answers.
        adapter: Whether its adapter is used; False measures the backbone alone.
        split: Of the examples.
        signal: Only examples of dreams, or of real queries; None takes both.
        limit: Examples at most, spread evenly over the set; None takes all.
        temperature: 0 takes the likeliest token.
        max_tokens: Of one reply; default: ``REPLY_TOKENS`` of the agent.
        batch: Prompts generated at once.
        seed: Of the draws, where ``temperature`` is above 0.
        stop: Asked after every batch; what was answered by then is told.
        progress: Called as ``progress("agent: backbone", done, prompts)``, or ``"agent: adapter"``.

    Raises:
        ConfigError: The set has no such example, or a count is below 1.
    """
    checked_whole("batch", batch, 1)
    chosen = held_out_examples(training_set, agent, split=split, signal=signal, limit=limit)
    started = time.perf_counter()
    stage = f"{agent}: {'adapter' if adapter else 'backbone'}"
    # the longest first: what does not fit into the memory fails at once, not at the end
    order = sorted(chosen, key=_length, reverse=True)
    answered: list[tuple[Example, str]] = []
    for at in range(0, len(order), batch):
        if answered and stop is not None and stop():
            break
        part = order[at : at + batch]
        replies = backbone.generate(
            agent if adapter else None,
            [messages_of(example) for example in part],
            max_tokens=max_tokens or REPLY_TOKENS[agent],
            temperature=temperature,
            seed=seed + at,
        )
        answered += [(example, reply.text) for example, reply in zip(part, replies, strict=True)]
        if progress is not None:
            progress(stage, len(answered), len(order))
    scores = [practices.of(example.talk).score(example, reply) for example, reply in answered]
    return _held_out(agent, adapter, [one for one, _ in answered], scores, time.perf_counter() - started)


def held_out_examples(
    training_set: TrainingSet,
    agent: AgentName,
    *,
    split: Split = "test",
    signal: Signal | None = None,
    limit: int | None = None,
) -> list[Example]:
    """Return what ``evaluate`` asks: the examples in their order, or evenly spread ones.

    Raises:
        ConfigError: There is none, or ``limit`` is below 1.
    """
    found = training_set.of(agent, split=split, signal=signal)
    if not found:
        kind = f" of signal {signal!r}" if signal is not None else ""
        raise ConfigError(
            f"the training set has no {agent} example{kind} in split {split!r}: make a larger one with "
            "`dream train data` (--talks with --msc, --held-out with a collection)"
        )
    if limit is None:
        return found
    checked_whole("limit", limit, 1)
    places = np.unique(np.linspace(0, len(found) - 1, min(limit, len(found))).round().astype(int))
    return [found[place] for place in places]


# ---- inner


def _length(example: Example) -> int:
    return sum(len(message["content"]) for message in example.prompt)


def _held_out(
    agent: str, adapter: bool, examples: Sequence[Example], scores: Sequence[Score], seconds: float
) -> HeldOut:
    rewards = np.array([score.reward for score in scores])
    talks: dict[str, list[float]] = {}
    for example, score in zip(examples, scores, strict=True):
        talks.setdefault(example.talk, []).append(score.reward)
    return HeldOut(
        agent=agent,
        adapter=adapter,
        n=len(scores),
        valid=sum(score.valid for score in scores),
        mean_reward=float(rewards.mean()),
        deviation=float(rewards.std()),
        talks={talk: float(np.mean(found)) for talk, found in sorted(talks.items())},
        reasons=dict(Counter(score.reason for score in scores if not score.valid).most_common()),
        seconds=seconds,
    )
