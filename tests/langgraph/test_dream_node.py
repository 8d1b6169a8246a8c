"""The node takes a turn up and returns at once, whatever the dream does."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages

from langchain_dream import DreamNode
from shared_core import MemoryBank
from shared_core.bank.conversation import ConversationMemory
from shared_core.errors import ConfigError
from shared_core.scheduling import DreamScheduler
from tests.langgraph.conftest import MakeNode
from tests.langgraph.talk import AT_ONCE, EACH_TURN, NEVER, SECONDS, Gate, say, talk_graph, thread


def texts(bank: MemoryBank) -> list[str]:
    return sorted(memory.text.partition(") ")[2] for memory in bank)


def test_a_turn_is_handed_in_and_the_state_stays_as_it_is(any_bank: MemoryBank) -> None:
    node = DreamNode(any_bank, triggers=NEVER, config=AT_ONCE)
    out = talk_graph(node, schema=MessagesState).invoke(say("The kiln is at 900 degrees."), thread())
    assert list(out) == ["messages"]
    assert node.scheduler.flush(SECONDS)
    assert texts(any_bank) == ["assistant: You said 27 letters.", "user: The kiln is at 900 degrees."]
    assert {memory.metadata["dream_session"] for memory in any_bank} == {"ada"}


def test_the_ticket_is_plain_json(make_node: MakeNode) -> None:
    node = make_node(ticket_key="ticket", triggers=EACH_TURN, dream=lambda request: {"kind": request.kind})
    ticket = talk_graph(node).invoke(say("Hello."), thread())["ticket"]
    assert json.loads(json.dumps(ticket)) == ticket
    assert (ticket["state"], ticket["kind"], ticket["reason"]) == ("queued", "both", "new_pages")
    assert node.scheduler.flush(SECONDS)
    assert [entry["id"] for entry in node.scheduler.status().history] == [ticket["id"]]


def test_the_same_messages_are_stored_once_also_by_another_node(
    bank: MemoryBank, make_node: MakeNode
) -> None:
    messages = [HumanMessage("One.", id="1"), AIMessage("Two.", id="2")]
    for node in (make_node(), make_node()):
        for _ in range(2):
            node.invoke({"messages": messages}, thread())
            messages.append(HumanMessage(f"And {len(messages)}.", id=f"m{len(messages)}"))
    assert node.scheduler.flush(SECONDS)
    assert node.scheduler.status().refused_pages == 0
    # the last one was added after the last turn
    assert sorted(bank.ids()) == ["1", "2", "m2", "m3", "m4"]


def test_messages_without_ids_are_told_apart_by_their_position(bank: MemoryBank, make_node: MakeNode) -> None:
    node = make_node()
    told = [("user", "Yes."), ("assistant", "Yes."), ("user", "Yes.")]
    for end in (2, 3, 3):
        node.invoke({"messages": told[:end]}, thread())
    assert node.scheduler.flush(SECONDS)
    assert sorted(bank.ids()) == ["ada/0", "ada/1", "ada/2"]


def test_exchanges_and_tool_results(bank: MemoryBank, make_node: MakeNode) -> None:
    node = make_node(exchanges=True, names=("Ada", "helper"))
    talk_graph(node).invoke(say("Is it raining?"), thread())
    assert node.scheduler.flush(SECONDS)
    assert texts(bank) == ["Ada: Is it raining?\nhelper: You said 14 letters."]


@dataclass
class Objects:
    said: Annotated[list[Any], add_messages] = field(default_factory=list)


def test_other_states_and_other_names(bank: MemoryBank, make_node: MakeNode) -> None:
    node = make_node(messages_key="said", session=lambda config: f"of {config['configurable']['user']}")
    builder = StateGraph(Objects)
    builder.add_node(node)
    builder.add_edge(START, "DreamNode")
    builder.add_edge("DreamNode", END)
    builder.compile().invoke({"said": [("user", "In an object.")]}, {"configurable": {"user": "eve"}})
    node.invoke([HumanMessage("In a bare list.", id="x")], {"configurable": {"user": "bob"}})
    assert node.scheduler.flush(SECONDS)
    assert sorted(memory.metadata["dream_session"] for memory in bank) == ["of bob", "of eve"]


def test_wiring_faults_are_told(bank: MemoryBank, make_node: MakeNode, open_bank: Any, embedder: Any) -> None:
    with pytest.raises(ConfigError, match="thread_id"):
        make_node().invoke({"messages": []})
    with pytest.raises(ConfigError, match="no list of messages under 'said', but NoneType"):
        make_node(messages_key="said").invoke({"messages": []}, thread())
    with pytest.raises(ConfigError, match="with an embedder"):
        DreamNode(open_bank(name="other-bank"))
    with pytest.raises(ConfigError, match="belong to approval"):
        make_node(cycle=object())
    with DreamScheduler(open_bank(name="third-bank", embedder=embedder)) as scheduler:
        with pytest.raises(ConfigError, match="is that of"):
            DreamNode(bank, scheduler=scheduler)
        with pytest.raises(ConfigError, match="triggers belong to the scheduler"):
            DreamNode(scheduler.bank, scheduler=scheduler, triggers=NEVER)


def test_a_turn_does_not_wait_for_the_dream(bank: MemoryBank, make_node: MakeNode) -> None:
    gate = Gate()
    node = make_node(triggers=EACH_TURN, dream=gate, ticket_key="ticket")
    graph = talk_graph(node, checkpointer=InMemorySaver())
    graph.invoke(say("The dream begins."), thread())
    assert gate.begun.wait(SECONDS)
    tickets = [graph.invoke(say(f"Turn {number}."), thread())["ticket"] for number in range(3)]
    assert [ticket["state"] for ticket in tickets] == ["queued", "coalesced", "coalesced"]
    assert all(ticket["dreaming"] for ticket in tickets)
    assert len({ticket["id"] for ticket in tickets}) == 1
    gate.open.set()
    assert node.scheduler.flush(SECONDS)
    assert gate.runs == 2
    assert len(bank) == 8


def test_pages_that_wait_are_recent(bank: MemoryBank) -> None:
    let_through = threading.Event()

    class Slow(ConversationMemory):
        def add_pages(self, pages: Any, **options: Any) -> list[str]:
            assert let_through.wait(SECONDS)
            return super().add_pages(pages, **options)

    with DreamScheduler(bank, triggers=NEVER, config=AT_ONCE, memory=Slow(bank)) as scheduler:
        node = DreamNode(bank, scheduler=scheduler)
        node.invoke({"messages": [HumanMessage("Just said.", id="now")]}, thread())
        assert [page.text for page in scheduler.recent()] == ["Just said."]
        let_through.set()
        assert scheduler.flush(SECONDS)
        assert scheduler.recent() == []
    assert bank.ids() == ["now"]


def test_a_failing_dream_is_told_everywhere_and_kills_no_turn(
    make_node: MakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_request: Any) -> dict[str, Any]:
        raise ConfigError("the dream is broken")

    events: list[Any] = []
    node = make_node(triggers=EACH_TURN, dream=failing, on_event=events.append, ticket_key="ticket")
    graph = talk_graph(node, checkpointer=InMemorySaver())
    graph.invoke(say("One."), thread())
    assert node.scheduler.flush(SECONDS)
    out = graph.invoke(say("Two."), thread())
    assert out["ticket"]["state"] == "stopped"
    assert "the dream is broken" in out["ticket"]["reason"]
    assert "the dream is broken" in str(node.scheduler.status().last_error)
    assert "gave_up" in [event["kind"] for event in events]
    assert any("given up" in record.message for record in caplog.records)


def test_a_closed_scheduler_kills_no_turn(make_node: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    node = make_node(ticket_key="ticket")
    graph = talk_graph(node)
    node.scheduler.close(SECONDS)
    with caplog.at_level(logging.ERROR):
        out = graph.invoke(say("Too late."), thread())
    assert out["ticket"]["state"] == "failed"
    assert "the scheduler is closed" in out["ticket"]["reason"]
    assert "conversation 'ada' could not be handed in" in caplog.text


# ---- streams and callbacks


def custom(chunks: Any) -> list[dict[str, Any]]:
    return [chunk["dream"] for chunk in chunks]


def test_each_turn_streams_its_ticket_and_what_happened_since_the_last(make_node: MakeNode) -> None:
    def dream(request: Any) -> dict[str, Any]:
        request.emit("repair", {"round": 1, "data": {"operation": "merge", "text": "a secret", "round": 1}})
        return {"sweep": {"lowered": 0, "suspects": ["a secret"]}, "cycle": None}

    seen: list[Any] = []
    node = make_node(triggers=EACH_TURN, dream=dream, on_event=seen.append)
    graph = talk_graph(node, checkpointer=InMemorySaver())
    first = custom(graph.stream(say("One."), thread(), stream_mode="custom"))
    assert [(event["kind"], event["dream"], event["state"]) for event in first] == [
        ("ticket", "both", "queued")
    ]
    assert node.scheduler.flush(SECONDS)
    second = custom(graph.stream(say("Two."), thread(), stream_mode="custom"))
    assert [event["kind"] for event in second][:-1] == ["ingested", "start", "repair", "end"]
    assert second[2]["data"] == {"operation": "merge", "round": 1}
    assert "secret" not in json.dumps(second)
    assert "a secret" in json.dumps(seen)
    assert json.loads(json.dumps(seen)) == seen
    assert node.scheduler.flush(SECONDS)
    # another conversation begins: what happened before is not its business
    assert len(custom(graph.stream(say("Three."), thread("eve"), stream_mode="custom"))) == 1


async def test_asynchronously(bank: MemoryBank, make_node: MakeNode) -> None:
    node = make_node(triggers=EACH_TURN, dream=lambda _request: {}, ticket_key="ticket")
    graph = talk_graph(node, checkpointer=InMemorySaver())
    outs = await asyncio.gather(*(graph.ainvoke(say(f"I am {name}."), thread(name)) for name in "abcd"))
    assert {out["ticket"]["state"] for out in outs} <= {"queued", "coalesced"}
    assert await node.scheduler.aflush(SECONDS)
    assert len(bank) == 8
    chunks = [chunk async for chunk in graph.astream(say("Again."), thread("a"), stream_mode="custom")]
    assert {"start", "end"} <= {event["kind"] for event in custom(chunks)}


def test_events_stop_when_the_node_is_gone(bank: MemoryBank, make_node: MakeNode) -> None:
    events: list[Any] = []
    node = make_node(on_event=events.append)
    scheduler = node.scheduler
    del node
    scheduler.request("sweep")
    assert scheduler.flush(SECONDS)
    assert events == []


def test_naming_the_node_loads_langgraph_and_importing_the_package_does_not() -> None:
    code = (
        "import sys, langchain_dream; print('langgraph' in sys.modules, 'langchain' in sys.modules);"
        "langchain_dream.DreamNode; langchain_dream.DreamMiddleware; print('langchain' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]
