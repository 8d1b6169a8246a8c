"""Counts what a chat model is asked and what it costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_core.chat.protocol import BatchChatModel, ChatMessage, ChatModel, ChatReply
from shared_core.errors import ChatError


@dataclass
class Usage:
    """What calls cost together."""

    calls: int = 0
    prompt_tokens: int | None = 0
    """None as soon as one reply did not say."""
    completion_tokens: int | None = 0
    """None as soon as one reply did not say."""
    seconds: float = 0.0
    """Wall time inside the model, added up over calls."""

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens together, None where one of them is unknown."""
        return _sum(self.prompt_tokens, self.completion_tokens)

    def add(self, reply: ChatReply, seconds: float) -> None:
        """Count one call."""
        self.calls += 1
        self.prompt_tokens = _sum(self.prompt_tokens, reply.prompt_tokens)
        self.completion_tokens = _sum(self.completion_tokens, reply.completion_tokens)
        self.seconds += seconds


class MeteredChat:
    """A chat model that counts; ``usage`` has the sums, ``reset`` starts anew.

    Args:
        model: The model that answers.
    """

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.usage = Usage()

    def reset(self) -> Usage:
        """Start anew and return what was counted until now."""
        counted, self.usage = self.usage, Usage()
        return counted

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Ask the model and count; a call that fails is not counted."""
        started = time.perf_counter()
        reply = self.model.complete(
            messages, max_tokens=max_tokens, temperature=temperature, stop=stop, schema=schema
        )
        self.usage.add(reply, time.perf_counter() - started)
        return reply

    async def acomplete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Ask the model and count; a call that fails is not counted."""
        started = time.perf_counter()
        reply = await self.model.acomplete(
            messages, max_tokens=max_tokens, temperature=temperature, stop=stop, schema=schema
        )
        self.usage.add(reply, time.perf_counter() - started)
        return reply

    def complete_all(
        self, messages: Sequence[Sequence[ChatMessage]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> list[ChatReply | Exception]:
        """Ask a model that answers many prompts at once, and count each reply.

        Raises:
            ChatError: The model answers one prompt at a time.
        """
        if not isinstance(self.model, BatchChatModel):
            raise ChatError(f"a {type(self.model).__name__} has no complete_all: call complete")
        started = time.perf_counter()
        replies = self.model.complete_all(messages, max_tokens=max_tokens, temperature=temperature)
        spent = (time.perf_counter() - started) / max(1, len(replies))
        for reply in replies:
            if isinstance(reply, ChatReply):
                self.usage.add(reply, spent)
        return replies


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
