"""What the tests of SFT and GRPO share: a set of short examples, and weights to compare."""

from __future__ import annotations

import hashlib
from typing import Any

from shared_core.training.backbone import Backbone
from shared_core.training.dataset import Example, TrainingSet


def training_set(count: int = 6, *, agent: Any = "dreamer", digest: str = "d" * 64) -> TrainingSet:
    """Return a set whose prompts and replies have different lengths."""
    examples = [
        Example(
            agent=agent,
            talk="talk",
            split="train",
            signal="dream" if at % 2 else "real",
            case={"targets": [f"p{at}"]},
            prompt=(
                {"role": "system", "content": "Reply with JSON."},
                {"role": "user", "content": "Ask about page " + "p1 " * (at + 1)},
            ),
            completion='{"question": "' + "q" * (at + 1) + '"}',
            teacher="rules",
            score=at / 10,
        )
        for at in range(count)
    ]
    return TrainingSet(talks={}, examples=examples, digest=digest)


def weights(backbone: Backbone) -> dict[str, str]:
    """Return a digest of each adapter, and of all other weights as ``base``."""
    made = {name: hashlib.sha256() for name in ("dreamer", "analyst", "consolidator", "base")}
    for name, value in sorted(backbone.model.state_dict().items()):
        whose = next((agent for agent in made if f".{agent}." in name), "base")
        made[whose].update(name.encode() + value.detach().cpu().numpy().tobytes())
    return {name: one.hexdigest() for name, one in made.items()}


class KilledError(Exception):
    """As if the process had died."""


def killed_at(step: int) -> Any:
    """Return a progress function that dies at a step."""

    def progress(_stage: str, done: int, _total: int) -> None:
        if done == step:
            raise KilledError

    return progress
