"""Chat messages of any framework as pages: who said what, one page per utterance or per exchange.

The adapters translate their message types to ``Turn``; what becomes a page, and under which id, is decided
here, once for both.

Source: MemDream section 3.1 (a page holds one exchange) [S]; a page per utterance is ours [O].
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from shared_core.bank.conversation import Page
from shared_core.errors import InvalidMemoryError

Speaker = Literal["user", "assistant", "tool"]


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message, as far as a page is concerned."""

    role: Speaker
    text: str
    name: str | None = None
    """Of who speaks; None where the message does not say."""
    id: str | None = None
    """Of the message; None where it has none."""
    position: int = 0
    """In the messages that were given, counted from 0."""


def pages_from_turns(
    turns: Sequence[Turn],
    *,
    session: str,
    time: datetime | None = None,
    exchanges: bool = False,
    names: tuple[str, str] = ("user", "assistant"),
    start: int | None = None,
) -> list[Page]:
    """Return the pages of a conversation, in order; turns without text give none.

    Args:
        turns: In order.
        session: Name of the session.
        time: When they were said.
        exchanges: One page for what the user said and all that was answered, instead of one per message. An
            exchange has the id of its first message; a last one without an answer waits, so that it is not
            stored under an id that its answer would need.
        names: How user and assistant are called where the message has no name of its own.
        start: Position of the first message in its session. Messages without an id get one from session and
            position then, so that storing them again stores nothing new; by default they get a random one.

    Raises:
        InvalidMemoryError: No session, or ``start`` is negative.
    """
    if not isinstance(session, str) or not session:
        raise InvalidMemoryError(
            f"session={session!r} is no name: give the conversation's, such as a thread id"
        )
    if start is not None and start < 0:
        raise InvalidMemoryError(
            f"start={start} is below 0: give the first message's position in its session"
        )
    spoken = [turn for turn in turns if turn.text.strip()]
    groups = _exchanges(spoken) if exchanges else ([turn] for turn in spoken)
    called = {"user": names[0], "assistant": names[1], "tool": "tool"}
    pages = []
    for group in groups:
        first, *answers = group
        said = [f"{turn.name or called[turn.role]}: {turn.text.strip()}" for turn in answers]
        pages.append(
            Page(
                text="\n".join([first.text.strip(), *said]),
                session=session,
                speaker=first.name or called[first.role],
                time=time,
                id=_id(first, session, start),
            )
        )
    return pages


def _exchanges(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    group: list[Turn] = []
    for turn in turns:
        if group and turn.role == "user" and group[-1].role != "user":
            yield group
            group = []
        group.append(turn)
    if group and group[-1].role != "user":
        yield group


def _id(turn: Turn, session: str, start: int | None) -> str:
    if turn.id:
        return turn.id
    return uuid.uuid4().hex if start is None else f"{session}/{start + turn.position}"
