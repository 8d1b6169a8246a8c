"""What the tests of graphs share: a scripted chat model, a graph with a dream node, and quick dreams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import PrivateAttr
from typing_extensions import NotRequired, TypedDict

from langchain_dream import DreamNode
from shared_core.scheduling import DreamRequest, SchedulerConfig, TriggerConfig

SECONDS = 120.0
"""How long a test waits for what must happen: never reached unless something is broken."""
NEVER = TriggerConfig(new_pages=None, min_confidence=None, max_seconds=None)
AT_ONCE = SchedulerConfig(debounce=0.0, backoff=0.0)
EACH_TURN = TriggerConfig(new_pages=2, min_confidence=None, max_seconds=None)

Reply = Callable[[Sequence[BaseMessage]], "str | AIMessage"]


class Scripted(BaseChatModel):
    """Answers with what a function makes of the messages, and keeps what it was shown."""

    reply: Any
    _seen: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def seen(self) -> list[list[BaseMessage]]:
        return self._seen

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_kwargs: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_kwargs: Any,
    ) -> ChatResult:
        self._seen.append(messages)
        made = self.reply(messages)
        answer = made if isinstance(made, AIMessage) else AIMessage(made)
        return ChatResult(generations=[ChatGeneration(message=answer)])


class TalkState(TypedDict):
    messages: Annotated[list[BaseMessage], add_messages]
    ticket: NotRequired[dict[str, Any]]


def echo(messages: Sequence[BaseMessage]) -> str:
    return f"You said {len(str(messages[-1].content))} letters."


def talk_graph(
    node: DreamNode, *, reply: Reply = echo, checkpointer: Any = None, schema: Any = TalkState
) -> Any:
    """Build the usual graph: the model answers, then the dream node."""
    model = Scripted(reply=reply)

    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def aanswer(state: Any) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    from langchain_core.runnables import RunnableLambda

    builder = StateGraph(schema)
    builder.add_node("model", RunnableLambda(answer, aanswer))
    builder.add_node("dream", node)
    builder.add_edge(START, "model")
    builder.add_edge("model", "dream")
    builder.add_edge("dream", END)
    return builder.compile(checkpointer=checkpointer)


def thread(name: str = "ada") -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def say(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


class Gate:
    """A dream that waits inside until it is let through."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()
        self.runs = 0

    def __call__(self, request: DreamRequest) -> Mapping[str, Any]:
        self.begun.set()
        assert self.open.wait(SECONDS)
        self.runs += 1
        return {"runs": self.runs}
