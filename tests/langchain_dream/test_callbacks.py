"""Callbacks, events and tracing of DreamRetriever are those of any LangChain retriever."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler

from langchain_dream import DreamRetriever
from shared_core.errors import ConfigError
from tests.langchain_dream.conftest import QUERY, AsyncRecorder, Recorder


def check(events: list[tuple[str, Any, dict[str, Any]]], documents: Any) -> None:
    (start, query, started), (end, shown, ended) = events
    assert (start, end, query) == ("start", "end", QUERY)
    assert started["run_id"] == ended["run_id"]
    assert shown == documents
    assert "mine" in started["tags"]
    assert started["metadata"]["user"] == "ada"
    assert started["metadata"]["ls_vector_store_provider"] == "Chroma"
    assert started["metadata"]["ls_embedding_provider"] == "SentenceTransformerEmbedder"
    assert started["metadata"]["ls_retriever_name"] == "dream"
    assert started["name"] == "named"


def config(handler: Any) -> Any:
    return {"callbacks": [handler], "tags": ["mine"], "metadata": {"user": "ada"}, "run_name": "named"}


def test_sync(retriever: DreamRetriever) -> None:
    recorder = Recorder()
    documents = retriever.invoke(QUERY, config(recorder))
    check(recorder.events, documents)


@pytest.mark.parametrize("kind", [Recorder, AsyncRecorder])
async def test_async(retriever: DreamRetriever, kind: Any) -> None:
    recorder = kind()
    documents = await retriever.ainvoke(QUERY, config(recorder))
    check(recorder.events, documents)


def test_a_batch_has_one_run_each(retriever: DreamRetriever) -> None:
    recorder = Recorder()
    retriever.batch([QUERY, "coffee", ""], {"callbacks": [recorder]})
    ends = [event for event in recorder.events if event[0] == "end"]
    assert len({event[2]["run_id"] for event in ends}) == 3
    assert sorted(len(event[1]) for event in ends) == [0, 3, 3]


async def test_errors_are_told(retriever: DreamRetriever) -> None:
    for recorder in (Recorder(), AsyncRecorder()):
        with pytest.raises(ConfigError):
            await retriever.ainvoke(QUERY, {"callbacks": [recorder]}, nonsense=1)
        assert [event[0] for event in recorder.events] == ["start", "error"]
        assert isinstance(recorder.events[1][1], ConfigError)
    recorder = Recorder()
    with pytest.raises(ConfigError):
        retriever.invoke(QUERY, {"callbacks": [recorder]}, nonsense=1)
    assert [event[0] for event in recorder.events] == ["start", "error"]


def test_own_tags_metadata_and_a_given_run_id(store: Any) -> None:
    retriever = DreamRetriever(vectorstore=store, tags=["own"], metadata={"m": 1}, k=1)
    recorder, run_id = Recorder(), uuid.uuid4()
    retriever.invoke(QUERY, {"callbacks": [recorder]}, run_id=run_id)
    _, _, started = recorder.events[0]
    assert started["run_id"] == run_id
    assert "own" in started["tags"]
    assert started["metadata"]["m"] == 1


async def test_astream_events(retriever: DreamRetriever) -> None:
    events = [event async for event in retriever.astream_events(QUERY, version="v2")]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "on_retriever_start"
    assert "on_retriever_end" in kinds
    ended = events[kinds.index("on_retriever_end")]
    assert len(ended["data"]["output"]) == 3
    assert "dream_score" in ended["data"]["output"][0].metadata


def test_a_tracer_sees_the_run(retriever: DreamRetriever) -> None:
    tracer = RunCollectorCallbackHandler()
    documents = retriever.invoke(QUERY, {"callbacks": [tracer]})
    (run,) = tracer.traced_runs
    assert run.run_type == "retriever"
    assert [doc.id for doc in run.outputs["documents"]] == [doc.id for doc in documents]  # type: ignore[index]


def test_a_handler_that_fails_does_not_fail_the_search(retriever: DreamRetriever) -> None:
    class Broken(BaseCallbackHandler):
        def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
            raise RuntimeError("broken")

    assert len(retriever.invoke(QUERY, {"callbacks": [Broken()]})) == 3
