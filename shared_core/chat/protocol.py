"""What a chat model is to this package: messages in, one reply with its token counts out.

Knows no vendor, no framework and no prompt. ``langchain_dream.as_chat`` and ``llamaindex_dream.as_chat`` wrap
the models of those frameworks; an object of the user's that has the two methods fits as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from shared_core.errors import ConfigError

Role: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class ChatMessage:
    """One message.

    Raises:
        ConfigError: ``role`` is none of system, user, assistant.
    """

    role: Role
    content: str

    def __post_init__(self) -> None:
        """Check the role."""
        if self.role not in get_args(Role):
            raise ConfigError(f"role={self.role!r} is not one of {', '.join(get_args(Role))}")


@dataclass(frozen=True, kw_only=True)
class ChatReply:
    """What a model answered, and what it cost."""

    text: str
    prompt_tokens: int | None = None
    """Tokens read; None where the model does not say."""
    completion_tokens: int | None = None
    """Tokens written; None where the model does not say."""


@runtime_checkable
class ChatModel(Protocol):
    """Any chat model.

    Both methods take the same arguments and raise the same errors:

    - ``messages``: at least one, the system message first where there is one.
    - ``max_tokens``, ``temperature``: what is wanted. A model behind an adapter may keep its own settings;
      the adapter's documentation says so. Temperature 0 asks for the same answer every time.
    - ``stop``: the reply ends before the first of these strings.
    - ``schema``: a JSON schema that the reply should fit. A hint: validate what comes back.

    They raise ``ChatError`` where the model fails, its ``ChatContextError`` where the messages do not fit.
    """

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Return the reply to ``messages``."""
        ...

    async def acomplete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """``complete`` without blocking the event loop."""
        ...


@runtime_checkable
class BatchChatModel(ChatModel, Protocol):
    """A chat model that answers many prompts in about the time of one."""

    def complete_all(
        self, messages: Sequence[Sequence[ChatMessage]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> list[ChatReply | Exception]:
        """Return the reply to each conversation, in order; in its place the error where there is none."""
        ...
