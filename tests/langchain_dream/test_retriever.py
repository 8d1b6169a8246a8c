"""DreamRetriever as a drop-in: options, documents, async, serialisation, over a real Chroma."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import time
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import ConfigurableField, RunnableLambda
from pydantic import ValidationError

from langchain_dream import DreamRetriever
from shared_core import ForgettingConfig, SentenceTransformerEmbedder
from shared_core.errors import BankLockedError, ConfigError, StateError
from tests.langchain_dream.conftest import QUERY, TEXTS, filled, ids


def test_unweighted_it_is_the_plain_retriever(store: Chroma) -> None:
    plain = store.as_retriever(search_kwargs={"k": 5})
    ours = DreamRetriever.from_retriever(plain)
    for query in [QUERY, "coffee?", "How do I get online?", "emergency"]:
        expected, found = plain.invoke(query), ours.invoke(query)
        assert ids(found) == ids(expected)
        assert [d.page_content for d in found] == [d.page_content for d in expected]
        for document, original in zip(found, expected, strict=True):
            assert original.metadata.items() <= document.metadata.items()
            added = document.metadata.keys() - original.metadata.keys()
            assert added == {"dream_score", "dream_similarity", "dream_weight"}


async def test_every_way_to_call_it_agrees(retriever: DreamRetriever) -> None:
    retriever.bank.set_weights({"printer": 0.0, "coffee": 0.5})
    queries = [QUERY, "coffee", ""]
    expected = [retriever.invoke(query) for query in queries]
    assert "printer" not in ids(expected[0])
    assert expected[2] == []
    assert [await retriever.ainvoke(query) for query in queries] == expected
    assert retriever.batch(queries) == expected
    assert await retriever.abatch(queries) == expected
    assert list(retriever.stream(QUERY)) == [expected[0]]
    assert [chunk async for chunk in retriever.astream(QUERY)] == [expected[0]]


async def test_precedence_of_k(store: Chroma) -> None:
    async def counts(retriever: DreamRetriever, **kwargs: Any) -> set[int]:
        return {len(retriever.invoke(QUERY, **kwargs)), len(await retriever.ainvoke(QUERY, **kwargs))}

    assert await counts(DreamRetriever(vectorstore=store)) == {4}
    assert await counts(DreamRetriever(vectorstore=store, search_kwargs={"k": 2})) == {2}
    both = DreamRetriever(vectorstore=store, k=3, search_kwargs={"k": 2})
    assert await counts(both) == {3}
    assert await counts(both, k=1) == {1}
    assert await counts(both, k=500) == {len(TEXTS)}
    both.k = 5
    assert await counts(both) == {5}


def test_misspelt_or_senseless_options(store: Chroma, retriever: DreamRetriever) -> None:
    for bad in ({"kk": 3}, {"search_kwarg": {}}, {"k": 0}, {"search_type": "best"}, {"metadata_prefix": ""}):
        with pytest.raises(ConfigError, match=rf"\b{next(iter(bad))}\b"):
            DreamRetriever(vectorstore=store, **bad)
    with pytest.raises(ConfigError, match=r"DreamRetriever has no option kk; known: .*quarantine"):
        DreamRetriever(vectorstore=store, kk=3)
    with pytest.raises(ConfigError, match=r"^k=0: input should be greater than or equal to 1$"):
        DreamRetriever(vectorstore=store, k=0)
    with pytest.raises(ConfigError, match=r"DreamRetriever needs vectorstore=\.\.\."):
        DreamRetriever()  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"^backend='scann.*is not one of auto"):
        DreamRetriever(vectorstore=store, backend="scann")
    with pytest.raises(
        ConfigError, match=r"unknown search option fliter; known: filter, where_document, .*k"
    ):
        retriever.invoke(QUERY, fliter={"topic": "wifi"})
    with pytest.raises(ConfigError, match="give one"):
        retriever.invoke(QUERY, filter={"topic": "wifi"}, where={"topic": "wifi"})
    with pytest.raises(ConfigError):
        retriever.invoke(QUERY, k=0)


async def test_misspelt_options_async(retriever: DreamRetriever) -> None:
    with pytest.raises(ConfigError, match="known: filter"):
        await retriever.ainvoke(QUERY, fliter={})


def test_what_names_the_bank_cannot_be_changed_afterwards(retriever: DreamRetriever) -> None:
    for field in ("where", "state_url", "metadata_prefix", "vectorstore", "track_access"):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(retriever, field, None)


def test_filters(store: Chroma, retriever: DreamRetriever) -> None:
    assert ids(retriever.invoke(QUERY, filter={"topic": "wifi"})) == ["wifi"]
    assert ids(retriever.invoke(QUERY, where_document={"$contains": "coffee"})) == ["coffee"]
    fixed = DreamRetriever(vectorstore=store, search_kwargs={"filter": {"length": {"$lt": 39}}}, k=9)
    assert set(ids(fixed.invoke(QUERY))) == {key for key, text in TEXTS.items() if len(text) < 39}
    tenant = DreamRetriever(vectorstore=store, where={"topic": {"$in": ["wifi", "fire"]}}, k=9)
    assert set(ids(tenant.invoke(QUERY))) == {"wifi", "fire"}
    assert tenant.invoke(QUERY, filter={"topic": "printer"}) == []


def test_search_types(store: Chroma) -> None:
    def found(search_type: str, **kwargs: Any) -> list[str | None]:
        return ids(
            DreamRetriever(vectorstore=store, search_type=search_type, search_kwargs=kwargs).invoke(QUERY)
        )

    assert found("similarity")[:2] == ["paper", "printer"]
    assert found("hybrid")[:2] == ["paper", "printer"]
    assert found("mmr", lambda_mult=1.0, fetch_k=8) == found("similarity")
    assert found("mmr", lambda_mult=0.0, fetch_k=8)[:2] != ["paper", "printer"]
    assert found("similarity_score_threshold", score_threshold=0.5, k=8) == ["paper", "printer"]
    assert found("similarity_score_threshold", score_threshold=0.99) == []
    with pytest.raises(ConfigError, match="score_threshold"):
        DreamRetriever(vectorstore=store, search_type="similarity_score_threshold")
    plain = DreamRetriever(vectorstore=store)
    with pytest.raises(ConfigError, match="needs score_threshold"):
        plain.invoke(QUERY, search_type="similarity_score_threshold")
    assert ids(plain.invoke(QUERY, search_type="hybrid", k=1)) == ["paper"]


def test_reranker(store: Chroma) -> None:
    class Wifi:
        def score(self, query: str, texts: Any) -> np.ndarray:
            return np.array([0.9 if "wifi" in text else 0.1 for text in texts])

    retriever = DreamRetriever(vectorstore=store, reranker=Wifi(), k=2)
    assert ids(retriever.invoke(QUERY))[0] == "wifi"
    retriever.bank.set_weights({"wifi": 0.0})
    assert "wifi" not in ids(retriever.invoke(QUERY, k=8))


def test_the_users_metadata_is_never_overwritten(store: Chroma) -> None:
    store.add_texts(["a scanner"], ids=["scan"], metadatas=[{"dream_score": "mine", "n": 1}])
    document = DreamRetriever(vectorstore=store, k=1).invoke("a scanner")[0]
    assert document.metadata["dream_score"] == "mine"
    assert document.metadata["dream_weight"] == 1.0
    other = DreamRetriever(vectorstore=store, k=1, metadata_prefix="w_").invoke("a scanner")[0]
    assert other.metadata.keys() == {"dream_score", "n", "w_score", "w_similarity", "w_weight"}
    assert store.get(ids=["scan"])["metadatas"] == [{"dream_score": "mine", "n": 1}]
    json.dumps(document.metadata)


def test_results_are_the_callers_own(retriever: DreamRetriever) -> None:
    retriever.invoke(QUERY)[0].metadata["spoilt"] = True
    assert "spoilt" not in retriever.invoke(QUERY)[0].metadata


def test_serialisation(retriever: DreamRetriever, store: Chroma) -> None:
    dumped = json.loads(retriever.model_dump_json())
    assert dumped["k"] == 3
    assert "vectorstore" not in dumped
    assert ids(DreamRetriever(vectorstore=store, **dumped).invoke(QUERY)) == ids(retriever.invoke(QUERY))
    with pytest.raises(TypeError, match=r"cannot be pickled: send its configuration \(model_dump\)"):
        pickle.dumps(retriever)
    with pytest.raises(TypeError, match=r"cannot be deep-copied: use copy\.copy"):
        copy.deepcopy(retriever)
    assert ids(copy.copy(retriever).invoke(QUERY)) == ids(retriever.invoke(QUERY))


def test_runnable_decorators(retriever: DreamRetriever, store: Chroma) -> None:
    assert len(retriever.with_config(tags=["x"]).invoke(QUERY)) == 3
    flexible = retriever.configurable_fields(k=ConfigurableField(id="k"))
    assert len(flexible.with_config(configurable={"k": 1}).invoke(QUERY)) == 1
    assert len(flexible.invoke(QUERY)) == 3
    assert ids(retriever.bind(k=1).invoke(QUERY)) == ["paper"]
    calls: list[int] = []

    class Flaky(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return store.embeddings.embed_documents(texts)  # type: ignore[union-attr]

        def embed_query(self, text: str) -> list[float]:
            calls.append(1)
            if len(calls) % 2:
                raise TimeoutError("busy")
            return store.embeddings.embed_query(text)  # type: ignore[union-attr]

    flaky = DreamRetriever(vectorstore=Chroma(client=store._client, collection_name=store._collection.name,
                                              embedding_function=Flaky()))  # fmt: skip
    assert ids(flaky.with_retry(stop_after_attempt=2, wait_exponential_jitter=False).invoke(QUERY))
    assert flaky.with_fallbacks([RunnableLambda(lambda _: "fallback")]).invoke(QUERY) == "fallback"


def test_from_retriever_keeps_its_options(store: Chroma) -> None:
    plain = store.as_retriever(
        search_type="mmr", search_kwargs={"k": 2, "lambda_mult": 0.3}, tags=["t"], metadata={"m": 1}
    )
    ours = DreamRetriever.from_retriever(plain, metadata_prefix="x_")
    assert ours.search_type == "mmr"
    assert ours.search_kwargs == {"k": 2, "lambda_mult": 0.3}
    assert ours.metadata == {"m": 1}
    assert "t" in (ours.tags or [])
    assert len(ours.invoke(QUERY)) == 2
    assert DreamRetriever.from_retriever(plain, k=1).invoke(QUERY).__len__() == 1


def test_from_one_of_ours_every_field_is_kept(store: Chroma, tmp_path: Path) -> None:
    class Flat:
        def score(self, query: str, texts: Any) -> np.ndarray:
            return np.full(len(texts), 0.5)

    given: dict[str, Any] = {
        "where": {"topic": {"$in": ["wifi", "fire"]}},
        "state_url": f"sqlite:///{tmp_path / 'tenant.sqlite3'}",
        "bank_name": "tenant",
        "value_key": "topic",
        "origin_key": "topic",
        "quarantine": 0.5,
        "backend": "scan",
        "reranker": Flat(),
        "metadata_prefix": "x_",
        "track_access": False,
        "k": 7,
        "search_kwargs": {"min_weight": 0.0},
    }
    ours = DreamRetriever(vectorstore=store, **given)
    again = DreamRetriever.from_retriever(ours)
    for name in DreamRetriever.model_fields:
        assert getattr(again, name) == getattr(ours, name), name
    assert set(ids(again.invoke(QUERY))) == {"wifi", "fire"}
    assert DreamRetriever.from_retriever(ours, k=1).where == given["where"]


def test_what_no_sweep_has_seen_can_count_for_less(
    store: Chroma, embedder: SentenceTransformerEmbedder
) -> None:
    retriever = DreamRetriever(vectorstore=store, quarantine=0.5, origin_key="topic")
    store.add_texts(["A brand new sheet of paper for the printer"], ids=["brand-new"])
    assert retriever.bank.origin_key == "topic"
    weights = {doc.id: doc.metadata["dream_weight"] for doc in retriever.invoke(QUERY, k=9)}
    assert weights["brand-new"] == 0.5
    assert weights["paper"] == 1.0
    retriever.sweep(ForgettingConfig(eta=100.0))
    weights = {doc.id: doc.metadata["dream_weight"] for doc in retriever.invoke(QUERY, k=9)}
    assert weights["brand-new"] > 0.99


async def test_senseless_filters_and_queries(retriever: DreamRetriever) -> None:
    for bad in ({"filter": 5}, {"where": "x"}, {"where": 5}, {"where_document": 5}, {"rrf_weights": None}):
        with pytest.raises(ConfigError):
            retriever.invoke(QUERY, **bad)
        with pytest.raises(ConfigError):
            await retriever.ainvoke(QUERY, **bad)
    with pytest.raises(ConfigError, match="a query is text"):
        retriever.invoke(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a query is text"):
        await retriever.ainvoke(5)  # type: ignore[arg-type]


async def test_two_retrievers_over_one_collection_agree(store: Chroma, retriever: DreamRetriever) -> None:
    second = DreamRetriever(vectorstore=store, k=3)
    retriever.invoke(QUERY), second.invoke(QUERY)
    retriever.bank.set_weights({"printer": 0.1})
    assert second.invoke(QUERY) == retriever.invoke(QUERY)
    second.add_documents([Document(id="new", page_content=QUERY)])
    assert ids(retriever.invoke(QUERY))[0] == "new"
    await retriever.aadd_documents([Document(id="newer", page_content="Where is the printer now?")])
    assert "newer" in ids(second.invoke(QUERY))
    store.delete(["new"])
    assert "new" not in ids(retriever.invoke(QUERY))


class SlowEmbedder(Embeddings):
    """Takes 0.3 s; ``native`` counts calls of the coroutine."""

    def __init__(self) -> None:
        self.native = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(len(text)), 1.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        time.sleep(0.3)
        return [1.0, 1.0]


class NativeEmbedder(SlowEmbedder):
    async def aembed_query(self, text: str) -> list[float]:
        self.native += 1
        await asyncio.sleep(0.3)
        return [1.0, 1.0]


@pytest.mark.parametrize("kind", [SlowEmbedder, NativeEmbedder])
async def test_ainvoke_leaves_the_event_loop_free(kind: type[SlowEmbedder], name: str) -> None:
    embedder = kind()
    store = filled(Chroma(collection_name=name, embedding_function=embedder))
    retriever = DreamRetriever(vectorstore=store)
    await retriever.ainvoke(QUERY)
    pauses: list[float] = []

    async def tick() -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.01)
            pauses.append(time.perf_counter() - started)

    ticker = asyncio.create_task(tick())
    found = await asyncio.gather(*(retriever.ainvoke(QUERY) for _ in range(4)))
    ticker.cancel()
    assert [len(documents) for documents in found] == [4] * 4
    assert len(pauses) >= 10
    assert max(pauses) < 0.2
    assert embedder.native == (5 if kind is NativeEmbedder else 0)


def test_no_embedder(name: str) -> None:
    with pytest.raises(ConfigError, match="no embedder"):
        DreamRetriever(vectorstore=Chroma(collection_name=name)).invoke(QUERY)


def test_a_server_needs_a_place_for_weights(
    chroma_server: str, name: str, embedder: SentenceTransformerEmbedder, tmp_path: Path
) -> None:
    host, port = chroma_server.removeprefix("http://").split(":")
    client = chromadb.HttpClient(host=host, port=int(port))
    store = filled(Chroma(collection_name=name, embedding_function=embedder, client=client))
    with pytest.raises(StateError, match=r"pass state_url='sqlite:.*postgresql.*DREAM_STATE_URL"):
        DreamRetriever(vectorstore=store)
    retriever = DreamRetriever(vectorstore=store, state_url=f"sqlite:///{tmp_path / 's.sqlite3'}", k=2)
    assert ids(retriever.invoke(QUERY)) == ["paper", "printer"]
    retriever.bank.set_weights({"paper": 0})
    assert ids(retriever.invoke(QUERY))[0] == "printer"


async def test_sweep_and_undo(retriever: DreamRetriever) -> None:
    before = retriever.invoke(QUERY, k=8)
    report = retriever.sweep(ForgettingConfig(), dry_run=True)
    assert (report.run_id, report.memories) == (None, len(TEXTS))
    seen: list[str] = []
    report = retriever.sweep(ForgettingConfig(), progress=lambda stage, *_: seen.append(stage))
    assert seen
    assert report.lowered
    assert retriever.invoke(QUERY, k=8) != before
    retriever.bank.undo(report.run_id or "")
    assert retriever.invoke(QUERY, k=8) == before
    report = await retriever.asweep(ForgettingConfig())
    assert await retriever.ainvoke(QUERY, k=8) != before
    with retriever.bank.state.lock("a test"), pytest.raises(BankLockedError):
        retriever.sweep()


@pytest.mark.parametrize("wrong", [{"min_wieght": 0.2}, {"k": 0}, {"search_type": "mmr", "lambda_mult": 2.0}])
def test_a_senseless_search_option_is_refused_at_construction(store: Chroma, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(reversed(wrong))):
        DreamRetriever.from_vectorstore(store, search_kwargs=wrong)


def test_stores_and_retrievers_are_told_apart(store: Chroma) -> None:
    with pytest.raises(ConfigError, match="use from_retriever"):
        DreamRetriever.from_vectorstore(store.as_retriever())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not Chroma; for a vector store use from_vectorstore"):
        DreamRetriever.from_retriever(store)  # type: ignore[arg-type]
