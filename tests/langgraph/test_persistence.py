"""Conversations in a SQLite checkpointer: restarts, replays, and strict deserialisation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langchain_dream import DreamNode
from shared_core import MemoryBank
from shared_core.scheduling import DreamScheduler
from tests.langgraph.conftest import MakeNode
from tests.langgraph.talk import AT_ONCE, EACH_TURN, NEVER, SECONDS, say, talk_graph, thread


def test_a_conversation_goes_on_after_a_restart(any_bank: MemoryBank, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoints.sqlite3")
    for number in range(3):
        with SqliteSaver.from_conn_string(path) as saver:
            node = DreamNode(any_bank, triggers=NEVER, config=AT_ONCE)
            out = talk_graph(node, checkpointer=saver).invoke(say(f"Turn {number}."), thread())
            assert node.scheduler.close(SECONDS)
            assert node.scheduler.status().refused_pages == 0
    assert len(out["messages"]) == len(any_bank) == 6


def test_replaying_a_checkpoint_stores_nothing_twice(
    bank: MemoryBank, make_node: MakeNode, tmp_path: Path
) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite3")) as saver:
        node = make_node()
        graph = talk_graph(node, checkpointer=saver)
        graph.invoke(say("Once."), thread())
        before_dream = next(state for state in graph.get_state_history(thread()) if state.next == ("dream",))
        graph.invoke(None, before_dream.config)
        assert node.scheduler.flush(SECONDS)
    assert len(bank) == 2


def test_triggers_go_on_counting_after_a_restart(bank: MemoryBank) -> None:
    counted = []
    for number in range(2):
        node = DreamNode(bank, triggers=NEVER, config=AT_ONCE)
        talk_graph(node).invoke(say(f"Turn {number}."), thread(f"t{number}"))
        assert node.scheduler.close(SECONDS)
        counted.append(node.scheduler.status().new_pages)
    assert counted == [2, 4]


async def test_an_asynchronous_checkpointer(bank: MemoryBank, make_node: MakeNode, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoints.sqlite3")
    node = make_node(ticket_key="ticket", triggers=EACH_TURN, dream=lambda _request: {})
    for number in range(2):
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            graph = talk_graph(node, checkpointer=saver)
            out = await graph.ainvoke(say(f"Turn {number}."), thread())
            stored = (await graph.aget_state(thread())).values["ticket"]
            assert stored == out["ticket"]
    assert await node.scheduler.aflush(SECONDS)
    assert len(bank) == 4


STRICT = """
import json, sys, warnings
warnings.simplefilter("error")
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from langchain_dream import DreamMiddleware, DreamNode
from langchain.agents import create_agent
from shared_core import MemoryBank, packaged_embedder
from shared_core.bank.conversation import ConversationMemory, Page
from tests.langgraph.talk import AT_ONCE, NEVER, SECONDS, Scripted, say, talk_graph, thread

bank = MemoryBank.open(sys.argv[1], "talks", create=True, embedder=packaged_embedder())
ConversationMemory(bank).add_pages([Page(text="The ferry leaves at nine.", session="old")])

def dream(request):
    return {"numpy": __import__("numpy").float32(0.5)}

with SqliteSaver.from_conn_string(sys.argv[1] + "/checkpoints.sqlite3") as saver:
    node = DreamNode(bank, triggers=NEVER, config=AT_ONCE, dream=dream, ticket_key="ticket")
    graph = talk_graph(node, checkpointer=saver)
    graph.invoke(say("One."), thread())
    assert node.scheduler.flush(SECONDS)
    graph.invoke(say("Two."), thread())
    values = graph.get_state(thread()).values
    agent = create_agent(
        Scripted(reply=lambda _messages: "At nine."),
        [],
        middleware=[DreamMiddleware(bank)],
        checkpointer=saver,
    )
    agent.invoke(say("When does the ferry leave?"), thread("agent"))
    recall = agent.get_state(thread("agent")).values["dream_recall"]
print(json.dumps({"ticket": values["ticket"], "messages": len(values["messages"]), "recall": recall}))
"""


def test_the_strict_msgpack_mode_keeps_tickets_and_recalls(tmp_path: Path) -> None:
    import json

    done = subprocess.run(
        [sys.executable, "-c", STRICT, str(tmp_path)],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # a value that may not be read back is reported by a logger
    assert "msgpack" not in done.stderr.lower()
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["ticket"]["state"] == "not_due"
    assert told["messages"] == 4
    assert "The ferry leaves at nine." in told["recall"]["text"]


def test_the_scheduler_of_a_bank_is_shared(bank: MemoryBank, make_node: MakeNode) -> None:
    assert make_node().scheduler is make_node().scheduler is DreamScheduler.shared(bank)


@pytest.mark.parametrize("seconds", [0, 86_400 * 40])
def test_a_history_handed_in_on_another_day_is_the_same(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    from datetime import datetime, timedelta, timezone

    from langchain_dream import turns

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz or timezone.utc) + timedelta(seconds=seconds)

    messages = {"messages": [("user", "Told once."), ("assistant", "Heard.")]}
    DreamNode(bank, triggers=NEVER, config=AT_ONCE).invoke(messages, thread())
    assert DreamScheduler.shared(bank).close(SECONDS)
    stored = [memory.text for memory in bank]
    monkeypatch.setattr(turns, "datetime", Later)
    node = DreamNode(bank, triggers=NEVER, config=AT_ONCE)
    node.invoke(messages, thread())
    assert node.scheduler.flush(SECONDS)
    assert node.scheduler.status().refused_pages == 0
    assert [memory.text for memory in bank] == stored
