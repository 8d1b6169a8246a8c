"""A small training set of one story, and replies that the agents' tasks accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shared_core.chat import ChatMessage
from shared_core.training.backbone import Backbone, Rollout
from shared_core.training.dataset import Fact, Talk, TrainingSet, Utterance, write_training_set
from shared_core.training.practice import Practice
from shared_core.training.teaching import teach
from shared_core.types import Embedder
from tests.agents.nut_story import pages

CASES = 6
"""Of each agent and talk, at most."""


def story(name: str, split: str) -> Talk:
    """Return the story as a talk."""
    found = tuple(
        Utterance(
            id=f"{name}-{page.id}",
            text=page.text,
            session=page.session or "",
            speaker=page.speaker,
            time=page.time.isoformat() if page.time else None,
        )
        for page in pages()
    )
    return Talk(name=name, split=split, pages=found, facts=(Fact(query="nuts are bad", page=found[2].id),))  # type: ignore[arg-type]


def small_set(folder: Path, embedder: Embedder) -> TrainingSet:
    """Write a set of two talks, train and test, which the rules taught."""
    talks = [story("seen", "train"), story("unseen", "test")]
    examples = [
        one for talk in talks for one in teach(Practice(talk, embedder), per_talk=CASES)[0] if one.completion
    ]
    return write_training_set(folder, talks, examples, {})


class Scripted(Backbone):
    """The tiny model, which draws what a script says: random weights never write a reply that can be used.

    What it drew is what it learns from, with its own probabilities.
    """

    script: Callable[[str | None, str, int], str]
    """Of agent, prompt and number of the sample."""

    def generate(
        self,
        agent: Any,
        prompts: Sequence[Sequence[ChatMessage]],
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        samples: int = 1,
        seed: int | None = None,
    ) -> list[Rollout]:
        """Return the script's replies."""
        found = []
        for prompt in prompts:
            for sample in range(samples):
                text = self.script(agent, prompt[-1].content, sample)
                tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
                found.append(Rollout(text, (*tokens, self.tokenizer.eos_token_id), len(self.encode(prompt))))
        return found


def taught(training_set: TrainingSet) -> dict[str, str]:
    """Return the teacher's reply to each prompt."""
    return {one.prompt[-1]["content"]: one.completion for one in training_set.examples}
