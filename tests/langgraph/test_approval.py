"""Repairs that a person approves: the graph pauses with proposals, and only what was accepted is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from langchain_dream import DreamNode
from shared_core import MemoryBank
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.errors import ConfigError
from shared_core.scheduling import DreamScheduler, SchedulerConfig
from tests.langgraph.talk import NEVER, SECONDS, TalkState, say, talk_graph, thread

CYCLE_ONLY = SchedulerConfig(kind="cycle", debounce=0.0, backoff=0.0)
SAID = (
    "Ada Lindqvist lives in Lisbon.",
    "The kiln is fired on Mondays. It takes a day to cool.",
    "Ada Lindqvist drinks jasmine tea. She dislikes coffee.",
    "The glaze is copper red.",
    "Noor plays the double bass.",
    "Thanks!",
)


@pytest.fixture
def told(bank: MemoryBank) -> MemoryBank:
    pages = [Page(text=text, session=f"s{at}", speaker="user", id=f"p{at}") for at, text in enumerate(SAID)]
    ConversationMemory(bank).add_pages(pages)
    return bank


def reviewing(bank: MemoryBank, **options: Any) -> DreamNode:
    cycle = DreamCycle(bank, config=DreamConfig(rounds=1, partitions=1, probes=3, repairs=1))
    return DreamNode(
        bank, approval=True, cycle=cycle, triggers=NEVER, config=CYCLE_ONLY, ticket_key="ticket", **options
    )


def propose(node: DreamNode) -> None:
    node.scheduler.request("cycle")
    assert node.scheduler.flush(SECONDS)


def question(out: dict[str, Any]) -> dict[str, Any]:
    (interrupt,) = out["__interrupt__"]
    return dict(interrupt.value)


def repaired(bank: MemoryBank) -> list[str]:
    return sorted(run.report["operation"] for run in bank.runs() if run.kind == "repair")


def test_nothing_is_repaired_before_and_only_what_was_accepted_after(told: MemoryBank) -> None:
    events: list[Any] = []
    node = reviewing(told, on_event=events.append)
    graph = talk_graph(node, checkpointer=InMemorySaver())
    assert "__interrupt__" not in graph.invoke(say("Hello."), thread())
    propose(node)
    assert repaired(told) == []
    asked = question(graph.invoke(say("Anything new?"), thread()))
    assert json.loads(json.dumps(asked)) == asked
    assert asked["kind"] == "dream_repairs"
    operations = {repair["operation"]: repair["id"] for repair in asked["repairs"]}
    assert {"extract", "synthesize"} <= set(operations)
    out = graph.invoke(Command(resume=[operations["extract"]]), thread())
    assert (out["ticket"]["kind"], out["ticket"]["reason"]) == ("cycle", "approved")
    assert node.scheduler.flush(SECONDS)
    assert repaired(told) == ["extract"]
    report = [event for event in events if event["kind"] == "end"][-1]["report"]["cycle"]
    assert [repair["id"] for repair in report["repairs"]] == [operations["extract"]]
    # the whole cycle is one undo
    told.undo(report["run_id"])
    assert told.state.retrieval_keys() == []
    # nothing is asked twice, and what was turned down is not proposed again
    assert "__interrupt__" not in graph.invoke(say("And now?"), thread())
    refused = set(operations.values()) - {operations["extract"]}
    propose(node)
    again = graph.invoke(say("And now?"), thread())
    shown = {repair["id"] for repair in question(again)["repairs"]} if "__interrupt__" in again else set()
    assert not shown & refused


@pytest.mark.parametrize("answer", [False, []])
def test_none_may_be_accepted(told: MemoryBank, answer: Any) -> None:
    node = reviewing(told)
    graph = talk_graph(node, checkpointer=InMemorySaver())
    propose(node)
    assert question(graph.invoke(say("Hello."), thread()))["repairs"]
    out = graph.invoke(Command(resume=answer), thread())
    assert out["ticket"]["reason"] != "approved"
    assert node.scheduler.flush(SECONDS)
    assert repaired(told) == []
    # the turn that paused is handed in all the same
    assert any("Hello." in memory.text for memory in told)


async def test_a_senseless_answer_is_asked_again_asynchronously(told: MemoryBank) -> None:
    node = reviewing(told)
    graph = talk_graph(node, checkpointer=InMemorySaver())
    propose(node)
    first = question(await graph.ainvoke(say("Hello."), thread()))
    for answer, complaint in (("all", "the answer is a str"), (["forged"], "were not offered: 1 id")):
        asked = question(await graph.ainvoke(Command(resume=answer), thread()))
        assert complaint in asked["error"]
        assert asked["repairs"] == first["repairs"]
    await graph.ainvoke(Command(resume=True), thread())
    assert await node.scheduler.aflush(SECONDS)
    assert repaired(told) == sorted(repair["operation"] for repair in first["repairs"])


def test_a_rewritten_memory_is_not_repaired_by_what_was_proposed_before(told: MemoryBank) -> None:
    node = reviewing(told)
    graph = talk_graph(node, checkpointer=InMemorySaver())
    propose(node)
    graph.invoke(say("Hello."), thread())
    told.update("p2", "Ada Lindqvist drinks coffee.")
    graph.invoke(Command(resume=True), thread())
    assert node.scheduler.flush(SECONDS)
    assert all(key.memory_id != "p2" for key in told.state.retrieval_keys())
    assert "rewritten" in str(node.scheduler.status().history[0]["report"]["cycle"]["left"])


def dream_only(node: DreamNode, checkpointer: Any) -> Any:
    builder = StateGraph(TalkState)
    builder.add_node("dream", node)
    builder.add_edge(START, "dream")
    builder.add_edge("dream", END)
    return builder.compile(checkpointer=checkpointer)


def test_a_decision_outlives_a_restart(told: MemoryBank, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoints.sqlite3")
    # a message that the bank holds already: only in an unchanged bank the new process finds the same repairs
    known = {"messages": [HumanMessage(SAID[5], id="p5")]}
    with SqliteSaver.from_conn_string(path) as saver:
        node = reviewing(told)
        propose(node)
        asked = question(dream_only(node, saver).invoke(known, thread()))
        node.scheduler.close(SECONDS)
    with SqliteSaver.from_conn_string(path) as saver:
        node = reviewing(told)
        graph = dream_only(node, saver)
        # the proposals are in the checkpoint, though this scheduler has made none
        assert graph.get_state(thread()).tasks[0].interrupts[0].value == asked
        accepted = [repair["id"] for repair in asked["repairs"]][:2]
        out = graph.invoke(Command(resume=accepted), thread())
        assert out["ticket"]["reason"] == "approved"
        assert node.scheduler.flush(SECONDS)
    made = node.scheduler.status().history[0]["report"]["cycle"]["repairs"]
    assert [repair["id"] for repair in made] == accepted
    assert len(repaired(told)) == 2


def test_a_graph_may_be_built_twice_and_other_options_are_refused(told: MemoryBank) -> None:
    first = DreamNode(told, approval=True, triggers=NEVER)
    assert DreamNode(told, approval=True, triggers=NEVER).scheduler is first.scheduler
    with pytest.raises(ConfigError, match="has a scheduler already, with"):
        reviewing(told)
    with pytest.raises(ConfigError, match="a scheduler and a dream of its own"):
        DreamNode(told, approval=True, scheduler=DreamScheduler.shared(told))
