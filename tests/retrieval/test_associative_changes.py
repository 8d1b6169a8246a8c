"""An associative retriever that followed a bank's changes ranks as one that is opened now."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank
from shared_core.agents import associate
from shared_core.bank import graph_reader
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.derived import is_derived
from shared_core.bank.edges import Edge
from shared_core.bank.keys import KeyKind, RetrievalKey
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.errors import JournalError
from shared_core.retrieval.association_index import AssociationIndex
from shared_core.retrieval.associative import AssociativeRetriever
from shared_core.retrieval.word_family import WordFamily
from shared_core.types import Hit
from tests.conftest import OpenBank

WORDS = ("Ada", "Bo", "kiln", "clay", "tram", "umbrella", "Rex", "Lisbon", "pottery", "rain", "dog", "blue")
QUERIES = ("What did Ada lose on the tram?", "clay kiln pottery", "Rex the dog", "Lisbon in the rain")
KINDS: tuple[KeyKind, ...] = ("sentence", "scene1", "scene2", "scene4")
SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5, iterations=2)


class Hashed:
    """Embeds by words; quick, and the same texts give the same vectors."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        seeds = [sum(map(ord, word)) for word in text.split()] or [0]
        rows = [np.random.default_rng(seed).standard_normal(16) for seed in seeds]
        return [float(x) for x in np.sum(rows, axis=0)]


class Life:
    """Random operations on one bank; each is a method that may do nothing where it does not fit."""

    def __init__(self, bank: MemoryBank, seed: int) -> None:
        self.bank = bank
        self.rng = np.random.default_rng(seed)
        self.memory = ConversationMemory(bank)
        self.count = 0

    def step(self) -> str:
        kinds: list[Callable[[], None]] = [
            *[self.talk] * 4,
            *[self.repair] * 3,
            self.sweep,
            self.reweight,
            self.delete,
            self.restore,
            self.undo,
            self.rewrite,
            self.remove,
            self.feedback,
        ]
        kind = kinds[self.rng.integers(len(kinds))]
        kind()
        return kind.__name__

    def text(self) -> str:
        return " ".join(self.rng.choice(WORDS, self.rng.integers(2, 7)))

    def some(self, count: int) -> list[str]:
        ids = [i for i in self.bank.ids() if not is_derived(i)]
        return [str(i) for i in self.rng.choice(ids, min(count, len(ids)), replace=False)] if ids else []

    def talk(self) -> None:
        for _ in range(self.rng.integers(1, 4)):
            self.count += 1
            session = f"s{self.rng.integers(4)}"
            who = (None, "Ada", "Bo")[self.rng.integers(3)]
            when = datetime(2023, 5, 1 + int(self.rng.integers(20)), tzinfo=timezone.utc)
            self.memory.add_pages(
                [Page(text=self.text(), session=session, speaker=who, time=when, id=f"p{self.count}")]
            )
        if self.rng.random() < 0.3:
            self.count += 1
            self.bank.add([self.text()], ids=[f"plain{self.count}"])

    def sweep(self) -> None:
        self.bank.sweep(SWEEP)

    def reweight(self) -> None:
        self.bank.set_weights({i: float(self.rng.random()) for i in self.some(3)})

    def feedback(self) -> None:
        if ids := self.some(2):
            self.bank.feedback(ids, [1.0] * len(ids), 0.0)

    def delete(self) -> None:
        if ids := self.some(1):
            self.bank.delete(ids)

    def restore(self) -> None:
        if ids := self.some(4):
            self.bank.restore(ids)

    def remove(self) -> None:
        if (ids := self.some(1)) and self.rng.random() < 0.5:
            self.bank.content.collection.delete(ids=ids)

    def rewrite(self) -> None:
        for memory_id in self.some(1):
            self.bank.update(memory_id, self.text())

    def undo(self) -> None:
        runs = [run for run in self.bank.runs(limit=6) if run.status == "applied"]
        if runs:
            # built upon, or the memory is gone: a bank that refuses stays as it is
            with contextlib.suppress(JournalError):
                self.bank.undo(runs[self.rng.integers(len(runs))].run_id)

    def repair(self) -> None:
        ids = self.some(4)
        states = {m.id: m.state for m in self.bank.get(ids)}
        ids = [i for i in ids if states[i].suspicion < 0.5 and not states[i].deleted]
        if len(ids) < 2:
            return
        kinds = self.rng.choice(KINDS, 3)
        keys = tuple(
            RetrievalKey(i, kind, self.text(), self.rng.standard_normal(16) if kind == "sentence" else None)
            for i, kind in zip(ids, kinds, strict=False)
        )
        derived = (DerivedMemory(text=self.text(), sources=tuple(ids[:2])),) * int(self.rng.random() < 0.4)
        repair = Repair(
            operation="synthesize",
            reason="-",
            memories=derived,
            keys=keys * int(self.rng.random() < 0.7),
            edges=(Edge(ids[0], ids[-1], "bridge"),),
            weights={ids[0]: 0.5} if self.rng.random() < 0.3 else {},
        )
        with self.bank.state.lock("test") as lock:
            apply_repair(self.bank, repair, lock=lock)


