"""Whatever is given to a bank or a retriever is taken or refused as documented, and refused whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import BankRetriever, ForgettingConfig, MemoryBank
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.errors import DreamError
from tests.soak.effort import LetterEmbedder, effort
from tests.soak.hostile import anything, metadatas, numbers, odd, snapshot, strings, vectors

SIZE = LetterEmbedder.dimension
texts = st.one_of(strings, anything)
id_lists = st.one_of(anything, st.lists(strings, max_size=3), st.sampled_from([["m0"], ["m0", "m1"], ["\0"]]))
weights = st.one_of(
    anything, st.dictionaries(st.sampled_from(["m0", "m1", "m2"]), st.one_of(numbers, odd), min_size=1)
)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBank]:
    with MemoryBank.open(
        tmp_path_factory.mktemp("bad"), "bad", embedder=LetterEmbedder(), value_key="value", create=True
    ) as opened:
        opened.add(["a red boat", "a blue heron", "plums"], ids=["m0", "m1", "m2"], values=["x", "y", "z"])
        yield opened


def tried(bank: MemoryBank, call: Callable[[], Any]) -> bool:
    """Call; returns whether it was taken. Anything but a DreamError fails the test."""
    before = snapshot(bank)
    try:
        call()
    except DreamError as refused:
        said = str(refused)
    else:
        return True
    assert said.strip()
    assert snapshot(bank) == before
    return False


def arguments(**given: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return arguments of a call, each left out at times."""
    return st.fixed_dictionaries({}, optional=given)


