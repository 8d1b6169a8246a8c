"""Eight conversations at once on one bank, and an event loop that is never blocked."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langchain_dream import DreamMiddleware, DreamNode
from shared_core import BankRetriever, MemoryBank
from shared_core.scheduling import SchedulerConfig, TriggerConfig
from tests.langgraph.talk import NEVER, SECONDS, Scripted, say, talk_graph, thread

CONVERSATIONS, TURNS = 8, 4
SWEEPS = SchedulerConfig(kind="sweep", debounce=0.0, backoff=0.0)
OFTEN = TriggerConfig(new_pages=10, min_confidence=None, max_seconds=None)
BLOCKED_SECONDS, TRIES = 0.05, 5


def test_eight_conversations_on_one_bank(any_bank: MemoryBank, tmp_path: Path) -> None:
    most = Counter[str]()
    running = threading.Lock()

    def one_at_a_time(_request: object) -> dict[str, int]:
        assert running.acquire(blocking=False), "two dreams at once"
        most["dreams"] += 1
        report = any_bank.sweep()
        running.release()
        return {"lowered": report.lowered}

    node = DreamNode(any_bank, triggers=OFTEN, config=SWEEPS, dream=one_at_a_time)
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite3")) as saver:
        graph = talk_graph(node, checkpointer=saver)

        def talk(name: str) -> int:
            for turn in range(TURNS):
                out = graph.invoke(say(f"Turn {turn} of conversation {name}."), thread(name))
            return len(out["messages"])

        names = [f"talk{number}" for number in range(CONVERSATIONS)]
        with ThreadPoolExecutor(CONVERSATIONS) as pool:
            assert list(pool.map(talk, names)) == [2 * TURNS] * CONVERSATIONS
    assert node.scheduler.flush(SECONDS)
    assert node.scheduler.status().failures == 0
    assert most["dreams"] >= 1
    sessions = Counter(memory.metadata["dream_session"] for memory in any_bank)
    assert sessions == dict.fromkeys(names, 2 * TURNS)
    # each conversation is found
    hits = BankRetriever(any_bank).search("Turn 2 of conversation talk5.", k=1)
    assert hits[0].metadata["dream_session"] == "talk5"


async def test_the_event_loop_is_never_blocked(bank: MemoryBank, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    model = Scripted(reply=lambda _messages: "I see.")
    middleware = DreamMiddleware(bank, triggers=NEVER, config=SWEEPS)
    agent = create_agent(model, [], middleware=[middleware], checkpointer=InMemorySaver())
    node = DreamNode(bank)
    graph = talk_graph(node, checkpointer=InMemorySaver())
    turn = itertools.count()

    async def talk(name: str) -> None:
        await agent.ainvoke(say(f"Turn {next(turn)} of {name}."), thread(f"agent {name}"))
        await graph.ainvoke(say(f"Turn {next(turn)} of {name}."), thread(f"graph {name}"))

    async def blocked() -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "asyncio"):
            dreaming = asyncio.ensure_future(node.scheduler.adream())
            while not dreaming.done():
                await asyncio.gather(talk("one"), talk("two"))
            await dreaming
            assert await node.scheduler.aflush(SECONDS)
        return [record.getMessage() for record in caplog.records if record.name == "asyncio"]

    # what is imported and compiled at a first use is no business of a turn
    await talk("one")
    await node.scheduler.adream()
    loop.slow_callback_duration = BLOCKED_SECONDS
    loop.set_debug(True)
    # on a busy machine the loop's thread may get no processor for so long; what blocks does so each time
    found = [await blocked()]
    while found[-1] and len(found) < TRIES:
        found.append(await blocked())
    loop.set_debug(False)
    assert not found[-1], found
