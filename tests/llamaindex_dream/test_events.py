"""Spans, events and callbacks of the postprocessor and the retriever are those of LlamaIndex's own."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload, LlamaDebugHandler
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms.mock import MockLLM

from llamaindex_dream import DreamChromaRetriever, DreamPostprocessor
from shared_core import MemoryBank
from shared_core.errors import ConfigError
from tests.llamaindex_dream.conftest import QUESTION, ids


class Events(BaseEventHandler):
    """Keeps what it is told."""

    seen: list[Any] = []  # noqa: RUF012 - pydantic copies it

    def handle(self, event: Any, **_kwargs: Any) -> None:
        self.seen.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]


@pytest.fixture
def told() -> Any:
    root = get_dispatcher()
    events, spans = Events(), SimpleSpanHandler()
    root.add_event_handler(events)
    root.add_span_handler(spans)
    yield events, spans
    root.event_handlers.remove(events)
    root.span_handlers.remove(spans)


def names(spans: SimpleSpanHandler) -> list[str]:
    return [span.id_.rpartition("-")[0].split("-")[0] for span in spans.completed_spans]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_rerank_events_and_a_span(
    index: Any, embedding_bank: MemoryBank, told: Any, asynchronous: bool
) -> None:
    events, spans = told
    embedding_bank.set_weights({"n0": 0.0})
    step = DreamPostprocessor(embedding_bank, top_n=2)
    nodes = index.as_retriever(similarity_top_k=5).retrieve(QUESTION)
    if asynchronous:
        found = await step.apostprocess_nodes(nodes, query_str=QUESTION)
    else:
        found = step.postprocess_nodes(nodes, query_str=QUESTION)
    (start,), (end,) = events.of(ReRankStartEvent), events.of(ReRankEndEvent)
    assert (start.query.query_str, start.top_n, start.model_name) == (QUESTION, 2, "DreamPostprocessor")
    assert ids(start.nodes) == ids(nodes)
    assert ids(end.nodes) == ids(found)
    method = "_apostprocess_nodes" if asynchronous else "_postprocess_nodes"
    assert f"DreamPostprocessor.{method}" in names(spans)
    assert start.span_id is not None
    assert start.span_id.startswith(f"DreamPostprocessor.{method}")


async def test_the_span_of_an_engine_contains_ours(index: Any, embedding_bank: MemoryBank, told: Any) -> None:
    _, spans = told
    step = DreamPostprocessor(embedding_bank)
    await index.as_query_engine(llm=MockLLM(), node_postprocessors=[step]).aquery(QUESTION)
    by_id = {span.id_: span for span in spans.completed_spans}
    (ours,) = (span for name, span in by_id.items() if name.startswith("DreamPostprocessor"))
    parents = []
    while ours.parent_id in by_id:
        ours = by_id[ours.parent_id]
        parents.append(ours.id_)
    assert any(name.startswith("RetrieverQueryEngine") for name in parents)


async def test_callbacks_of_both(index: Any, embedding_bank: MemoryBank) -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    manager = CallbackManager([debug])
    step = DreamPostprocessor(embedding_bank, top_n=1, callback_manager=manager)
    retriever = DreamChromaRetriever(embedding_bank, callback_manager=manager)
    found = await step.apostprocess_nodes(await retriever.aretrieve(QUESTION), query_str=QUESTION)
    ((started, ended),) = debug.get_event_pairs(CBEventType.RERANKING)
    assert started.payload is not None
    assert ended.payload is not None
    assert started.payload[EventPayload.TOP_K] == 1
    assert started.payload[EventPayload.QUERY_STR] == QUESTION
    assert ended.payload[EventPayload.NODES] == found
    ((_, retrieved),) = debug.get_event_pairs(CBEventType.RETRIEVE)
    assert retrieved.payload is not None
    assert ids(retrieved.payload[EventPayload.NODES])[0] == "n0"


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_retrieval_events_and_spans(embedding_bank: MemoryBank, told: Any, asynchronous: bool) -> None:
    events, spans = told
    retriever = DreamChromaRetriever(embedding_bank, similarity_top_k=3)
    found = await retriever.aretrieve(QUESTION) if asynchronous else retriever.retrieve(QUESTION)
    (start,), (end,) = events.of(RetrievalStartEvent), events.of(RetrievalEndEvent)
    assert start.str_or_query_bundle == QUESTION
    assert ids(end.nodes) == ids(found)
    method = "_aretrieve" if asynchronous else "_retrieve"
    assert f"DreamChromaRetriever.{method}" in names(spans)


async def test_an_error_ends_the_span(embedding_bank: MemoryBank, weighted: MemoryBank, told: Any) -> None:
    events, spans = told
    step = DreamPostprocessor(weighted, scoring="cosine")
    with pytest.raises(ConfigError):
        await step.apostprocess_nodes([], query_str=QUESTION)
    assert not events.of(ReRankEndEvent)
    assert any(span.id_.startswith("DreamPostprocessor") for span in spans.dropped_spans)


async def test_the_async_paths_leave_the_event_loop(index: Any, embedding_bank: MemoryBank) -> None:
    nodes = index.as_retriever(similarity_top_k=5).retrieve(QUESTION)
    loop_thread = threading.get_ident()
    used: set[int] = set()
    read, searched = embedding_bank.content.get_embeddings, embedding_bank.content.get

    def watched(original: Any) -> Any:
        def called(*args: Any) -> Any:
            used.add(threading.get_ident())
            return original(*args)

        return called

    embedding_bank.content.get_embeddings = watched(read)  # type: ignore[method-assign]
    embedding_bank.content.get = watched(searched)  # type: ignore[method-assign]
    await DreamPostprocessor(embedding_bank).apostprocess_nodes(nodes, query_str=QUESTION)
    await DreamChromaRetriever(embedding_bank).aretrieve(QUESTION)
    assert used
    assert loop_thread not in used
