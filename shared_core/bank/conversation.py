"""Conversations as pages of a memory bank: what was said, by whom, when, in which session.

A page is one memory of the bank; its text says date and speaker, so that both are found by keywords and by
meaning, and its metadata repeat them under our prefix. Knows nothing of dreams.

Source: MemDream section 3.1 (pages, three tiers) [S]; the form of a page's text is ours [O].
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from shared_core.bank.derived import sources_of
from shared_core.bank.intake import as_list
from shared_core.bank.tiers import Placement, Tier, TierConfig, TierStore
from shared_core.errors import InvalidMemoryError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.types import Metadata, Progress

SESSION, SPEAKER, TIME = "dream_session", "dream_speaker", "dream_time"
"""Metadata fields of a page."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page: an utterance, or an exchange as "name: text" lines."""

    text: str
    session: str
    speaker: str | None = None
    """None where the text names its speakers itself."""
    time: datetime | None = None
    """When it was said; without a zone it counts as UTC where ages are compared."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Give the id of the message where there is one: a page that is stored already is not stored twice, and
    keeps its first time where it is given again with another."""
    metadata: Metadata = field(default_factory=dict)

    def stored_text(self) -> str:
        """Return the text as it is embedded: "(8 May 2023) Ada: ..."."""
        when = "" if self.time is None else f"({self.time.day} {self.time:%B %Y}) "
        who = "" if self.speaker is None else f"{self.speaker}: "
        return f"{when}{who}{self.text}"

    def stored_metadata(self) -> dict[str, Any]:
        """Return the metadata as they are stored."""
        own = {SESSION: self.session, SPEAKER: self.speaker, TIME: self.time and self.time.isoformat()}
        return {**self.metadata, **{key: value for key, value in own.items() if value is not None}}


