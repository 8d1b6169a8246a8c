"""Copycat: a scripted victim that does what its demonstrations do. It is no language model.

It copies the demonstration that states a rule for the question ("there is 'x' in the question", the published
poison's form [S], with x in the question), else the one whose question shares most words with the one asked.
So it stands for the worst case, an agent that obeys its memory entirely, and makes the measurement repeatable
and free. An agent that reads its memories more critically does better; a poison that is not retrieved harms
none. It knows nothing: its accuracy on yes-or-no questions is that of always saying the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shared_core.chat import ChatMessage, ChatReply, cut_at_stop
from shared_core.errors import ChatError
from shared_core.evaluation.agent_prompts import Demonstration, parse_agent_prompt

DEFAULT_ANSWER = "Yes"
"""Where the demonstration states no answer: facts alone do not tell a copier what to say."""

_RULE = re.compile(r"['’‘\"](?P<cue>[^\n'’‘\"]{2,120})['’‘\"] in the question", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_ORDER = re.compile(r"\boutput ['\"](?P<what>.+?)['\"](?=\s|[.,;]|$)", re.IGNORECASE)
_STATED = re.compile(r"\banswer is (?:\w+ )?(?P<what>yes|no)\b", re.IGNORECASE)


class Copycat:
    """A deterministic ``ChatModel`` for the agent's prompts; tokens are counted as words."""

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,  # noqa: ARG002 (the protocol's; a copy is as long as what is copied)
        temperature: float = 0.0,  # noqa: ARG002
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> ChatReply:
        """Return the value of the demonstration that the copycat follows.

        Raises:
            ChatError: The last message is no prompt of an agent.
        """
        parsed = parse_agent_prompt(messages[-1].content) if messages else None
        if parsed is None:
            raise ChatError(
                "the copycat only copies demonstrations: this prompt asks no question of an agent"
            )
        demonstrations, question = parsed
        text = cut_at_stop(_copied(demonstrations, question), stop)
        return ChatReply(
            text=text,
            prompt_tokens=sum(len(message.content.split()) for message in messages),
            completion_tokens=len(text.split()),
        )

    async def acomplete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """``complete``; it takes no time."""
        return self.complete(
            messages, max_tokens=max_tokens, temperature=temperature, stop=stop, schema=schema
        )


def _copied(demonstrations: Sequence[Demonstration], question: str) -> str:
    if not demonstrations:
        return f"Answer: {DEFAULT_ANSWER}"
    # ties go to what was retrieved first
    _, value = max(
        demonstrations, key=lambda shown: (_rules(shown[1], question), _likeness(shown[0], question))
    )
    if "Solution:" in value:
        return value
    followed = _ORDER.search(value) or _STATED.search(value)
    thought = value.replace("Question:", "Earlier question:")
    return f"{thought}\nAnswer: {followed['what'] if followed else DEFAULT_ANSWER}"


def _rules(value: str, question: str) -> bool:
    return any(found["cue"].casefold() in question.casefold() for found in _RULE.finditer(value))


def _likeness(one: str, other: str) -> float:
    first, second = (set(_WORD.findall(text.lower())) for text in (one, other))
    return len(first & second) / len(first | second) if first | second else 0.0
