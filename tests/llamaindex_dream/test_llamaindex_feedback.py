"""Feedback from a response's source nodes: whose scores count, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.response.schema import PydanticResponse, Response
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.llms.mock import MockLLM
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import ToolOutput

from llamaindex_dream import DreamChromaRetriever, DreamPostprocessor, record_feedback
from shared_core import MemoryBank
from shared_core.errors import ConfigError
from tests.llamaindex_dream.conftest import QUESTION, ids


def credited(bank: MemoryBank, run: Any, keys: list[str]) -> list[float]:
    found = [memory.state.consolidation for memory in bank.get(keys)]
    bank.undo(run.run_id)
    return found


class Answer(BaseModel):
    text: str


def test_every_way_to_hand_in_the_same_nodes(embedding_bank: MemoryBank) -> None:
    retriever = DreamChromaRetriever(embedding_bank, similarity_top_k=3)
    nodes = retriever.retrieve(QUESTION)
    keys = ids(nodes)
    output = ToolOutput(tool_name="notes", content="x", raw_input={}, raw_output=Response("x", nodes))
    other = ToolOutput(tool_name="clock", content="noon", raw_input={}, raw_output=12)
    ways = [
        nodes,
        tuple(nodes),
        Response("x", source_nodes=nodes),
        PydanticResponse(Answer(text="x"), source_nodes=nodes),
        AgentChatResponse("x", source_nodes=nodes),
        AgentChatResponse("x", sources=[output]),
        output,
        [output, output],
        AgentChatResponse("x", sources=[other, output]),
        [*nodes, *nodes],
    ]
    results = [credited(embedding_bank, retriever.feedback(way, success=False), keys) for way in ways]
    assert all(result == results[0] for result in results)
    assert max(results[0]) < 1.0
    single = credited(embedding_bank, retriever.feedback(nodes[0], success=False), keys)
    assert single[1:] == [1.0, 1.0]


async def test_the_better_a_memory_matched_the_more_of_the_credit(embedding_bank: MemoryBank) -> None:
    retriever = DreamChromaRetriever(embedding_bank, similarity_top_k=3)
    nodes = await retriever.aretrieve(QUESTION)
    retriever.feedback(nodes, success=False)
    first, second, third = credited(
        embedding_bank, await retriever.afeedback(nodes, success=True), ids(nodes)
    )
    assert first > second > third


def test_our_scores_count_and_not_what_a_later_step_wrote(index: Any, embedding_bank: MemoryBank) -> None:
    step = DreamPostprocessor(embedding_bank, top_n=3)
    engine = index.as_query_engine(llm=MockLLM(), similarity_top_k=5, node_postprocessors=[step])
    response = engine.query(QUESTION)
    keys = ids(response.source_nodes)
    step.feedback(response, success=False)
    expected = credited(embedding_bank, step.feedback(response, success=True), keys)
    for row, node in enumerate(response.source_nodes):
        node.score = 1000.0 * row
    assert credited(embedding_bank, step.feedback(response, success=True), keys) == expected
    equal = credited(embedding_bank, record_feedback(embedding_bank, response, success=True), keys)
    assert len(set(equal)) == 1, "another process remembers no score: equal shares"
    assert equal != expected


def test_nodes_of_other_indexes_are_passed_over(embedding_bank: MemoryBank) -> None:
    retriever = DreamChromaRetriever(embedding_bank, similarity_top_k=2)
    foreign = NodeWithScore(node=TextNode(text="x", id_="elsewhere"), score=5.0)
    run = retriever.feedback([foreign, *retriever.retrieve(QUESTION)], success=True)
    assert run.report["memories"] == 2
    with pytest.raises(ConfigError, match="no source nodes of this bank"):
        retriever.feedback([foreign], success=True)


def test_what_cannot_be_credited(embedding_bank: MemoryBank) -> None:
    retriever = DreamChromaRetriever(embedding_bank)
    nodes = retriever.retrieve(QUESTION)
    before = len(embedding_bank.runs())
    for nothing in (
        [],
        Response("x"),
        ToolOutput(tool_name="t", content="x", raw_input={}, raw_output="text"),
    ):
        with pytest.raises(ConfigError, match="no source nodes of this bank"):
            retriever.feedback(nothing, success=True)
    for other in ("n0", ["n0"], 3, object()):
        with pytest.raises(ConfigError, match="give a response with source nodes"):
            retriever.feedback(other, success=True)
    for success in (1.5, -0.1, float("nan")):
        with pytest.raises(ConfigError, match="success"):
            retriever.feedback(nodes, success=success)
    assert len(embedding_bank.runs()) == before


def test_a_tenant_credits_its_own_only(embedding_bank: MemoryBank, index: Any) -> None:
    everything = DreamChromaRetriever(embedding_bank, similarity_top_k=5).retrieve(QUESTION)
    ours = DreamChromaRetriever.from_index(index, where={"floor": 1})
    assert ours.feedback(everything, success=False).report["memories"] == 2
    assert embedding_bank.get(["n0"])[0].state.consolidation == 1.0
    ours.bank.close()
