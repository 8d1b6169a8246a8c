"""Over a vector store that is not Chroma: weights by document id, and clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_dream import DreamRetriever
from langchain_dream.other_stores import StoreSearch
from shared_core.errors import StateError, UnsupportedStoreError
from tests.langchain_dream.conftest import QUERY, TEXTS, filled, ids


@pytest.fixture
def memory(embedder: Any) -> InMemoryVectorStore:
    return filled(InMemoryVectorStore(embedder))  # type: ignore[no-any-return]


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"state_url": f"sqlite:///{tmp_path / 'w.sqlite3'}", "bank_name": "office"}


def state(retriever: DreamRetriever) -> Any:
    assert isinstance(retriever._search, StoreSearch)
    return retriever._search.state


async def test_weights_by_document_id(memory: InMemoryVectorStore, options: dict[str, Any]) -> None:
    retriever = DreamRetriever(vectorstore=memory, k=3, **options)
    expected = memory.similarity_search(QUERY, k=3)
    documents = retriever.invoke(QUERY)
    assert ids(documents) == ids(expected)
    assert documents[0].metadata["dream_weight"] == 1.0
    assert expected[0].metadata.items() < documents[0].metadata.items()
    best = documents[0].id
    state(retriever).set_weights({best: 0.0})
    assert best not in ids(retriever.invoke(QUERY, k=99))
    assert await retriever.ainvoke(QUERY) == retriever.invoke(QUERY)
    assert retriever.batch([QUERY] * 8) == [retriever.invoke(QUERY)] * 8
    # the weights outlive the retriever
    assert best not in ids(DreamRetriever(vectorstore=memory, k=9, **options).invoke(QUERY))
    assert retriever.invoke("  ") == []


def test_exact_under_random_weights(options: dict[str, Any], rng: np.random.Generator) -> None:
    table = {f"t{i}": rng.standard_normal(8) for i in range(300)}

    class Table(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [table[text].tolist() for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return table[text].tolist()  # type: ignore[no-any-return]

    store = InMemoryVectorStore(Table())
    store.add_documents([Document(id=key, page_content=key) for key in table])
    retriever = DreamRetriever(vectorstore=store, k=7, **options)
    weight = {key: float(w) for key, w in zip(table, rng.choice([0, 0.1, 1.0], 300), strict=True)}
    state(retriever).set_weights(weight)
    query = table["t0"] / np.linalg.norm(table["t0"])
    score = {k: weight[k] * max(0.0, float(v @ query / np.linalg.norm(v))) for k, v in table.items()}
    assert ids(retriever.invoke("t0")) == sorted(score, key=lambda key: -score[key])[:7]


def test_search_types_and_the_stores_own_options(
    memory: InMemoryVectorStore, options: dict[str, Any]
) -> None:
    retriever = DreamRetriever(vectorstore=memory, k=2, **options)
    assert ids(retriever.invoke(QUERY, search_type="mmr", lambda_mult=1.0)) == ids(retriever.invoke(QUERY))
    near = retriever.invoke(QUERY, search_type="similarity_score_threshold", score_threshold=0.5, k=8)
    assert set(ids(near)) == {"paper", "printer"}
    only = retriever.invoke(QUERY, filter=lambda document: document.metadata["topic"] == "wifi")
    assert ids(only) == ["wifi"]


def test_feedback(memory: InMemoryVectorStore, options: dict[str, Any]) -> None:
    retriever = DreamRetriever(vectorstore=memory, k=2, **options)
    documents = retriever.invoke(QUERY)
    run = retriever.feedback(documents, success=False)
    assert min(s.consolidation for s in state(retriever).get(ids(documents))) < 1.0
    state(retriever).undo(run.run_id)
    assert [s.consolidation for s in state(retriever).get(ids(documents))] == [1.0, 1.0]


def test_access_is_counted_unless_told_not_to(memory: InMemoryVectorStore, options: dict[str, Any]) -> None:
    counts = []
    for track_access in (True, False):
        retriever = DreamRetriever(vectorstore=memory, k=1, track_access=track_access, **options)
        found = ids(retriever.invoke(QUERY))
        counts.append(state(retriever).get(found)[0].retrievals)
    assert counts == [1, 1]


async def test_what_needs_chroma_is_refused(memory: InMemoryVectorStore, options: dict[str, Any]) -> None:
    retriever = DreamRetriever(vectorstore=memory, **options)
    with pytest.raises(UnsupportedStoreError, match="keep these memories in Chroma"):
        retriever.sweep()
    with pytest.raises(UnsupportedStoreError, match="every embedding"):
        await retriever.asweep()
    with pytest.raises(UnsupportedStoreError, match="InMemoryVectorStore"):
        _ = retriever.bank
    for search_type in ("hybrid", "associative"):
        with pytest.raises(UnsupportedStoreError, match=search_type):
            retriever.invoke(QUERY, search_type=search_type)
    for refused in ({"where": {"a": 1}}, {"reranker": []}):
        with pytest.raises(UnsupportedStoreError, match="need Chroma"):
            DreamRetriever(vectorstore=memory, **options, **refused)


def test_a_place_for_weights_is_asked_for(memory: InMemoryVectorStore, options: dict[str, Any]) -> None:
    for missing in ("state_url", "bank_name"):
        given = {key: value for key, value in options.items() if key != missing}
        with pytest.raises(StateError, match=r"pass state_url='sqlite:.*bank_name"):
            DreamRetriever(vectorstore=memory, **given)


def test_documents_without_ids_are_refused(embedder: Any, options: dict[str, Any]) -> None:
    class Anonymous(InMemoryVectorStore):
        def similarity_search(self, *args: Any, **kwargs: Any) -> list[Document]:
            return [Document(page_content=text) for text in TEXTS.values()]

    retriever = DreamRetriever(vectorstore=Anonymous(embedder), **options)
    with pytest.raises(UnsupportedStoreError, match="without an id"):
        retriever.invoke(QUERY)


def test_a_store_without_an_embedder_is_refused(memory: InMemoryVectorStore, options: dict[str, Any]) -> None:
    class Bare(InMemoryVectorStore):
        @property
        def embeddings(self) -> None:  # type: ignore[override]
            return None

    with pytest.raises(UnsupportedStoreError, match="shows no embedder"):
        DreamRetriever(vectorstore=Bare(memory.embedding), **options)