class ConversationMemory:
    """Takes up conversations into a bank, page by page, and keeps its three tiers.

    Args:
        bank: With an embedder.
        tiers: Capacities.
    """

    def __init__(self, bank: MemoryBank, *, tiers: TierConfig | None = None) -> None:
        self.bank = bank
        self.config = tiers or TierConfig()
        self._tiers = TierStore(bank.state.engine, bank.state.bank_id)

    def add_turn(
        self,
        user: str,
        agent: str | None = None,
        *,
        session: str,
        time: datetime | None = None,
        page_id: str | None = None,
        names: tuple[str, str] = ("user", "assistant"),
        metadata: Metadata | None = None,
    ) -> str:
        """Store one exchange as one page.

        Args:
            user: What the user said.
            agent: What the agent answered, if it did.
            session: Name of the session.
            time: When; default: now.
            page_id: Id of the page; a page that is stored already is not stored twice.
            names: How the two are called in the text.
            metadata: Stored with it.

        Returns:
            The page's id.

        Raises:
            InvalidMemoryError: An empty utterance, or the id belongs to a page with another text.
        """
        if not (isinstance(names, (tuple, list)) and [type(name) for name in names] == [str, str]):
            raise InvalidMemoryError(f"names={names!r} must be two strings, the user's name and the agent's")
        text = user if agent is None else f"{user}\n{names[1]}: {agent}"
        page = Page(
            text=text,
            session=session,
            speaker=names[0],
            time=datetime.now(timezone.utc) if time is None else time,
            metadata={} if metadata is None else metadata,
            **({} if page_id is None else {"id": page_id}),
        )
        self.add_pages([page])
        return page.id

    def add_pages(self, pages: Iterable[Page], *, progress: Progress | None = None) -> list[str]:
        """Store a conversation, in order of time; what is stored already is passed over.

        Args:
            pages: The pages.
            progress: Called as ``progress("store", done, total)``.

        Returns:
            The ids of all pages, new or not.

        Raises:
            InvalidMemoryError: A malformed page, or an id that belongs to a page with another text;
                nothing was stored then.
        """
        pages = as_list("pages", pages)
        for page in pages:
            check_page(page)
        new = self._new(pages)
        if new:
            self.bank.add(
                [page.stored_text() for page in new],
                ids=[page.id for page in new],
                metadatas=[page.stored_metadata() for page in new],
                progress=progress,
            )
        self._place_pages(pages, new)
        return [page.id for page in pages]

    def place(
        self, new: Mapping[str, str], tier: Tier, *, connection: Connection | None = None
    ) -> dict[str, Tier]:
        """Place memories in a tier and let what no longer fits flow on.

        Args:
            new: Session of each memory, "" for long-term entries.
            tier: Where they go.
            connection: Of the transaction in which it is done; default: one of its own.

        Returns:
            What moved where.
        """
        return self._tiers.place(
            new,
            tier,
            last_used=self._last_used,
            quoted=self._quoted,
            config=self.config,
            connection=connection,
        )

    def tiers(self) -> dict[str, Placement]:
        """Return where every page and entry stands."""
        return self._tiers.read()

    async def aadd_turn(self, user: str, agent: str | None = None, **options: Any) -> str:
        """``add_turn`` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.add_turn, user, agent, **options)

    async def aadd_pages(self, pages: Sequence[Page], **options: Any) -> list[str]:
        """``add_pages`` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.add_pages, pages, **options)

    def _place_pages(self, pages: Sequence[Page], new: Sequence[Page]) -> None:
        """Place new pages, and those that were stored by a process which died before it placed them."""
        session_of = {page.id: page.session for page in reversed(pages)}
        ids = {page.id for page in new}
        if known := [memory_id for memory_id in session_of if memory_id not in ids]:
            ids.update(self._tiers.without(known))
        if unplaced := {page.id: session_of[page.id] for page in pages if page.id in ids}:
            self.place(unplaced, "stim")

    def _last_used(self, ids: Sequence[str]) -> dict[str, float]:
        return {i: state.last_access or 0.0 for i, state in zip(ids, self.bank.state.get(ids), strict=True)}

    def _quoted(self, entries: Sequence[str]) -> set[str]:
        held = self.bank.content.get(entries)
        return {source for record in held.values() for source in sources_of(record.metadata)}

    def _new(self, pages: Sequence[Page]) -> list[Page]:
        held = self.bank.content.get(list(dict.fromkeys(page.id for page in pages)))
        seen: dict[str, Page] = {}
        new: list[Page] = []
        for page in pages:
            first, stored = seen.get(page.id), held.get(page.id)
            known, time = None, None
            if first is not None:
                known, time = first.stored_text(), first.time
            elif stored is not None:
                known, time = stored.text, _time_in(stored.metadata)
            if known is None:
                new.append(page)
            elif known != replace(page, time=time).stored_text():
                raise InvalidMemoryError(
                    f"page {page.id!r} is stored with another text: give the new one an id of its own"
                )
            seen.setdefault(page.id, page)
        return new


def check_page(page: object) -> None:
    """Refuse what is no page.

    Raises:
        InvalidMemoryError: It is none, has no text or session, or a field of another type.
    """
    if not isinstance(page, Page):
        raise InvalidMemoryError(f"{page!r} is no page")
    kinds: dict[str, Any] = {
        "text": str, "session": str, "speaker": (str, type(None)), "time": (datetime, type(None)), "id": str,
        "metadata": Mapping,
    }  # fmt: skip
    for name, kind in kinds.items():
        value = getattr(page, name)
        if not isinstance(value, kind) or (name in {"text", "session"} and not value.strip()):
            raise InvalidMemoryError(
                f"what has {name}={value!r} is no page: it needs a text and a session, and a time is a "
                "datetime"
            )


def _time_in(metadata: Metadata) -> datetime | None:
    try:
        return datetime.fromisoformat(str(metadata.get(TIME)))
    except ValueError:
        # none, or of a memory that is no page of ours and only has its id
        return None
