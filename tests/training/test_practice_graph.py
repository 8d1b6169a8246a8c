"""Talks become graphs in a bank that is gone afterwards, and banks become talks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import chromadb
import pytest

from shared_core.bank import MemoryBank
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.graph import GraphKeys, read_graph
from shared_core.bank.passing import passing_bank
from shared_core.errors import ConfigError, InvalidMemoryError
from shared_core.training.dataset import Talk
from shared_core.training.practice import graph_of, talk_of
from shared_core.types import Embedder
from tests.agents.nut_story import pages
from tests.training.small_set import story

TALK = story("nuts", "train")


def test_a_graph_has_the_pages_of_its_talk(embedder: Embedder) -> None:
    graph = graph_of(TALK, embedder)
    assert graph.ids == [page.id for page in TALK.pages]
    assert graph.texts[2].startswith("(8 January 2024) Marlene: One serious thing")
    assert graph.speakers[2] == "Marlene"
    assert graph.sessions == [f"s{number}" for number in range(1, 10)]
    assert str(graph.day(2)) == "2024-01-08"
    assert not graph.derived.any()


def test_nothing_of_a_passing_bank_is_left(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users.sqlite3"
    monkeypatch.setenv("DREAM_STATE_URL", f"sqlite:///{users}")
    client = chromadb.EphemeralClient()
    before = {one.name for one in client.list_collections()}
    with passing_bank(embedder) as bank:
        bank.add(["a text"])
        (name,) = {one.name for one in client.list_collections()} - before
        assert name == bank.content.name
        (folder,) = {Path(str(bank.state.engine.url.database)).parent}
        assert folder.is_dir()
    assert not folder.exists()
    assert not users.exists()
    assert {one.name for one in client.list_collections()} == before


def test_a_failure_leaves_nothing_either() -> None:
    client = chromadb.EphemeralClient()
    before = client.count_collections()
    with pytest.raises(RuntimeError), passing_bank():
        raise RuntimeError
    assert client.count_collections() == before


def test_a_talk_that_cannot_be_stored_is_refused(embedder: Embedder) -> None:
    with pytest.raises(ConfigError, match="no page"):
        graph_of(replace(TALK, pages=()), embedder)
    same_id = replace(TALK.pages[1], id=TALK.pages[0].id)
    with pytest.raises(InvalidMemoryError, match="another text"):
        graph_of(replace(TALK, pages=(TALK.pages[0], same_id)), embedder)


def test_a_bank_becomes_a_talk_and_the_same_graph_again(embedder: Embedder, bank: MemoryBank) -> None:
    bank.embedder = embedder
    ConversationMemory(bank).add_pages(pages())
    talk = talk_of(bank, name="mine", split="test")
    graph, again = read_graph(bank), graph_of(talk, embedder)
    assert (talk.name, talk.split, talk.facts) == ("mine", "test", ())
    assert talk.pages[2].text == pages()[2].text
    assert again.ids == graph.ids
    assert again.texts == graph.texts
    assert again.speakers == graph.speakers
    assert again.time.tolist() == graph.time.tolist()
    assert again.session.tolist() == graph.session.tolist()


def test_what_may_not_be_quoted_is_not_practised_on(embedder: Embedder, bank: MemoryBank) -> None:
    bank.embedder = embedder
    bank.add(["kept", "forgotten", "deleted"], ids=["a", "b", "c"])
    bank.set_weights({"b": 0.0})
    bank.delete(["c"])
    assert [page.id for page in talk_of(bank).pages] == ["a"]
    assert talk_of(bank).name == bank.content.name
    bank.delete(["a"])
    with pytest.raises(ConfigError, match="no memory"):
        talk_of(bank)


def test_texts_of_any_form_are_kept(embedder: Embedder, bank: MemoryBank) -> None:
    bank.embedder = embedder
    rows = [
        ("no metadata at all", {}),
        ("(1 May 2021) Ada: undated page", {"who": "Ada"}),
        ("(1 May 2021) Ada: her page", {"who": "Ada", "at": "2021-05-01T10:00:00+00:00", "room": "x"}),
        ("Bob: said to Ada", {"who": "Ada", "at": "2021-05-01T10:00:00+00:00"}),
        ("(1 May 2021) Ada: said at night", {"who": "Ada", "at": "2021-05-01T23:00:00-05:00"}),
    ]
    bank.add([text for text, _ in rows], ids=list("abcde"), metadatas=[row or {"n": 1} for _, row in rows])
    talk = talk_of(bank, GraphKeys(session="room", speaker="who", time="at"))
    found = [(page.text, page.speaker, page.session) for page in talk.pages]
    assert found == [
        ("no metadata at all", None, "none"),
        ("(1 May 2021) Ada: undated page", None, "none"),
        ("her page", "Ada", "x"),
        ("Bob: said to Ada", None, "none"),
        ("Ada: said at night", None, "none"),
    ]
    assert talk.pages[4].time == "2021-05-02T04:00:00+00:00"
    stored = graph_of(talk, embedder)
    assert all(page.text in text for page, text in zip(talk.pages, stored.texts, strict=True))


def test_a_page_without_time_or_speaker_stays_as_it_is(embedder: Embedder, bank: MemoryBank) -> None:
    bank.embedder = embedder
    ConversationMemory(bank).add_pages([Page(text="just this", session="s", id="p")])
    assert isinstance(talk := talk_of(bank), Talk)
    assert graph_of(talk, embedder).texts == ["just this"]
