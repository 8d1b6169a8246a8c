"""What a dream writes: keys that quote, weights that never forget, bridges, and nothing twice."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pytest

from shared_core import BankRetriever, MemoryBank
from shared_core.agents import associate, bridge_edges, graded_weights, scene_keys
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.graph import read_graph
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import BankLockedError, ConfigError
from shared_core.language.pages import line_of
from tests.conftest import OpenBank

TURNS = [
    ("a", "Ada", "Hi Bo! How was the trip to Lisbon?"),
    ("a", "Bo", "Great, thanks! I lost my blue umbrella on the tram. The museum was closed on Monday."),
    ("a", "Ada", "Oh no."),
    ("b", "Bo", "I started pottery classes last week."),
    ("b", "Ada", "Wow, nice!"),
    ("b", "Bo", "My teacher Elena comes from Porto."),
]


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    day = datetime(2023, 5, 8, tzinfo=timezone.utc)
    ConversationMemory(bank).add_pages(
        Page(text=text, session=session, speaker=who, time=day, id=f"p{row}")
        for row, (session, who, text) in enumerate(TURNS)
    )
    return bank


def test_a_page_is_read_back_as_who_said_what() -> None:
    assert line_of("(8 May 2023) Ada: Hello (there) you", "Ada") == ("Ada", "Hello (there) you")
    assert line_of("Ada: Hello", "Ada") == ("Ada", "Hello")
    assert line_of("(8 May 2023) user: hi\nassistant: ho", None) == (None, "user: hi\nassistant: ho")
    assert line_of("no prefix", "Ada") == ("Ada", "no prefix")


def test_everything_that_is_written_quotes_the_pages(bank: MemoryBank) -> None:
    report = associate(bank)
    keys = bank.state.retrieval_keys()
    assert (report.pages, report.keys) == (6, len(keys))
    said = {f"p{row}": text for row, (_, _, text) in enumerate(TURNS)}
    everything = "\n".join(f"{who}: {text}" for _, who, text in TURNS)
    for key in keys:
        if key.kind == "sentence":
            assert key.text.partition(": ")[2] in said[key.memory_id]
            assert key.embedding is not None
        else:
            assert all(line in everything for line in key.text.split("\n"))
            assert said[key.memory_id] in key.text
    assert {key.kind for key in keys} == {"sentence", "scene1", "scene2", "scene4"}
    assert not any("Wow" in key.text for key in keys if key.kind == "sentence")  # says nothing by itself


def test_scenes_end_with_their_session(bank: MemoryBank) -> None:
    scenes = {key.memory_id: key.text for key in scene_keys(read_graph(bank), range(6), 4)}
    assert "pottery" not in scenes["p2"]
    assert scenes["p0"].count("\n") == 2


def test_what_says_little_counts_for_less_and_nothing_is_forgotten(bank: MemoryBank) -> None:
    weights = dict(zip(read_graph(bank).ids, graded_weights(read_graph(bank)), strict=True))
    assert weights["p4"] < weights["p3"]
    assert weights["p0"] < weights["p1"]
    assert min(weights.values()) > 0.5
    assert max(weights.values()) == 1.0
    assert set(graded_weights(read_graph(bank), 0.0)) == {1.0}


def test_bridges_link_near_pages_once(bank: MemoryBank) -> None:
    edges = bridge_edges(read_graph(bank), count=2)
    assert len({frozenset((e.source, e.target)) for e in edges}) == len(edges)
    assert all(e.source != e.target for e in edges)


def test_a_second_run_writes_nothing_and_undo_takes_all_back(bank: MemoryBank) -> None:
    before = [(m.id, m.text, m.state.weight) for m in bank]
    first = associate(bank)
    assert associate(bank).run_id is None
    ConversationMemory(bank).add_pages([Page(text="I painted the boat.", session="b", speaker="Bo", id="p6")])
    more = associate(bank)
    assert 0 < more.keys < first.keys
    bank.undo(more.run_id or "")
    bank.undo(first.run_id or "")
    assert [(m.id, m.text, m.state.weight) for m in bank if m.id != "p6"] == before
    assert bank.state.retrieval_keys() == []
    assert bank.state.edges() == []


def test_a_page_that_a_sweep_let_recover_is_graded_again(bank: MemoryBank) -> None:
    associate(bank)
    before = bank.weights(bank.ids())
    bank.sweep()
    assert bank.weights(bank.ids()).min() > 0.99
    assert associate(bank).reweighted == np.count_nonzero(before < 0.99)
    np.testing.assert_allclose(bank.weights(bank.ids())[before < 0.99], before[before < 0.99])


def test_suspects_and_forgotten_pages_get_nothing(bank: MemoryBank) -> None:
    with bank.state.transaction("sweep") as run:
        run.set(["p1"], {"suspicion": [0.9], "weight": [0.05]})
    report = associate(bank)
    assert report.pages == 5
    assert "p1" not in {key.memory_id for key in bank.state.retrieval_keys()}
    assert bank.weights(["p1"]).tolist() == [0.05]


def test_one_dreamer_at_a_time_and_bad_input(open_bank: OpenBank, bank: MemoryBank) -> None:
    with bank.state.lock("sweep"), pytest.raises(BankLockedError):
        associate(bank)
    with pytest.raises(ConfigError, match="decay"):
        associate(bank, decay=-1)
    with pytest.raises(ConfigError, match="embedder"):
        associate(open_bank(name="another"))


def test_a_plain_collection_without_sessions_can_be_associated(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder)
    assert associate(bank).run_id is None
    bank.add(["The archive closes at noon. Guests use the blue badge."], ids=["one"])
    assert associate(bank).keys == 2
    assert [hit.id for hit in BankRetriever(bank).search("badge")] == ["one"]
