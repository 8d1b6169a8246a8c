"""LlamaIndex chat messages as pages of a conversation memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from shared_core.errors import InvalidMemoryError

if TYPE_CHECKING:
    from shared_core.bank.conversation import Page
    from shared_core.bank.turns import Turn

_ROLES: dict[MessageRole, Any] = {
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.TOOL: "tool",
    MessageRole.FUNCTION: "tool",
}


def pages_from_messages(
    messages: Sequence[ChatMessage],
    *,
    session: str,
    time: datetime | None = None,
    exchanges: bool = False,
    tools: bool = False,
    names: tuple[str, str] = ("user", "assistant"),
    start: int | None = None,
) -> list[Page]:
    """Return what user and assistant said as pages, for ``ConversationMemory.add_pages``.

    ::

        memory = ConversationMemory(bank)
        memory.add_pages(pages_from_messages(chat.chat_history, session="monday", time=now, start=0))

    LlamaIndex messages have no id. With ``start`` a page's id follows from session and position, so passing
    the whole history again stores only what is new; an ``id`` (text) in a message's ``additional_kwargs``
    takes precedence. Of several blocks the text is kept; system messages, and messages without text such as
    mere tool calls, are left out.

    Args:
        messages: In order.
        session: Name of the session.
        time: When they were said; it becomes part of the text, so give the same one when you pass them again.
        exchanges: One page for what the user said and all that was answered, instead of one per message; a
            last message without an answer waits for it. Pass them when the turn is over: an exchange that
            grows later is refused, since its page is stored already.
        tools: Keep what tools answered.
        names: How user and assistant are called where a message's ``additional_kwargs`` hold no ``name``.
        start: Position of the first message in its session. By default messages get a random id and are
            stored again each time.

    Raises:
        InvalidMemoryError: Something is no message, or the session has no name.
    """
    from shared_core.bank.turns import pages_from_turns

    for message in messages:
        if not isinstance(message, ChatMessage):
            raise InvalidMemoryError(f"{type(message).__name__} in messages is no LlamaIndex ChatMessage")
    return pages_from_turns(
        list(_turns(messages, tools)),
        session=session,
        time=time,
        exchanges=exchanges,
        names=names,
        start=start,
    )


def _turns(messages: Sequence[ChatMessage], tools: bool) -> Iterator[Turn]:
    from shared_core.bank.turns import Turn

    for position, message in enumerate(messages):
        role = _ROLES.get(message.role)
        if role is None or (role == "tool" and not tools):
            continue
        yield Turn(
            role=role,
            # content is None where no block is text
            text=message.content or "",
            name=_said(message, "name"),
            id=_said(message, "id"),
            position=position,
        )


def _said(message: ChatMessage, key: str) -> str | None:
    found = message.additional_kwargs.get(key)
    return found if isinstance(found, str) and found else None