def found(retriever: AssociativeRetriever) -> list[list[tuple[str, str, float, float, float]]]:
    def row(hit: Hit) -> tuple[str, str, float, float, float]:
        return hit.id, hit.text, hit.score, hit.similarity, hit.weight

    return [[row(hit) for hit in retriever.search(query, k=50)] for query in QUERIES]


def assert_alike(old: list[list[Any]], new: list[list[Any]], done: str = "") -> None:
    """Same memories, texts and order; numbers but for the rounding of a matrix product of another shape."""
    for one, other in zip(old, new, strict=True):
        assert [hit[:2] for hit in one] == [hit[:2] for hit in other], done
        np.testing.assert_allclose([h[2:] for h in one], [h[2:] for h in other], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_following_changes_and_opening_anew_rank_alike(open_bank: OpenBank, seed: int) -> None:
    bank = open_bank(embedder=Hashed())
    life = Life(bank, seed)
    follower = AssociativeRetriever(bank, track_access=False)
    done: list[str] = []
    for _ in range(25):
        done.append(life.step())
        assert_alike(found(follower), found(AssociativeRetriever(bank, track_access=False)), str(done))
    assert any(found(follower))


@pytest.fixture
def counted(open_bank: OpenBank, monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryBank, dict[str, int]]:
    """A bank of four sessions after a dream, and how often content and indexes were read or built whole."""
    counts = {"content": 0, "index": 0, "keys": 0, "words": 0}

    def counting(name: str, whole: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object, **options: object) -> object:
            counts[name] += 1
            return whole(*args, **options)

        return called

    bank = open_bank(embedder=Hashed())
    life = Life(bank, 3)
    for _ in range(8):
        life.talk()
    associate(bank)
    monkeypatch.setattr(graph_reader, "read_content", counting("content", graph_reader.read_content))
    monkeypatch.setattr(AssociationIndex, "__init__", counting("index", AssociationIndex.__init__))
    monkeypatch.setattr(AssociationIndex, "_read_keys", counting("keys", AssociationIndex._read_keys))
    monkeypatch.setattr(WordFamily, "__init__", counting("words", WordFamily.__init__))
    return bank, counts


def test_only_what_changed_is_read_and_built(counted: tuple[MemoryBank, dict[str, int]]) -> None:
    bank, counts = counted
    retriever = AssociativeRetriever(bank, track_access=False)
    retriever.search("clay")
    first = dict(counts)
    assert (first["content"], first["index"], first["keys"]) == (1, 1, 1)
    bank.sweep(SWEEP)
    bank.feedback(bank.ids()[:2], [1.0, 1.0], 0.0)
    bank.set_weights({bank.ids()[0]: 0.2})
    before = retriever.refresh()
    assert before.graph.weights[0] == 0.2
    ConversationMemory(bank).add_pages([Page(text="clay in the garden", session="s1", id="new")])
    bank.delete([bank.ids()[1]])
    assert len(retriever.refresh().graph) == len(before.graph)
    assert counts == first
    with bank.state.lock("test") as lock:
        key = RetrievalKey("new", "scene1", "kiln")
        apply_repair(bank, Repair(operation="extract", reason="-", keys=(key,)), lock=lock)
    retriever.refresh()
    assert counts == {**first, "keys": 2}
    bank.update("new", "tram")
    retriever.search("clay")
    assert counts == {**first, "keys": 3, "content": 2}


def test_an_index_that_was_left_behind_still_ranks_by_its_own_texts(bank: MemoryBank) -> None:
    rows = {"a": 0, "b": 1, "c": 2, "d": 3}
    old = WordFamily({"a": "kiln clay", "b": "kiln", "c": "tram"})
    new = old.updated({"b": "clay clay", "c": "tram", "d": "kiln"})
    branch = old.updated({"a": "dog", "b": "kiln", "c": "tram"})
    assert new.ranking("kiln", rows).tolist() == [3]
    assert old.ranking("kiln", rows).tolist() == [1, 0]
    assert new.ranking("clay", rows).tolist() == [1]
    assert branch.ranking("kiln dog", rows).tolist() == [0, 1]
    assert new.updated(dict(new.texts)) is new
    assert old.ranking("kiln", {"a": 7}).tolist() == [7]


def test_searches_while_others_write(open_bank: OpenBank) -> None:
    bank = open_bank(embedder=Hashed())
    life = Life(bank, 1)
    for _ in range(5):
        life.talk()
    retriever = AssociativeRetriever(bank)
    errors: list[BaseException] = []
    stop = threading.Event()

    def search() -> None:
        try:
            while not stop.is_set():
                retriever.search("clay kiln", k=5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(15):
        life.talk()
        life.repair()
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert_alike(found(retriever), found(AssociativeRetriever(bank)))


def test_what_another_program_rewrote_on_a_server_is_read_when_asked(
    open_bank: OpenBank, chroma_server: str, tmp_path: object
) -> None:
    bank = open_bank(chroma_server, embedder=Hashed(), state_url=f"sqlite:///{tmp_path}/state.sqlite3")
    bank.add(["kiln", "tram"], ids=["a", "b"])
    retriever = AssociativeRetriever(bank)
    assert retriever.search("tram")[0].id == "b"
    bank.content.collection.update(
        ids=["a"], documents=["tram tram"], embeddings=[Hashed().embed_query("tram")]
    )
    retriever.refresh(force=True)
    assert retriever.search("tram", k=1)[0].id == "a"


def test_a_tenant_follows_its_own_memories(open_bank: OpenBank) -> None:
    everyone = open_bank(embedder=Hashed())
    users = ["ada", "bo", "ada", "bo"]
    everyone.add(
        ["kiln", "kiln clay", "tram", "rain"],
        ids=list("abcd"),
        metadatas=[{"user": user, "dream_session": "s"} for user in users],
    )
    ada = open_bank(embedder=Hashed(), where={"user": "ada"})
    retriever = AssociativeRetriever(ada, track_access=False)
    assert [hit.id for hit in retriever.search("kiln")] == ["a", "c"]
    # comes between the two that are known
    everyone.update("b", metadata={"user": "ada", "dream_session": "s"})
    assert {hit.id for hit in retriever.search("kiln")} == {"a", "b", "c"}
    assert retriever.refresh().graph.ids == ["a", "b", "c"]
    assert_alike(found(retriever), found(AssociativeRetriever(ada, track_access=False)))
    everyone.delete(["a"])
    assert [hit.id for hit in retriever.search("kiln")] == ["b", "c"]


def test_what_arrives_between_the_look_and_the_reading_is_there_once(
    open_bank: OpenBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = open_bank(embedder=Hashed())
    bank.add(["kiln", "tram"], ids=["a", "b"])
    retriever = AssociativeRetriever(bank)
    version = bank.state.version

    def late() -> int:
        monkeypatch.setattr(bank.state, "version", version)
        bank.add(["tram to the kiln"], ids=["c"])
        return version()

    monkeypatch.setattr(bank.state, "version", late)
    for _ in range(2):
        assert sorted(retriever.refresh().graph.ids) == ["a", "b", "c"]
    assert_alike(found(retriever), found(AssociativeRetriever(bank)))


def test_a_family_that_is_asked_while_its_successor_is_made_spoils_neither() -> None:
    before = {"a": "kiln", "b": "tram", "d": "rain", "e": "dog"}
    after = {**before, "c": "kiln of clay"}
    rows = {memory_id: row for row, memory_id in enumerate("abcde")}
    old = WordFamily(before)
    index = old._shared.index
    remove = index.remove

    def asked_meanwhile(gone: list[str]) -> None:
        assert old.ranking("kiln", rows).tolist() == [0]
        remove(gone)

    index.remove = asked_meanwhile  # type: ignore[method-assign]
    new = old.updated(after)
    assert new.ranking("clay", rows).tolist() == [2]
    assert old.ranking("clay", rows).tolist() == []
