"""LangChain messages as pages of a conversation memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)

from shared_core.errors import InvalidMemoryError

if TYPE_CHECKING:
    from shared_core.bank.conversation import Page
    from shared_core.bank.turns import Turn


def pages_from_messages(
    messages: Sequence[BaseMessage | dict[str, Any] | tuple[str, str]],
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
        memory.add_pages(pages_from_messages(state["messages"], session=thread_id, time=now))

    A message's id becomes its page's id, so passing the whole history again stores only what is new;
    LangGraph gives every message an id. Of content blocks the text is kept; system messages, and messages
    without text such as mere tool calls, are left out.

    Args:
        messages: Messages, or what LangChain takes for one: dicts with role and content, (role, text) pairs.
        session: Name of the session, such as the thread id.
        time: When they were said; it becomes part of the text, so give the same one when you pass them again.
        exchanges: One page for what the user said and all that was answered, instead of one per message; a
            last message without an answer waits for it. Pass them when the turn is over: an exchange that
            grows later is refused, since its page is stored already.
        tools: Keep what tools answered.
        names: How user and assistant are called where a message has no ``name``.
        start: Position of the first message in its session: messages without an id get one from it. By
            default they get a random one and are stored again each time.

    Raises:
        InvalidMemoryError: Something is no message, or the session has no name.
    """
    from shared_core.bank.turns import pages_from_turns

    try:
        given = convert_to_messages(messages)
    except (ValueError, NotImplementedError, TypeError) as error:
        raise InvalidMemoryError(
            f"messages hold something that LangChain takes for no message: {error}"
        ) from error
    return pages_from_turns(
        list(_turns(given, tools)),
        session=session,
        time=time,
        exchanges=exchanges,
        names=names,
        start=start,
    )


def text_of(message: BaseMessage) -> str:
    """Return what a message says; of content blocks, the text."""
    return str(message.text)


def _turns(messages: Sequence[BaseMessage], tools: bool) -> Iterator[Turn]:
    from shared_core.bank.turns import Turn

    for position, message in enumerate(messages):
        role = _role(message)
        if role is not None and (tools or role != "tool"):
            yield Turn(
                role=role,
                text=text_of(message),
                name=message.name,
                id=message.id,
                position=position,
            )


def _role(message: BaseMessage) -> Any:
    if isinstance(message, ChatMessage):
        return {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant"}.get(
            message.role
        )
    for kind, role in (
        (HumanMessage, "user"),
        (AIMessage, "assistant"),
        (ToolMessage, "tool"),
        (FunctionMessage, "tool"),
    ):
        if isinstance(message, kind):
            return role
    return None
