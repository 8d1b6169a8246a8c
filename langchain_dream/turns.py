"""Turns of a conversation, handed to a bank's scheduler: what the dream node and the middleware share.

Nothing here waits: pages are embedded and written, and dreams run, on the scheduler's threads.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from langchain_dream.messages import pages_from_messages
from shared_core.errors import ConfigError, DreamError

if TYPE_CHECKING:
    from shared_core import MemoryBank
    from shared_core.bank.conversation import Page
    from shared_core.scheduling import DreamScheduler

REMEMBERED_MESSAGES = 50_000
"""Of which it is known that they were handed in; others are handed in again, and stored once."""

logger = logging.getLogger(__name__)


class TurnRecorder:
    """Hands the new messages of conversations to a scheduler, and asks whether a dream is due.

    Args:
        bank: With an embedder.
        scheduler: Of that bank; default: this process's one, made with the options.
        options: For a scheduler that is made here; those that are None are left out.
        on_event: Told of every event of the scheduler, on its threads, as long as this object lives.
        exchanges: As for ``pages_from_messages``.
        tools: As for ``pages_from_messages``.
        names: As for ``pages_from_messages``.

    Raises:
        ConfigError: The bank has no embedder, the scheduler is another bank's, or options are given for one
            that exists.
    """

    def __init__(
        self,
        bank: MemoryBank,
        *,
        scheduler: DreamScheduler | None = None,
        options: Mapping[str, Any] | None = None,
        on_event: Callable[[Mapping[str, Any]], None] | None = None,
        exchanges: bool = False,
        tools: bool = False,
        names: tuple[str, str] = ("user", "assistant"),
    ) -> None:
        self.scheduler = _scheduler_of(bank, scheduler, options or {})
        if on_event is not None:
            weakref.finalize(self, self.scheduler.subscribe(on_event)).atexit = False
        self._options: dict[str, Any] = {"exchanges": exchanges, "tools": tools, "names": names}
        self._lock = threading.Lock()
        self._handed_in: OrderedDict[tuple[str, str], None] = OrderedDict()

    def record(self, messages: Sequence[Any], session: str) -> dict[str, Any]:
        """Hand in what is new of a conversation and check the triggers; returns the scheduler's ticket.

        A failure to do so is logged and told by the ticket, whose state is "failed" then: a turn that went
        well is not lost over it.

        Args:
            messages: The conversation so far, or its last messages.
            session: Its name.
        """
        try:
            self._hand_in(messages, session)
            return self.scheduler.tick()
        except DreamError as error:
            logger.exception("the turn of conversation %r could not be handed in", session)
            return failed_ticket(error)

    def _hand_in(self, messages: Sequence[Any], session: str) -> None:
        with self._lock:
            pages = [
                page for page in self._pages(messages, session) if (session, page.id) not in self._handed_in
            ]
        if pages:
            self.scheduler.ingest(pages)
        with self._lock:
            for page in pages:
                self._handed_in[session, page.id] = None
            while len(self._handed_in) > REMEMBERED_MESSAGES:
                self._handed_in.popitem(last=False)

    def _pages(self, messages: Sequence[Any], session: str) -> list[Page]:
        # a long history is not translated anew at every turn, where each message says which one it is
        if not self._options["exchanges"] and all(
            isinstance(message, BaseMessage) and message.id for message in messages
        ):
            messages = [message for message in messages if (session, message.id) not in self._handed_in]
        return pages_from_messages(
            messages, session=session, time=datetime.now(timezone.utc), start=0, **self._options
        )


def session_of(config: Mapping[str, Any], session: Any) -> str:
    """Return a conversation's name: as given, or its thread id.

    Raises:
        ConfigError: It has none.
    """
    given = session(config) if callable(session) else session
    name = config.get("configurable", {}).get("thread_id") if given is None else given
    if name is None or not str(name):
        raise ConfigError(
            "the conversation has no name: invoke the graph with "
            "config={'configurable': {'thread_id': ...}}, or give session=..."
        )
    return str(name)


def failed_ticket(error: BaseException) -> dict[str, Any]:
    """Return a ticket that tells why a turn was not handed in."""
    return {
        "id": None,
        "state": "failed",
        "kind": None,
        "reason": f"{type(error).__name__}: {error}",
        "pending_pages": 0,
        "new_pages": 0,
        "dreaming": False,
    }


def _scheduler_of(
    bank: MemoryBank, scheduler: DreamScheduler | None, options: Mapping[str, Any]
) -> DreamScheduler:
    from shared_core import MemoryBank
    from shared_core.scheduling import DreamScheduler

    if not isinstance(bank, MemoryBank) or bank.embedder is None:
        raise ConfigError(
            "pages are embedded: give a MemoryBank with an embedder, such as MemoryBank.open(path, name, "
            "create=True, embedder=packaged_embedder())"
        )
    given = {name: value for name, value in options.items() if value is not None}
    if scheduler is None:
        return DreamScheduler.shared(bank, **given)
    if given:
        raise ConfigError(f"{', '.join(given)} belong to the scheduler: give them where it is made")
    if scheduler.bank.state.bank_id != bank.state.bank_id or scheduler.bank.state.scope != bank.state.scope:
        raise ConfigError(f"the scheduler is that of {scheduler.bank!r}, not of {bank!r}")
    return scheduler
