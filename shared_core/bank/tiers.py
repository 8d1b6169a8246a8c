"""The three tiers of a conversational memory: short-term pages, mid-term sessions, long-term entries.

A tier says where a memory stands, never whether it is kept: every page stays in the collection and can be
retrieved. Nothing leaves a tier before it is in the next one: a page goes from the short-term tier to its
session in the mid-term tier in one transaction, and a session leaves the mid-term tier only when long-term
entries quote all its pages.

Source: MemDream section 3.1 and the implementation details (capacities 4, 2000, 100) [S]. What happens at
the end of the last tier is ours [O]: an entry that no longer fits goes back to the mid-term tier.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import func, select

from shared_core.bank.schema import among, bulk_insert, reading, tiers, upsert, writing
from shared_core.config import checked_whole

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

Tier = Literal["stim", "mtem", "ltsm", "archive"]


@dataclass(frozen=True, kw_only=True)
class TierConfig:
    """Capacities [S].

    Raises:
        ConfigError: A capacity below 1.
    """

    pages: int = 4
    """Of the short-term tier (STIM)."""
    sessions: int = 2000
    """Of the mid-term tier (MTEM)."""
    entries: int = 100
    """Of the long-term tier (LTSM)."""

    def __post_init__(self) -> None:
        for name in ("pages", "sessions", "entries"):
            checked_whole(name, getattr(self, name))


@dataclass(frozen=True)
class Placement:
    """Where one memory stands."""

    tier: Tier
    session: str
    """ "" for long-term entries."""
    since: float
    """Unix time, seconds, UTC."""


def flow(
    placed: Mapping[str, Placement],
    last_used: Mapping[str, float],
    quoted: Collection[str],
    config: TierConfig,
    sessions: int | None = None,
) -> dict[str, Tier]:
    """Return which memories move to which tier, least recently used first.

    Args:
        placed: All memories that have a tier; left out may be tiers that hold no more than they can, and
            sessions that are not quoted whole.
        last_used: Last access, Unix time; a memory that is not in it was last used when it was placed.
        quoted: Pages that a long-term entry quotes.
        config: Capacities.
        sessions: How many the mid-term tier holds; default: those in ``placed``.
    """

    def used(memory_id: str) -> float:
        return max(placed[memory_id].since, last_used.get(memory_id, 0.0))

    in_tier: dict[Tier, list[str]] = defaultdict(list)
    for memory_id in sorted(placed, key=used):
        in_tier[placed[memory_id].tier].append(memory_id)
    moves: dict[str, Tier] = {}
    moves.update(dict.fromkeys(in_tier["stim"][: -config.pages], "mtem"))
    moves.update(dict.fromkeys(in_tier["ltsm"][: -config.entries], "mtem"))
    pages: dict[str, list[str]] = defaultdict(list)
    for memory_id in in_tier["mtem"]:
        pages[placed[memory_id].session].append(memory_id)
    pages.pop("", None)
    oldest = sorted(pages, key=lambda session: max(map(used, pages[session])))
    too_many = max(0, (len(pages) if sessions is None else sessions) - config.sessions)
    for session in oldest:
        if too_many and all(memory_id in quoted for memory_id in pages[session]):
            moves.update(dict.fromkeys(pages[session], "archive"))
            too_many -= 1
    return moves


class TierStore:
    """The tiers of one bank, in its state database."""

    def __init__(self, engine: Engine, bank_id: int) -> None:
        self._engine = engine
        self._bank_id = bank_id

    def read(self) -> dict[str, Placement]:
        """Return where every placed memory stands."""
        with reading(self._engine) as connection:
            return self._read(connection)

    def place(
        self,
        new: Mapping[str, str],
        tier: Tier,
        *,
        last_used: Callable[[Sequence[str]], Mapping[str, float]],
        quoted: Callable[[Sequence[str]], Collection[str]],
        config: TierConfig,
        connection: Connection | None = None,
    ) -> dict[str, Tier]:
        """Place new memories, and move what no longer fits, in one transaction.

        Reads the short-term and the long-term tier, and of the sessions only those that may leave.

        Args:
            new: Session of each new memory, in order of time.
            tier: Where they go.
            last_used: From ids to their last access, see ``flow``.
            quoted: From ids of long-term entries to the pages that they quote.
            config: Capacities.
            connection: Of the transaction in which it is done; default: one of its own.

        Returns:
            What moved where.
        """
        now = time.time()
        # a microsecond apart: the order of one call is the order of time
        arrived = {
            memory_id: Placement(tier, session, now + 1e-6 * row)
            for row, (memory_id, session) in enumerate(new.items())
        }
        with writing(self._engine) if connection is None else nullcontext(connection) as within:
            self._write(within, arrived)
            placed, pages, sessions = self._outgrown(within, quoted, config)
            moves = flow(placed, last_used(list(placed)) if placed else {}, pages, config, sessions)
            moved = {i: Placement(to, placed[i].session, now) for i, to in moves.items()}
            self._write(within, moved)
        return moves

    def without(self, ids: Sequence[str]) -> list[str]:
        """Return which of the ids stand in no tier, in the order given."""
        with reading(self._engine) as connection:
            placed = self._read(connection, among(connection, tiers.c.memory_id, ids))
        return [memory_id for memory_id in ids if memory_id not in placed]

    def _outgrown(
        self, connection: Connection, quoted: Callable[[Sequence[str]], Collection[str]], config: TierConfig
    ) -> tuple[dict[str, Placement], Collection[str], int]:
        """Return what may have to move, the pages that entries quote if that matters, and the sessions."""
        placed: dict[str, Placement] = {}
        for tier, most in (("stim", config.pages), ("ltsm", config.entries)):
            inside = self._read(connection, tiers.c.tier == tier)
            placed |= inside if len(inside) > most else {}
        sessions = self._sessions(connection)
        if sessions <= config.sessions:
            return placed, (), sessions
        pages = quoted(list(self._read(connection, tiers.c.tier == "ltsm")))
        held = self._read(
            connection, tiers.c.tier == "mtem", among(connection, tiers.c.memory_id, list(pages))
        )
        names = {placement.session for placement in held.values()} - {""}
        inside = self._read(
            connection, tiers.c.tier == "mtem", among(connection, tiers.c.session, list(names))
        )
        return placed | inside, pages, sessions

    def _sessions(self, connection: Connection) -> int:
        """Count the sessions of the mid-term tier, one look into the index for each."""
        mine = (tiers.c.bank_id == self._bank_id, tiers.c.tier == "mtem")
        first = select(func.min(tiers.c.session).label("session")).where(*mine, tiers.c.session > "")
        found = first.cte("found", recursive=True)
        following = select(func.min(tiers.c.session)).where(*mine, tiers.c.session > found.c.session)
        found = found.union_all(select(following.scalar_subquery()).where(found.c.session.is_not(None)))
        return int(connection.execute(select(func.count(found.c.session))).scalar_one())

    def _read(self, connection: Connection, *which: Any, limit: int | None = None) -> dict[str, Placement]:
        query = select(tiers.c.memory_id, tiers.c.tier, tiers.c.session, tiers.c.since)
        rows = connection.execute(query.where(tiers.c.bank_id == self._bank_id, *which).limit(limit))
        return {row.memory_id: Placement(row.tier, row.session, row.since) for row in rows}

    def _write(self, connection: Connection, changed: Mapping[str, Placement]) -> None:
        if not changed:
            return
        statement = upsert(self._engine, tiers)
        replaced = {name: statement.excluded[name] for name in ("tier", "session", "since")}
        bulk_insert(
            connection,
            statement.on_conflict_do_update(index_elements=["bank_id", "memory_id"], set_=replaced),
            {
                "bank_id": [self._bank_id] * len(changed),
                "memory_id": list(changed),
                "tier": [placement.tier for placement in changed.values()],
                "session": [placement.session for placement in changed.values()],
                "since": [placement.since for placement in changed.values()],
            },
        )


def members(placed: Mapping[str, Placement], tier: Tier) -> list[str]:
    """Return the ids in a tier, the longest there first."""
    inside: Iterable[str] = (i for i in placed if placed[i].tier == tier)
    return sorted(inside, key=lambda memory_id: placed[memory_id].since)


def count_sessions(placed: Mapping[str, Placement]) -> int:
    """Return how many sessions the mid-term tier holds."""
    return len({p.session for p in placed.values() if p.tier == "mtem" and p.session})
