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
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from shared_core.agents.parsing import read_reply
from shared_core.agents.prompts import Prompt, again
from shared_core.chat import BatchChatModel, ChatMessage, ChatModel, ChatReply, MeteredChat
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

Made = TypeVar("Made")
Told_co = TypeVar("Told_co", covariant=True)

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
    failures: int = 0
    """Errors and timeouts in a row, up to now."""

    def begin(self) -> None:
        """Count anew: what a dream may spend is its own, and a model that failed is tried again."""
        vars(self).update(vars(AskingReport()))

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


@dataclass(frozen=True, kw_only=True)
class Task(Generic[Told_co]):
    """One question to a model, and what makes its reply usable."""

    agent: str
    """Who asks, for the report."""
    prompt: Prompt
    form: type[BaseModel]
    """Of the reply."""
    check: Callable[[Any], Told_co]
    """Makes what is wanted of a reply in that form; raises ``ChatReplyError`` for what cannot be used."""

    def read(self, reply: str) -> Told_co:
        """Return what a reply says.

        Raises:
            ChatReplyError: It cannot be used.
        """
        return self.check(read_reply(reply, self.form))


class Asker:
    """A chat model behind limits, shared by the agents of one dream; one call at a time.

    Args:
        model: Any chat model; a ``MeteredChat`` is used as it is and counts on.
        limits: What may be spent.
        report: Counted on, where several askers share what they may spend.
    """

    def __init__(
        self, model: ChatModel, limits: AskingLimits | None = None, report: AskingReport | None = None
    ) -> None:
        self.chat = model if isinstance(model, MeteredChat) else MeteredChat(model)
        self.limits = limits or AskingLimits()
        self.report = report if report is not None else AskingReport()

    def ask(self, task: Task[Made]) -> Made | None:
        """Return what a reply to a task says; None where the rule has to answer."""
        return self.ask_all([task])[0]

    def ask_all(self, tasks: Sequence[Task[Made] | None]) -> list[Made | None]:
        """Return what the replies to some tasks say, None in the place of no task.

        They are asked together where the model can, else one by one.
        """
        given = [task for task in tasks if task is not None]
        together = [given] if isinstance(self.chat.model, BatchChatModel) else [[task] for task in given]
        made = iter([one for part in together if part for one in self._settled(part)])
        return [None if task is None else next(made) for task in tasks]

    # ---- inner

    def _settled(self, tasks: Sequence[Task[Made]]) -> list[Made | None]:
        """Ask tasks at once, and those whose reply cannot be used once more."""
        self.report.asked += len(tasks)
        made: list[Made | None] = [None] * len(tasks)
        reason = [""] * len(tasks)
        open_now = list(range(len(tasks)))
        messages = [task.prompt.messages for task in tasks]
        for attempt in range(ATTEMPTS):
            replies = self._replies([messages[at] for at in open_now], [tasks[at] for at in open_now])
            unusable = []
            for at, (reply, stopped) in zip(open_now, replies, strict=True):
                if reply is None:
                    # where a second try failed, the first defect is not what made the rule answer
                    reason[at] = stopped
                    continue
                try:
                    made[at] = tasks[at].read(reply.text)
                except ChatReplyError as error:
                    reason[at] = error.reason
                    messages[at] = tuple(again(tasks[at].prompt.messages, reply.text, str(error)))
                    unusable.append(at)
                    continue
                reason[at] = ""
                self.report.answered += 1
            if attempt == 0:
                self.report.retried += len(unusable)
            open_now = unusable
            if not open_now:
                break
        for task, why in zip(tasks, reason, strict=True):
            if why:
                self.report.fallbacks.setdefault(task.agent, Counter())[why] += 1
        return made

    def _replies(
        self, messages: Sequence[Sequence[ChatMessage]], tasks: Sequence[Task[Any]]
    ) -> list[tuple[ChatReply | None, str]]:
        """Return each reply, or None and why there is none."""
        if self.report.failures >= self.limits.failures:
            return [(None, GAVE_UP)] * len(tasks)
        expected = [sum(estimate_tokens(message.content) for message in one) for one in messages]
        payable = self._payable(expected)
        found: list[tuple[ChatReply | None, str]] = []
        if payable:
            found = self._asked(messages[:payable], expected, tasks[0].prompt)
        return found + [(None, BUDGET)] * (len(tasks) - payable)

    def _payable(self, expected: Sequence[int]) -> int:
        """Return how many of some prompts the budget has room for."""
        calls, tokens = self.report.calls, self.report.tokens
        for count, size in enumerate(expected):
            calls, tokens = calls + 1, tokens + size
            if calls > self.limits.calls or tokens > self.limits.tokens:
                return count
        return len(expected)

    def _asked(
        self, messages: Sequence[Sequence[ChatMessage]], expected: Sequence[int], prompt: Prompt
    ) -> list[tuple[ChatReply | None, str]]:
        self.report.calls += len(messages)
        before = self.chat.usage.seconds
        try:
            replies = self._timed(messages, prompt)
        except Exception as error:
            # a model of the user's may raise anything
            replies = [error] * len(messages)
        self.report.seconds += self.chat.usage.seconds - before
        return [self._counted(reply, size) for reply, size in zip(replies, expected, strict=False)]

    def _counted(self, reply: ChatReply | Exception, expected: int) -> tuple[ChatReply | None, str]:
        if isinstance(reply, ChatContextError):
            return None, CONTEXT
        if isinstance(reply, Exception):
            self.report.failures += 1
            self.report.tokens += expected
            # an API's message may quote the request, and so memories, or the key
            logger.warning("the chat model failed: %s; what it said is logged as DEBUG", type(reply).__name__)
            logger.debug("the chat model failed: %r", reply)
            return None, TIMEOUT if isinstance(reply, TimeoutError) else FAILED
        self.report.failures = 0
        told = (reply.prompt_tokens, reply.completion_tokens)
        known = [count for count in told if count is not None]
        self.report.tokens += sum(known) if len(known) == 2 else expected + estimate_tokens(reply.text)
        return reply, ""

    def _timed(
        self, messages: Sequence[Sequence[ChatMessage]], prompt: Prompt
    ) -> Sequence[ChatReply | Exception]:
        if self.limits.seconds is None:
            return self._complete(messages, prompt)
        made: list[Sequence[ChatReply | Exception]] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                made.append(self._complete(messages, prompt))
            except BaseException as error:
                failed.append(error)

        # a daemon: a call that never ends must not keep the program from ending
        thread = threading.Thread(target=work, name="dream-chat", daemon=True)
        thread.start()
        allowed = self.limits.seconds * len(messages)
        thread.join(allowed)
        if thread.is_alive():
            raise TimeoutError(f"no reply within {allowed:g} s")
        if failed:
            raise failed[0]
        return made[0]

    def _complete(
        self, messages: Sequence[Sequence[ChatMessage]], prompt: Prompt
    ) -> Sequence[ChatReply | Exception]:
        limits: dict[str, Any] = {"max_tokens": self.limits.reply_tokens, "temperature": 0.0}
        replies: Sequence[ChatReply | Exception]
        if isinstance(self.chat.model, BatchChatModel):
            replies = self.chat.complete_all(messages, **limits)
        else:
            replies = [self.chat.complete(one, **limits, schema=prompt.schema) for one in messages]
        for reply in replies:
            if isinstance(reply, Exception):
                continue
            if not isinstance(reply, ChatReply) or not isinstance(reply.text, str):
                raise TypeError(f"the model returned a {type(reply).__name__}, not a ChatReply with a text")
        if len(replies) != len(messages):
            raise TypeError(f"the model returned {len(replies)} replies to {len(messages)} prompts")
        return replies
