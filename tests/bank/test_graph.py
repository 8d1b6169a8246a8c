"""The memory graph: entities, sessions and explicit edges as arrays, without cliques."""

from __future__ import annotations

from datetime import date, datetime, timezone
from itertools import combinations

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.entity_index import EntityIndex
from shared_core.bank.graph import GraphKeys, read_graph
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.embedding import SentenceTransformerEmbedder
from tests.conftest import OpenBank


def test_the_index_gives_the_neighbours_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    entities = [sorted({f"e{n}" for n in rng.integers(0, 30, rng.integers(0, 5))}) for _ in range(60)]
    index = EntityIndex(entities, common=6)
    rare = {e for e in index.names if 2 <= sum(e in own for own in entities) <= 6}
    for row in range(60):
        expected = [
            other for other in range(60) if other != row and rare & set(entities[row]) & set(entities[other])
        ]
        assert index.neighbours(row).tolist() == expected
    one, other = next(p for p in combinations(range(60), 2) if set(entities[p[0]]) & set(entities[p[1]]))
    assert set(index.shared(one, other)) == set(entities[one]) & set(entities[other])
    assert index.holders("nobody").tolist() == []
    assert len(EntityIndex([])) == 0


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    day = datetime(2023, 5, 8, tzinfo=timezone.utc)
    ConversationMemory(bank).add_pages(
        [
            Page(text="My dog Rex likes Lisbon", session="a", speaker="Ada", time=day, id="p0"),
            Page(text="How lovely!", session="a", speaker="Bob", time=day, id="p1"),
            Page(text="I flew to Lisbon last week", session="b", speaker="Ada", id="p2"),
            Page(text="Nothing in common here", session="c", id="p3"),
        ]
    )
    return bank


def test_a_graph_holds_what_the_bank_holds(bank: MemoryBank) -> None:
    graph = read_graph(bank)
    assert graph.ids == ["p0", "p1", "p2", "p3"]
    assert graph.session.tolist() == [0, 0, 1, 2]
    assert graph.speakers == ["Ada", "Bob", "Ada", None]
    assert graph.day(0) == date(2023, 5, 8)
    assert graph.day(2) is None
    assert 2 in graph.linked(0)
    assert "lisbon" in graph.entities.shared(0, 2)
    np.testing.assert_allclose(np.linalg.norm(graph.unit, axis=1), 1.0, rtol=1e-5)
    degrees = graph.degrees()
    assert degrees[3] == 0
    assert degrees[0] == 2  # its session's other page, and the page about the same city


def test_repairs_add_explicit_edges_and_what_is_undone_disappears(bank: MemoryBank) -> None:
    memory = DerivedMemory(text="Ada: My dog Rex likes Lisbon", sources=("p0", "p3"))
    with bank.state.lock("test") as lock:
        run = apply_repair(bank, Repair(operation="merge", reason="-", memories=(memory,)), lock=lock)
    graph = read_graph(bank)
    row = graph.row_of[memory.id]
    assert graph.derived.tolist() == [False] * 4 + [True]
    assert graph.sources == {row: (0, 3)}
    assert row in graph.linked(3)
    bank.undo(run.run_id)
    after = read_graph(bank)
    assert after.ids == ["p0", "p1", "p2", "p3"]
    assert after.explicit == {}
    bank.delete(["p1"])
    assert "p1" not in read_graph(bank).ids


def test_a_collection_of_others_is_a_graph_too(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder)
    bank.add(
        ["one", "two", "three"],
        ids=["a", "b", "c"],
        metadatas=[
            {"chat": 7, "at": 0},
            {"chat": 7, "at": "not a time"},
            {"dream_sources": "[broken", "at": 1e20},
        ],
    )
    graph = read_graph(bank, GraphKeys(session="chat", time="at"))
    assert graph.sessions == ["7"]
    assert graph.session.tolist() == [0, 0, -1]
    assert graph.time[0] == 0.0
    assert np.isnan(graph.time[1:]).all()
    assert graph.day(2) is None
    assert len(graph.entities) == 3
    assert read_graph(open_bank(embedder=embedder, name="empty")).ids == []
