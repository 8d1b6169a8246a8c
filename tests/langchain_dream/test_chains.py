"""DreamRetriever inside LCEL chains, EnsembleRetriever, agents and LangGraph graphs."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MultiQueryRetriever,
)
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langgraph.graph import END, START, StateGraph

from langchain_dream import DreamRetriever
from tests.langchain_dream.conftest import QUERY, TEXTS, Recorder, ids


class ScriptedModel(GenericFakeChatModel):
    """Says what it was given to say, and accepts tools."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[Any, Any]:
        return self


def scripted(*messages: AIMessage | str) -> ScriptedModel:
    return ScriptedModel(messages=iter(messages))


def joined(documents: list[Document]) -> str:
    return "\n".join(document.page_content for document in documents)


async def test_rag_chain(retriever: DreamRetriever) -> None:
    prompts: list[str] = []

    def note(prompt: Any) -> Any:
        prompts.append(prompt.to_string())
        return prompt

    chain = (
        {"context": retriever | joined, "question": RunnablePassthrough()}
        | ChatPromptTemplate.from_template("{context}\n\n{question}")
        | RunnableLambda(note)
        | scripted("third floor", "third floor")
        | StrOutputParser()
    )
    assert chain.invoke(QUERY) == "third floor"
    retriever.bank.set_weights({"printer": 0.0})
    assert await chain.ainvoke(QUERY) == "third floor"
    assert TEXTS["printer"] in prompts[0]
    assert TEXTS["printer"] not in prompts[1]
    assert TEXTS["paper"] in prompts[1]


async def test_a_chain_reports_the_retrieval(retriever: DreamRetriever) -> None:
    recorder = Recorder()
    chain = retriever | joined
    await chain.ainvoke(QUERY, {"callbacks": [recorder]})
    start, end = recorder.events
    assert start[2]["parent_run_id"] is not None
    retriever.feedback(end[2]["run_id"], success=True)


async def test_ensemble_retriever(retriever: DreamRetriever, store: Any) -> None:
    plain = store.as_retriever(search_kwargs={"k": 3})
    ensemble = EnsembleRetriever(retrievers=[retriever, plain], weights=[0.7, 0.3], id_key="topic")
    found = ensemble.invoke(QUERY)
    assert ids(found) == ids(await ensemble.ainvoke(QUERY))
    assert set(ids(found)) == set(ids(plain.invoke(QUERY)))
    retriever.bank.set_weights({"printer": 0.0})
    alone = EnsembleRetriever(retrievers=[retriever], weights=[1.0])
    assert "printer" not in ids(alone.invoke(QUERY))


def test_classic_wrappers(retriever: DreamRetriever) -> None:
    several = MultiQueryRetriever.from_llm(retriever, scripted("printer\ncoffee"))
    assert {"printer", "paper", "coffee"} <= set(ids(several.invoke(QUERY)))

    class First(BaseDocumentCompressor):
        def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
            return documents[:1]

    compressed = ContextualCompressionRetriever(base_retriever=retriever, base_compressor=First())
    assert ids(compressed.invoke(QUERY)) == ids(retriever.invoke(QUERY))[:1]


def call(query: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "memory", "args": {"query": query}, "id": "call-1"}])


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_agent_with_a_retriever_tool(retriever: DreamRetriever, mode: str) -> None:
    retriever.bank.set_weights({"printer": 0.0})
    tool = create_retriever_tool(
        retriever, "memory", "What the office knows.", response_format="content_and_artifact"
    )
    agent = create_agent(scripted(call(QUERY), "In the cupboard."), [tool])
    question: Any = {"messages": [("user", QUERY)]}
    recorder = Recorder()
    config: Any = {"callbacks": [recorder]}
    result = agent.invoke(question, config) if mode == "sync" else await agent.ainvoke(question, config)
    (answer,) = [message for message in result["messages"] if isinstance(message, ToolMessage)]
    assert TEXTS["paper"] in answer.content
    assert TEXTS["printer"] not in answer.content
    assert ids(answer.artifact) == ids(retriever.invoke(QUERY))
    assert result["messages"][-1].content == "In the cupboard."
    run_id = next(event[2]["run_id"] for event in recorder.events if event[0] == "end")
    assert retriever.feedback(run_id, success=True).report["memories"] == 3


class State(TypedDict, total=False):
    question: str
    documents: list[Document]
    answer: str


async def test_langgraph_node(retriever: DreamRetriever) -> None:
    def retrieve(state: State) -> State:
        return {"documents": retriever.invoke(state["question"])}

    async def aretrieve(state: State) -> State:
        return {"documents": await retriever.ainvoke(state["question"])}

    def answer(state: State) -> State:
        return {"answer": joined(state["documents"])}

    def graph(node: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("retrieve", node)
        builder.add_node("answer", answer)
        builder.add_edge(START, "retrieve")
        builder.add_edge("retrieve", "answer")
        builder.add_edge("answer", END)
        return builder.compile()

    expected = joined(retriever.invoke(QUERY))
    assert graph(retrieve).invoke({"question": QUERY})["answer"] == expected
    assert (await graph(aretrieve).ainvoke({"question": QUERY}))["answer"] == expected
    recorder = Recorder()
    graph(retrieve).invoke({"question": QUERY}, {"callbacks": [recorder]})
    assert [event[0] for event in recorder.events] == ["start", "end"]
