"""What LlamaIndex users put around a retriever: fusion, routing, tools, agents, chat, streaming."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.indices.query.query_transform.base import HyDEQueryTransform
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.mock import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine, RouterQueryEngine, TransformQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.selectors import EmbeddingSingleSelector
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from llamaindex_dream import CoreEmbedding, DreamChromaRetriever, DreamPostprocessor
from shared_core import MemoryBank, SentenceTransformerEmbedder
from tests.llamaindex_dream.conftest import QUESTION, TEXTS, ids


@pytest.fixture
def forgetful(embedding_bank: MemoryBank) -> MemoryBank:
    """The bank, in which the best answer to the question is forgotten."""
    embedding_bank.set_weights({"n0": 0.0})
    return embedding_bank


@pytest.mark.parametrize("mode", list(FUSION_MODES))
@pytest.mark.parametrize("use_async", [False, True])
def test_query_fusion(index: Any, forgetful: MemoryBank, mode: FUSION_MODES, use_async: bool) -> None:
    fused = QueryFusionRetriever(
        [DreamChromaRetriever(forgetful), index.as_retriever(similarity_top_k=5)],
        llm=MockLLM(),
        num_queries=1,
        similarity_top_k=5,
        mode=mode,
        use_async=use_async,
    )
    nodes = fused.retrieve(QUESTION)
    assert "n0" in ids(nodes), "the plain retriever still finds it"
    for scoring in ("auto", "given"):
        found = DreamPostprocessor(forgetful, scoring=scoring).postprocess_nodes(nodes, query_str=QUESTION)
        assert set(ids(found)) == {"n1", "n2", "n3", "n4"}
    only_ours = QueryFusionRetriever(
        [DreamChromaRetriever(forgetful)], llm=MockLLM(), num_queries=1, mode=mode, similarity_top_k=5
    )
    assert set(ids(only_ours.retrieve(QUESTION))) == {"n1", "n2", "n3", "n4"}


def test_the_order_of_a_fusion_is_kept_where_it_is_given(index: Any, embedding_bank: MemoryBank) -> None:
    fused = QueryFusionRetriever(
        [DreamChromaRetriever(embedding_bank, search_type="hybrid"), index.as_retriever(similarity_top_k=5)],
        llm=MockLLM(),
        num_queries=1,
        similarity_top_k=5,
        mode=FUSION_MODES.RECIPROCAL_RANK,
    )
    nodes = fused.retrieve("the blue key and the archive at noon")
    given = DreamPostprocessor(embedding_bank, scoring="given").postprocess_nodes(nodes)
    assert ids(given) == ids(nodes)


async def test_a_router(index: Any, forgetful: MemoryBank, embedder: SentenceTransformerEmbedder) -> None:
    ours = RetrieverQueryEngine.from_args(DreamChromaRetriever(forgetful), llm=MockLLM())
    plain = index.as_query_engine(llm=MockLLM())
    router = RouterQueryEngine(
        selector=EmbeddingSingleSelector.from_defaults(embed_model=CoreEmbedding(embedder)),
        query_engine_tools=[
            QueryEngineTool.from_defaults(ours, name="office", description="archive, opening hours, keys"),
            QueryEngineTool.from_defaults(plain, name="astronomy", description="planets and galaxies"),
        ],
        llm=MockLLM(),
    )
    for response in (router.query(QUESTION), await router.aquery(QUESTION)):
        assert ids(response.source_nodes)[0] == "n1"
        assert "n0" not in ids(response.source_nodes)


async def test_tools(index: Any, forgetful: MemoryBank) -> None:
    step = DreamPostprocessor(forgetful)
    engine = index.as_query_engine(llm=MockLLM(), similarity_top_k=5, node_postprocessors=[step])
    for tool in (
        QueryEngineTool.from_defaults(engine, name="notes", description="notes"),
        RetrieverTool.from_defaults(DreamChromaRetriever(forgetful), name="notes", description="notes"),
        RetrieverTool.from_defaults(
            index.as_retriever(similarity_top_k=5), node_postprocessors=[step], name="n", description="n"
        ),
    ):
        for output in (tool.call(QUESTION), await tool.acall(QUESTION)):
            assert TEXTS[1] in output.content
            assert TEXTS[0] not in output.content


class Scripted(CustomLLM):
    """Asks for the tool, then answers: what an agent's model does."""

    _turns: Iterator[str] = PrivateAttr()

    def __init__(self, *turns: str) -> None:
        super().__init__()
        self._turns = iter(turns)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=next(self._turns))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield CompletionResponse(text=next(self._turns))

    async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=ChatMessage(role="assistant", content=next(self._turns)))

    async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
        async def turns() -> Any:
            text = next(self._turns)
            yield ChatResponse(message=ChatMessage(role="assistant", content=text), delta=text)

        return turns()


async def test_an_agent_uses_it_and_its_output_is_feedback(forgetful: MemoryBank) -> None:
    retriever = DreamChromaRetriever(forgetful, similarity_top_k=2)
    tool = RetrieverTool.from_defaults(retriever, name="notes", description="notes of the office")
    llm = Scripted(
        'Thought: I need the notes.\nAction: notes\nAction Input: {"input": "When is the archive open?"}',
        "Thought: I can answer without using any more tools.\nAnswer: Nobody says.",
    )
    output = await ReActAgent(tools=[tool], llm=llm).run(QUESTION)
    assert str(output) == "Nobody says."
    (called,) = output.tool_calls
    found = ids(called.tool_output.raw_output)
    assert found[0] == "n1"
    run = retriever.feedback(output, success=False)
    assert run.report["memories"] == 2
    assert forgetful.get(["n1"])[0].state.consolidation < 1.0


async def test_chat_engines(index: Any, forgetful: MemoryBank) -> None:
    engine = index.as_chat_engine(
        chat_mode="context",
        llm=MockLLM(),
        similarity_top_k=5,
        node_postprocessors=[DreamPostprocessor(forgetful, top_n=2)],
    )
    for response in (engine.chat(QUESTION), await engine.achat(QUESTION)):
        assert ids(response.source_nodes)[0] == "n1"
        assert len(response.source_nodes) == 2


async def test_streaming(index: Any, forgetful: MemoryBank) -> None:
    step = DreamPostprocessor(forgetful, top_n=2)
    engine = index.as_query_engine(
        llm=MockLLM(), streaming=True, similarity_top_k=5, node_postprocessors=[step]
    )
    response = engine.query(QUESTION)
    assert "".join(response.response_gen)
    assert ids(response.source_nodes)[0] == "n1"
    step.feedback(response, success=True)
    streamed = await engine.aquery(QUESTION)
    assert "".join([part async for part in streamed.async_response_gen()])
    assert ids(streamed.source_nodes)[0] == "n1"
    run = await step.afeedback(streamed, success=0.5)
    assert run.report == {"memories": 2, "success": 0.5}


def test_hyde(index: Any, forgetful: MemoryBank) -> None:
    llm = Scripted("The canteen serves soup on Mondays.", "answer")
    engine = index.as_query_engine(
        llm=llm, similarity_top_k=5, node_postprocessors=[DreamPostprocessor(forgetful)]
    )
    transformed = TransformQueryEngine(engine, HyDEQueryTransform(llm=llm, include_original=False))
    assert ids(transformed.query("When is lunch?").source_nodes)[0] == "n3"
