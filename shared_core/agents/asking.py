"""One question to a chat model: asked, checked, asked again once, and given up with a reason.

Whatever goes wrong, the caller gets None, asks its rules instead, and the reason is counted: a dream never
fails because a model does, and never hides that it did.

Source: none, ours [O]; design section 4 (structured output, one retry, then the rule).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel

from shared_core.agents.parsing import read_reply
from shared_core.agents.prompts import Prompt, again
from shared_core.chat import ChatMessage, ChatModel, ChatReply, MeteredChat
from shared_core.errors import ChatContextError, ChatReplyError, ConfigError
from shared_core.language import estimate_tokens

CONTEXT, TIMEOUT, FAILED, BUDGET, GAVE_UP = (
    "context overflow",
    "timeout",
    "model error",
    "budget used up",
    "model given up",
)
"""Reasons for falling back, besides those of ``parsing``."""
ATTEMPTS = 2

Form = TypeVar("Form", bound=BaseModel)
Made = TypeVar("Made")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AskingLimits:
    """What the agents of one dream may spend on their model.

    Raises:
        ConfigError: A limit below 1, or no positive time.
    """

    calls: int = 400
    """Second tries included."""
    tokens: int = 400_000
    """Prompts and replies together; estimated where the model does not say."""
    reply_tokens: int = 512
    """Of one reply."""
    seconds: float | None = 120.0
    """For one call; None waits as long as the model does."""
    failures: int = 3
    """Errors and timeouts in a row after which the model is not asked any more."""

    def __post_init__(self) -> None:
        """Check the limits."""
        for name in ("calls", "tokens", "reply_tokens", "failures"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is below 1")
        if self.seconds is not None and self.seconds <= 0:
            raise ConfigError(f"seconds={self.seconds} is not above 0: give None to wait without limit")


@dataclass
class AskingReport:
    """What came of the questions, for the report of the cycle."""

    asked: int = 0
    answered: int = 0
    retried: int = 0
    """Questions that were asked a second time."""
    calls: int = 0
    tokens: int = 0
    """Estimated where the model does not say."""
    seconds: float = 0.0
    fallbacks: dict[str, Counter[str]] = field(default_factory=dict)
    """Of each agent, how often the rule answered, by reason."""

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        reasons = {agent: dict(sorted(counts.items())) for agent, counts in sorted(self.fallbacks.items())}
        return {
            "asked": self.asked,
            "answered": self.answered,
            "retried": self.retried,
            "calls": self.calls,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "fallbacks": reasons,
        }


class Asker:
    """A chat model behind limits, shared by the three agents of one dream; one call at a time.

    Args:
        model: Any chat model; a ``MeteredChat`` is used as it is and counts on.
        limits: What may be spent.
    """

    def __init__(self, model: ChatModel, limits: AskingLimits | None = None) -> None:
        self.chat = model if isinstance(model, MeteredChat) else MeteredChat(model)
        self.limits = limits or AskingLimits()
        self.report = AskingReport()
        self._failures = 0

    def ask(self, agent: str, prompt: Prompt, form: type[Form], check: Callable[[Form], Made]) -> Made | None:
        """Return what ``check`` makes of a reply that fits ``form``; None where the rule has to answer.

        Args:
            agent: Who asks, for the report.
            prompt: The question.
            form: Of the reply.
            check: Raises ``ChatReplyError`` for what cannot be used.
        """
        self.report.asked += 1
        messages: Sequence[ChatMessage] = prompt.messages
        reason = ""
        for attempt in range(ATTEMPTS):
            reply, stopped = self._reply(messages, prompt)
            if reply is None:
                # where a second try failed, the first defect is not what made the rule answer
                reason = stopped
                break
            try:
                made = check(read_reply(reply.text, form))
            except ChatReplyError as error:
                reason = error.reason
                messages = again(prompt.messages, reply.text, str(error))
                self.report.retried += attempt == 0
                continue
            self.report.answered += 1
            return made
        self.report.fallbacks.setdefault(agent, Counter())[reason] += 1
        return None

    def _reply(self, messages: Sequence[ChatMessage], prompt: Prompt) -> tuple[ChatReply | None, str]:
        if self._failures >= self.limits.failures:
            return None, GAVE_UP
        expected = sum(estimate_tokens(message.content) for message in messages)
        if self.report.calls >= self.limits.calls or self.report.tokens + expected > self.limits.tokens:
            return None, BUDGET
        self.report.calls += 1
        before = self.chat.usage.seconds
        try:
            reply = self._timed(messages, prompt)
        except ChatContextError:
            return None, CONTEXT
        except Exception as error:
            # a model of the user's may raise anything
            self._failures += 1
            self.report.tokens += expected
            logger.warning("the chat model failed: %s: %s", type(error).__name__, error)
            return None, TIMEOUT if isinstance(error, TimeoutError) else FAILED
        self._failures = 0
        self.report.seconds += self.chat.usage.seconds - before
        told = (reply.prompt_tokens, reply.completion_tokens)
        known = [count for count in told if count is not None]
        self.report.tokens += sum(known) if len(known) == 2 else expected + estimate_tokens(reply.text)
        return reply, ""

    def _timed(self, messages: Sequence[ChatMessage], prompt: Prompt) -> ChatReply:
        if self.limits.seconds is None:
            return self._complete(messages, prompt)
        made: list[ChatReply] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                made.append(self._complete(messages, prompt))
            except BaseException as error:
                failed.append(error)

        # a daemon: a call that never ends must not keep the program from ending
        thread = threading.Thread(target=work, name="dream-chat", daemon=True)
        thread.start()
        thread.join(self.limits.seconds)
        if thread.is_alive():
            raise TimeoutError(f"no reply within {self.limits.seconds:g} s")
        if failed:
            raise failed[0]
        return made[0]

    def _complete(self, messages: Sequence[ChatMessage], prompt: Prompt) -> ChatReply:
        reply = self.chat.complete(
            messages, max_tokens=self.limits.reply_tokens, temperature=0.0, schema=prompt.schema
        )
        if not isinstance(reply, ChatReply) or not isinstance(reply.text, str):
            raise TypeError(f"the model returned a {type(reply).__name__}, not a ChatReply with a text")
        return reply
