"""What the dream node adds to a turn, without and with a dream running, and how soon a repair is seen.

Run by ``make bench-node``; prints a table. A turn is a LangGraph graph of a scripted model and one more node,
an in-memory checkpointer and a conversation per ten turns; between turns there is a pause, as people make.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from langchain_dream import DreamNode
from shared_core import AssociativeRetriever, MemoryBank, packaged_embedder
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.scheduling import DreamScheduler, SchedulerConfig, TriggerConfig
from tests.langgraph.conversation import SESSIONS
from tests.langgraph.talk import NEVER, say, talk_graph, thread

SAID = [text for session in SESSIONS for text in session]
TURNS_PER_TALK = 10


class Timed:
    """A node that keeps how long each call took, in milliseconds."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.took: list[float] = []

    def __call__(self, state: Any, config: Any) -> Any:
        began = time.perf_counter()
        out = self._node(state, config)
        self.took.append(1e3 * (time.perf_counter() - began))
        return out


def no_node(_state: Any, _config: Any) -> None:
    """Stand where the dream node would."""


def opened(pages: int) -> MemoryBank:
    """Open a bank with so many pages, in a directory that the operating system removes."""
    bank = MemoryBank.open(
        Path(tempfile.mkdtemp()) / "chroma", "bench", create=True, embedder=packaged_embedder()
    )
    told = [
        Page(text=f"{SAID[at % len(SAID)]} (part {at})", session=f"s{at // 20}", speaker="user", id=f"p{at}")
        for at in range(pages)
    ]
    ConversationMemory(bank).add_pages(told)
    return bank


def turns(node: Any, count: int, pause: float) -> tuple[list[float], list[float]]:
    """Return milliseconds per turn, and in the node."""
    timed = Timed(node)
    graph = talk_graph(RunnableLambda(timed), checkpointer=InMemorySaver())  # type: ignore[arg-type]
    whole = []
    for at in range(count):
        time.sleep(pause)
        began = time.perf_counter()
        graph.invoke(say(SAID[at % len(SAID)]), thread(f"{id(timed)}-{at // TURNS_PER_TALK}"))
        whole.append(1e3 * (time.perf_counter() - began))
    return whole[TURNS_PER_TALK:], timed.took[TURNS_PER_TALK:]


@contextmanager
def always_dreaming(scheduler: DreamScheduler) -> Iterator[None]:
    """Let one dream follow the other for a block."""
    done = threading.Event()

    def again(event: Any) -> None:
        if event["kind"] in {"end", "failed"} and not done.is_set():
            scheduler.request("cycle")

    leave = scheduler.subscribe(again)
    scheduler.request("cycle")
    while scheduler.status().state != "dreaming":
        time.sleep(0.01)
    yield
    done.set()
    leave()
    scheduler.cancel()
    scheduler.flush(120.0)


def row(name: str, samples: list[float]) -> str:
    """Return one line of the table."""
    p50, p99, most = np.percentile(samples, [50, 99, 100])
    return f"| {name} | {p50:.2f} | {p99:.2f} | {most:.2f} |"


def lag(bank: MemoryBank) -> list[str]:
    """Return how long it takes from the turn that makes a dream due until a search sees its repair."""
    seen: dict[str, float] = {}

    def note(event: Any) -> None:
        seen.setdefault(event["kind"], time.perf_counter())

    node = DreamNode(
        bank,
        triggers=TriggerConfig(new_pages=1, min_confidence=None, max_seconds=None),
        config=SchedulerConfig(kind="cycle"),
        on_event=note,
    )
    retriever = AssociativeRetriever(bank, track_access=False)
    retriever.refresh()
    began = time.perf_counter()
    node.invoke({"messages": [("user", "This makes a dream due.")]}, thread())
    while "end" not in seen:
        time.sleep(0.002)
    committed = time.perf_counter()
    retriever.refresh()
    visible = time.perf_counter()
    keys = len(bank.state.retrieval_keys())
    node.scheduler.close(60.0)
    return [
        f"turn until dream begins (debounce 1 s): {seen['start'] - began:.2f} s",
        f"turn until first repair is written: {seen['repair'] - began:.2f} s",
        f"turn until dream ends: {seen['end'] - began:.2f} s",
        f"end until a search ranks by it: {1e3 * (visible - committed):.1f} ms ({keys} keys)",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=210)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--pages", type=int, default=200)
    given = parser.parse_args()
    bank = opened(given.pages)
    node = DreamNode(bank, triggers=NEVER, config=SchedulerConfig(kind="cycle", debounce=0.0))
    turns(no_node, 2 * TURNS_PER_TALK, 0.0)
    lines = ["| | p50 ms | p99 ms | max ms |", "|---|---|---|---|"]
    for dreaming in (False, True):
        suffix = ", dream running" if dreaming else ""
        for name, second in (("no node", no_node), ("dream node", node.invoke)):
            if dreaming:
                with always_dreaming(node.scheduler):
                    whole, inner = turns(second, given.turns, given.pause)
            else:
                whole, inner = turns(second, given.turns, given.pause)
                node.scheduler.flush(120.0)
            lines.append(row(f"turn, {name}{suffix}", whole))
            if second is not no_node:
                lines.append(row(f"the node itself{suffix}", inner))
    node.scheduler.close(60.0)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print("\n".join([*lines, "", *lag(bank), f"load average of the machine: {load}"]))  # noqa: T201


if __name__ == "__main__":
    main()
