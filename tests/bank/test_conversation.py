"""Conversations become pages: ordered, stored once, dated, flowing through three tiers without a loss."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

import numpy as np
import pytest
from sqlalchemy import event

from shared_core import MemoryBank
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.derived import is_derived
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.bank.tiers import Placement, Tier, TierConfig, TierStore, count_sessions, flow, members
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError, InvalidMemoryError
from tests.conftest import OpenBank

MAY = datetime(2023, 5, 8, 13, 56, tzinfo=timezone.utc)


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    return open_bank(embedder=embedder)


def pages(count: int, session: str = "one") -> list[Page]:
    return [Page(text=f"page {n} of {session}", session=session, id=f"{session}-{n}") for n in range(count)]


def test_a_turn_is_one_page_with_date_speaker_and_session(bank: MemoryBank) -> None:
    memory = ConversationMemory(bank)
    page = memory.add_turn("I have a dog", "Nice!", session="s1", time=MAY, names=("Ada", "bot"))
    stored = bank.get([page])[0]
    assert stored.text == "(8 May 2023) Ada: I have a dog\nbot: Nice!"
    assert stored.metadata == {
        "dream_session": "s1",
        "dream_speaker": "Ada",
        "dream_time": "2023-05-08T13:56:00+00:00",
    }
    assert memory.tiers()[page].tier == "stim"


def test_pages_are_stored_once_and_a_changed_text_is_refused(bank: MemoryBank) -> None:
    memory = ConversationMemory(bank)
    first = memory.add_pages(pages(3))
    assert memory.add_pages([*pages(3), *pages(2, "two"), *pages(2, "two")])[:3] == first
    assert len(bank) == 5
    with pytest.raises(InvalidMemoryError, match="another text"):
        memory.add_pages([*pages(1, "three"), Page(text="forged", session="one", id="one-0")])
    assert len(bank) == 5


def test_a_page_given_again_at_another_time_keeps_its_first_one(bank: MemoryBank) -> None:
    memory = ConversationMemory(bank)
    first = Page(text="I have a dog", session="s", id="p", time=MAY)
    memory.add_pages([first])
    for other in (MAY.replace(month=6), None):
        memory.add_pages([replace(first, time=other), replace(first, id="q", time=other)])
    assert [page.text for page in bank.get(["p", "q"])] == [
        "(8 May 2023) I have a dog",
        "(8 June 2023) I have a dog",
    ]
    with pytest.raises(InvalidMemoryError, match="another text"):
        memory.add_pages([replace(first, text="I have a cat", time=None)])


@pytest.mark.parametrize("bad", [Page(text=" ", session="s"), Page(text="t", session=""), "text"])
def test_a_malformed_page_is_refused_whole(bank: MemoryBank, bad: Page) -> None:
    with pytest.raises(InvalidMemoryError, match="no page"):
        ConversationMemory(bank).add_pages([*pages(1), bad])
    assert len(bank) == 0


def test_pages_flow_from_short_term_to_their_sessions(bank: MemoryBank) -> None:
    memory = ConversationMemory(bank)
    memory.add_pages(pages(3))
    memory.add_pages(pages(3, "two"))
    placed = memory.tiers()
    assert members(placed, "stim") == ["one-2", "two-0", "two-1", "two-2"]
    assert members(placed, "mtem") == ["one-0", "one-1"]
    assert count_sessions(placed) == 1
    assert set(placed) == set(bank.ids())


def test_a_page_that_was_just_used_stays_longer(bank: MemoryBank) -> None:
    memory = ConversationMemory(bank)
    memory.add_pages(pages(4))
    bank.state.record_access(["one-0"])
    memory.add_pages(pages(1, "two"))
    assert memory.tiers()["one-0"].tier == "stim"
    assert memory.tiers()["one-1"].tier == "mtem"


def test_a_session_leaves_only_when_entries_quote_all_its_pages(bank: MemoryBank) -> None:
    memory = ConversationMemory(bank, tiers=TierConfig(pages=1, sessions=1))
    memory.add_pages(pages(2, "one"))
    memory.add_pages(pages(2, "two"))
    assert {i: p.tier for i, p in memory.tiers().items() if p.session == "one"} == {
        "one-0": "mtem",
        "one-1": "mtem",
    }
    entry = DerivedMemory(
        text="page 0 of one, page 1 of one", sources=("one-0", "one-1"), embedding=np.ones(384)
    )
    with bank.state.lock("test") as lock:
        apply_repair(bank, Repair(operation="synthesize", reason="-", memories=(entry,)), lock=lock)
    moved = memory.place({entry.id: ""}, "ltsm")
    assert moved == {"one-0": "archive", "one-1": "archive"}
    assert set(bank.weights(["one-0", "one-1"])) == {1.0}  # what is archived is still retrieved
    assert is_derived(members(memory.tiers(), "ltsm")[0])


def test_entries_that_no_longer_fit_go_back_to_the_mid_term_tier() -> None:
    placed = {f"e{n}": Placement("ltsm", "", float(n)) for n in range(4)}
    assert flow(placed, {"e0": 9.0}, (), TierConfig(entries=3)) == {"e1": "mtem"}


def test_nothing_is_ever_without_a_tier() -> None:
    rng = np.random.default_rng(1)
    placed: dict[str, Placement] = {}
    config = TierConfig(pages=2, sessions=3, entries=2)
    for step in range(200):
        session = f"s{rng.integers(8)}"
        placed[f"p{step}"] = Placement("stim", session, float(step))
        quoted = {i for i in placed if rng.random() < 0.5}
        for memory_id, tier in flow(placed, {}, quoted, config).items():
            placed[memory_id] = Placement(tier, placed[memory_id].session, placed[memory_id].since)
            assert tier != "archive" or memory_id in quoted
    assert len(members(placed, "stim")) == 2
    assert len(placed) == 200


def test_placing_reads_what_matters_and_moves_what_flow_moves(state_url: str) -> None:
    rng = np.random.default_rng(2)
    bank = MemoryBank.open(":memory:", f"tiers-{uuid.uuid4().hex}", create=True, state_url=state_url)
    store = TierStore(bank.state.engine, bank.state.bank_id)
    config = TierConfig(pages=3, sessions=4, entries=3)
    quotes: dict[str, set[str]] = {}
    last_used: dict[str, float] = {}

    def quoted(entries: Sequence[str]) -> set[str]:
        return {page for entry in entries for page in quotes[entry]}

    archived = 0
    for step in range(150):
        before = store.read()
        pages = [i for i in before if i.startswith("p")]
        last_used.update({i: time.time() + rng.normal() for i in pages if rng.random() < 0.1})
        if rng.random() < 0.6:
            tier: Tier = "stim"
            new = {f"p{step}-{n}": f"s{rng.integers(9)}" for n in range(rng.integers(1, 4))}
        else:
            tier, new = "ltsm", {f"e{step}": ""}
            session = f"s{rng.integers(9)}"
            quotes[f"e{step}"] = {i for i in pages if before[i].session == session}

        now = time.time()
        moves = store.place(new, tier, last_used=lambda _: last_used, quoted=quoted, config=config)
        arrived = {i: Placement(tier, s, now + 1e-6 * row) for row, (i, s) in enumerate(new.items())}
        whole = {**before, **arrived}
        entries = [i for i in whole if whole[i].tier == "ltsm"]
        assert moves == flow(whole, last_used, quoted(entries), config)
        archived += sum(to == "archive" for to in moves.values())
        after = store.read()
        assert {i: after[i].tier for i in after} == {i: moves.get(i, whole[i].tier) for i in whole}
    assert archived > 5
    bank.close()


def test_a_turn_costs_the_same_in_a_long_conversation(open_bank: OpenBank) -> None:
    bank = open_bank()
    memory = ConversationMemory(bank)
    store = TierStore(bank.state.engine, bank.state.bank_id)
    counts = {"statements": 0, "hundred steps": 0}

    def work(pages: int) -> dict[str, int]:
        new = {f"{pages}-{n}": f"session {n % 40}" for n in range(pages)}
        store.place(new, "stim", last_used=memory._last_used, quoted=memory._quoted, config=TierConfig())
        counts.update(dict.fromkeys(counts, 0))
        memory.place({f"one more after {pages}": "session 1"}, "stim")
        return dict(counts)

    def watched(connection: sqlite3.Connection, *_: object) -> None:
        def step() -> int:
            counts["hundred steps"] += 1
            return 0

        connection.set_progress_handler(step, 100)

    def executed(*_: object) -> None:
        counts["statements"] += 1

    event.listen(bank.state.engine, "checkout", watched)
    event.listen(bank.state.engine, "after_cursor_execute", executed)
    few, many = work(200), work(5000)
    assert many["statements"] == few["statements"] < 12
    assert 0 < many["hundred steps"] <= 2 * few["hundred steps"]


@pytest.mark.parametrize("bad", [{"pages": 0}, {"sessions": 1.5}, {"entries": -1}])
def test_bad_capacities_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        TierConfig(**bad)


async def test_async_twins(bank: MemoryBank) -> None:
    memory = ConversationMemory(bank)
    await memory.aadd_turn("hello", session="s")
    await memory.aadd_pages(pages(2))
    assert len(bank) == 3