CALLS: dict[str, tuple[Callable[..., Any], st.SearchStrategy[tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "add": (
        MemoryBank.add,
        st.tuples(
            st.tuples(st.one_of(st.lists(texts, min_size=1, max_size=2), anything)),
            arguments(
                ids=id_lists,
                metadatas=st.one_of(st.lists(metadatas, max_size=2), anything),
                values=anything,
                embeddings=st.one_of(st.lists(vectors(SIZE), min_size=1, max_size=2), anything),
            ),
        ),
    ),
    "update": (
        MemoryBank.update,
        st.tuples(
            st.tuples(st.one_of(st.just("m0"), anything)),
            arguments(text=texts, metadata=metadatas, embedding=vectors(SIZE)),
        ),
    ),
    "get": (MemoryBank.get, st.tuples(st.tuples(id_lists), st.just({}))),
    "weights": (MemoryBank.weights, st.tuples(st.tuples(id_lists), st.just({}))),
    "delete": (MemoryBank.delete, st.tuples(st.tuples(id_lists), st.just({}))),
    "restore": (MemoryBank.restore, st.tuples(st.tuples(id_lists), st.just({}))),
    "set_weights": (MemoryBank.set_weights, st.tuples(st.tuples(weights), st.just({}))),
    "feedback": (
        MemoryBank.feedback,
        st.tuples(
            st.tuples(id_lists, st.one_of(anything, st.lists(numbers, max_size=2)), anything),
            arguments(config=anything),
        ),
    ),
    "page": (MemoryBank.page, st.tuples(st.tuples(anything, anything), st.just({}))),
    "undo": (MemoryBank.undo, st.tuples(st.tuples(anything), st.just({}))),
    "runs": (MemoryBank.runs, st.tuples(st.tuples(anything), st.just({}))),
    "explain": (MemoryBank.explain, st.tuples(st.tuples(anything), arguments(config=anything))),
    "sweep": (MemoryBank.sweep, st.tuples(st.just(()), arguments(config=anything))),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bank_takes_it_or_refuses_it_whole(bank: MemoryBank, name: str) -> None:
    method, given_to = CALLS[name]

    @effort(60)
    @given(given_to)
    def holds(call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        tried(bank, lambda: method(bank, *call[0], **call[1]))

    holds()
    assert np.all(np.isfinite(list(bank.content.get_embeddings(bank.ids()).values())))
    assert all(0 <= w <= 1 for w in bank.weights(bank.ids()))


OPTIONS = {
    "k": anything, "fetch_k": anything, "rerank_top": anything, "min_weight": anything,
    "lambda_mult": anything, "rrf_k": anything, "rrf_weights": anything, "score_threshold": anything,
    "where": odd, "where_document": odd, "nonsense": anything,
    "search_type": st.one_of(
        st.sampled_from(["similarity", "mmr", "hybrid", "associative", "similarity_score_threshold"]),
        anything,
    ),
}  # fmt: skip


@effort(150)
@given(query=texts, options=st.fixed_dictionaries({}, optional=OPTIONS))
def test_a_search(bank: MemoryBank, query: Any, options: Mapping[str, Any]) -> None:
    tried(bank, lambda: BankRetriever(bank, track_access=False).search(query, **few(options)))


@effort(150)
@given(vector=vectors(SIZE), options=st.fixed_dictionaries({}, optional=OPTIONS))
def test_a_search_by_vector(bank: MemoryBank, vector: Any, options: Mapping[str, Any]) -> None:
    tried(bank, lambda: BankRetriever(bank, track_access=False).search_by_vector(vector, **few(options)))


def few(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return at most two of the options: with more, the first bad one hides the others."""
    return dict(list(options.items())[:2])


@effort(50)
@given(
    user=texts,
    agent=anything,
    options=arguments(session=anything, time=anything, page_id=anything, names=anything, metadata=metadatas),
)
def test_a_turn(bank: MemoryBank, user: Any, agent: Any, options: dict[str, Any]) -> None:
    options = {"session": "s", **few(options)}
    tried(bank, lambda: ConversationMemory(bank).add_turn(user, agent, **options))


@pytest.mark.parametrize(
    "options",
    [{"names": "ab"}, {"names": {"m0": 1}}, {"time": "now"}, {"page_id": bytearray()}, {"session": 5}]
    + [{"metadata": value} for value in (np.zeros((2, 2)), "x", [1], 0)],
    ids=str,
)
def test_a_turn_of_other_types_is_refused(bank: MemoryBank, options: dict[str, Any]) -> None:
    assert not tried(bank, lambda: ConversationMemory(bank).add_turn("hello", **{"session": "s", **options}))


@effort(40)
@given(
    pages=st.one_of(
        anything,
        st.lists(
            st.builds(
                Page, text=texts, session=anything, speaker=anything, time=anything, metadata=metadatas
            ),
            max_size=2,
        ),
    )
)
def test_pages(bank: MemoryBank, pages: Any) -> None:
    tried(bank, lambda: ConversationMemory(bank).add_pages(pages))


@pytest.mark.parametrize("size", [1_000_000, 10_000_000])
def test_texts_of_megabytes(bank: MemoryBank, size: int) -> None:
    memory_id = f"long {size}"
    bank.add(["word " * (size // 5)], ids=[memory_id], embeddings=np.ones((1, SIZE)))
    assert len(bank.get([memory_id])[0].text) == size // 5 * 5
    assert BankRetriever(bank).search_by_vector(np.ones(SIZE), query="word", search_type="hybrid")
    bank.undo(bank.update(memory_id, "short").run_id)
    assert len(bank.get([memory_id])[0].text) == size // 5 * 5


def test_a_clock_that_goes_backwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    now = [2e9]

    def backwards() -> float:
        now[0] -= 86_400.0
        return now[0]

    monkeypatch.setattr(time, "time", backwards)
    monkeypatch.setattr(time, "time_ns", lambda: int(backwards() * 1e9))
    with MemoryBank.open(tmp_path / "chroma", "clock", embedder=LetterEmbedder(), create=True) as bank:
        ids = bank.add(["a red boat", "a blue heron", "plums", "a letter", "a violin", "a ferry"])
        lowered = bank.set_weights({ids[0]: 0.5})
        BankRetriever(bank).search("boat")
        report = bank.sweep(ForgettingConfig(eta=0.3))
        assert [run.kind for run in bank.runs()] == ["sweep", "reweight", "add"], "by version, not by clock"
        bank.undo(str(report.run_id))
        bank.undo(lowered.run_id)
        assert bank.weights(ids).tolist() == [1.0] * 6
        assert bank.status().locked_by is None
