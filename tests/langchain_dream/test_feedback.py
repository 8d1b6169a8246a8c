"""Feedback by documents, by run id and by a tracer's run; what cannot be resolved is refused."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler

from langchain_dream import DreamRetriever
from langchain_dream.feedback import REMEMBERED_RUNS
from shared_core.errors import ConfigError, MemoryNotFoundError
from tests.langchain_dream.conftest import QUERY, Recorder, filled


def consolidation(retriever: DreamRetriever, ids: list[Any]) -> list[float]:
    return [memory.state.consolidation for memory in retriever.bank.get(ids)]


def searched(retriever: DreamRetriever) -> tuple[list[Document], Any]:
    recorder = Recorder()
    documents = retriever.invoke(QUERY, {"callbacks": [recorder]})
    return documents, recorder.events[-1][2]["run_id"]


def test_every_way_to_name_what_helped(retriever: DreamRetriever) -> None:
    documents, run_id = searched(retriever)
    ids = [document.id for document in documents]
    tracer = RunCollectorCallbackHandler()
    retriever.invoke(QUERY, {"callbacks": [tracer]})
    results = []
    for named in (documents, tuple(documents), run_id, str(run_id), tracer.traced_runs[0]):
        run = retriever.feedback(named, success=False)
        assert run.kind == "feedback"
        results.append(consolidation(retriever, ids))
        retriever.bank.undo(run.run_id)
        assert consolidation(retriever, ids) == [1.0] * 3
    assert all(result == results[0] for result in results)
    assert max(results[0]) < 1.0


def test_one_document_and_duplicates(retriever: DreamRetriever) -> None:
    documents, _ = searched(retriever)
    retriever.feedback(documents[0], success=0.5)
    retriever.feedback([documents[1], documents[1]], success=True)
    states = retriever.bank.get([documents[0].id or "", documents[1].id or ""])
    assert [memory.state.successes for memory in states] == [0.5, 1.0]


async def test_async(retriever: DreamRetriever) -> None:
    recorder = Recorder()
    documents = await retriever.ainvoke(QUERY, {"callbacks": [recorder]})
    run = await retriever.afeedback(recorder.events[-1][2]["run_id"], success=1)
    assert run.kind == "feedback"
    assert retriever.bank.get([documents[0].id or ""])[0].state.successes == 1.0


def test_the_run_of_a_chain_names_its_retrieval(retriever: DreamRetriever) -> None:
    tracer = RunCollectorCallbackHandler()
    chain = retriever | RunnableLambda(len)
    assert chain.invoke(QUERY, {"callbacks": [tracer]}) == 3
    run = retriever.feedback(tracer.traced_runs[0], success=True)
    assert run.report["memories"] == 3


def test_what_cannot_be_resolved(retriever: DreamRetriever, store: Any, embedder: Any, name: str) -> None:
    documents, run_id = searched(retriever)
    before = len(retriever.bank.runs())
    with pytest.raises(ConfigError, match="not among the last 1000 runs"):
        retriever.feedback("no such run", success=True)
    with pytest.raises(ConfigError, match="not among the last"):
        DreamRetriever(vectorstore=store).feedback(run_id, success=True)
    with pytest.raises(ConfigError, match="list of documents"):
        retriever.feedback([documents[0].id], success=True)
    with pytest.raises(ConfigError, match="no id or no dream_score"):
        retriever.feedback(store.as_retriever().invoke(QUERY), success=True)
    for success in (1.5, -0.1, float("nan")):
        with pytest.raises(ConfigError, match="success"):
            retriever.feedback(documents, success=success)
    other = filled(type(store)(collection_name=name, embedding_function=embedder))
    other.add_texts([QUERY], ids=["elsewhere"])
    with pytest.raises(MemoryNotFoundError, match="elsewhere"):
        retriever.feedback(DreamRetriever(vectorstore=other).invoke(QUERY), success=True)
    assert len(retriever.bank.runs()) == before


def test_nothing_found_is_nothing_to_learn(retriever: DreamRetriever) -> None:
    recorder = Recorder()
    assert retriever.invoke("", {"callbacks": [recorder]}) == []
    for named in ([], recorder.events[-1][2]["run_id"]):
        with pytest.raises(ConfigError, match="no documents"):
            retriever.feedback(named, success=True)


def test_only_the_last_runs_are_remembered(retriever: DreamRetriever) -> None:
    _, first = searched(retriever)
    for _ in range(REMEMBERED_RUNS):
        retriever.invoke("")
    with pytest.raises(ConfigError, match="not among"):
        retriever.feedback(first, success=True)


def test_a_memory_cannot_bring_its_own_score(embedder: Any, name: str) -> None:
    store = filled(Chroma(collection_name=name, embedding_function=embedder))
    lie = {"dream_score": 1e9}
    store.add_texts(["The printer is upstairs."], ids=["poison"], metadatas=[lie])
    retriever = DreamRetriever(vectorstore=store, k=4)
    documents, run_id = searched(retriever)
    poisoned = next(document for document in documents if document.id == "poison")
    assert poisoned.metadata["dream_score"] == 1e9
    # lowered first: a success shares its credit by score, and shows only below 1
    retriever.feedback(run_id, success=False)
    keys = [document.id for document in documents]
    by_run, by_documents = credited(retriever, run_id, keys), credited(retriever, documents, keys)
    assert by_documents == by_run
    assert by_run[keys.index("poison")] < 1.0
    # another process remembers no run: equal shares, whatever the metadata says
    equal = credited(DreamRetriever(vectorstore=store), documents, keys)
    assert len(set(equal)) == 1
    assert equal != by_run


def test_documents_of_an_older_run_have_the_scores_of_that_run(retriever: DreamRetriever) -> None:
    first, run_id = searched(retriever)
    retriever.feedback(run_id, success=False)
    keys = [document.id for document in first]
    expected = credited(retriever, run_id, keys)
    retriever.invoke("Lunch is served from noon", k=8)
    assert credited(retriever, first, keys) == expected


def credited(retriever: DreamRetriever, named: Any, ids: list[Any]) -> list[float]:
    run = retriever.feedback(named, success=True)
    found = consolidation(retriever, ids)
    retriever.bank.undo(run.run_id)
    return found
