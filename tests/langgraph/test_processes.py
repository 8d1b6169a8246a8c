"""Several processes on one bank: one dreams, the others are told who; one dies in mid-dream."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from langchain_dream import DreamNode
from shared_core import BankRetriever, MemoryBank
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.scheduling import SchedulerConfig
from tests.langgraph.talk import NEVER, SECONDS, say, talk_graph, thread

SAID = (
    "The kiln is fired on Mondays.",
    "The glaze is copper red.",
    "Noor plays the double bass. She is ten.",
)
PATIENT = SchedulerConfig(kind="cycle", debounce=0.0, backoff=0.05, max_backoff=0.05)
OTHER = """
import os, signal, sys
from langchain_dream import DreamNode
from shared_core import BankRetriever, MemoryBank, packaged_embedder
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.scheduling import BankDream, SchedulerConfig
from tests.langgraph.talk import NEVER, SECONDS, say, talk_graph, thread

bank = MemoryBank.open({path!r}, {name!r}, embedder=packaged_embedder())
cycle = DreamCycle(bank, config=DreamConfig(rounds=1, partitions=1, probes=3, repairs=1))

def at(event):
    if event["kind"] == {kind!r}:
        print(event["kind"], flush=True)
        {deed}

node = DreamNode(
    bank,
    triggers=NEVER,
    config=SchedulerConfig(kind="cycle", debounce=0.0),
    dream=BankDream(bank, cycle=cycle),
    on_event=at,
)
node.scheduler.request("cycle")
assert node.scheduler.flush(SECONDS)
print(BankRetriever(bank).search("What colour is the glaze?", k=1)[0].text, flush=True)
"""


@pytest.fixture
def told(bank: MemoryBank) -> MemoryBank:
    pages = [Page(text=text, session=f"s{at}", speaker="user", id=f"p{at}") for at, text in enumerate(SAID)]
    ConversationMemory(bank).add_pages(pages)
    return bank


@contextmanager
def other_process(
    bank: MemoryBank, tmp_path: Path, *, kind: str, deed: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a process that dreams on the bank, and wait until it tells of an event, where it does its deed."""
    code = OTHER.format(path=str(tmp_path / "chroma"), name=bank.content.name, kind=kind, deed=deed)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{kind}\n"
        yield process
    finally:
        process.kill()
        process.wait(SECONDS)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def retrieved(bank: MemoryBank) -> str:
    return BankRetriever(bank).search("What colour is the glaze?", k=1)[0].text


def test_one_process_dreams_and_the_other_is_told_who(told: MemoryBank, tmp_path: Path) -> None:
    events: list[Any] = []
    with other_process(told, tmp_path, kind="repair", deed="sys.stdin.readline()") as process:
        node = DreamNode(told, triggers=NEVER, config=PATIENT, on_event=events.append)
        ticket = node.scheduler.request("cycle")
        assert not node.scheduler.flush(1.0)
        # turns go on meanwhile, and both retrieve
        assert talk_graph(node).invoke(say("How are you?"), thread())["messages"]
        assert retrieved(told) == "user: The glaze is copper red."
        status = node.scheduler.status()
        assert status.state in {"waiting", "dreaming"}
        assert f"pid {process.pid}" in str(status.lock_holder)
        assert f"pid {process.pid}" in next(event for event in events if event["kind"] == "locked")["holder"]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n" * 100)
        process.stdin.close()
        while (line := process.stdout.readline()) == "repair\n":
            pass
        assert line == "user: The glaze is copper red.\n"
        assert node.scheduler.flush(SECONDS)
    (entry,) = node.scheduler.status().history
    assert (entry["id"], entry["outcome"]) == (ticket["id"], "done")


@pytest.mark.parametrize("kind", [pytest.param("start", marks=pytest.mark.slow), "repair"])
def test_killed_in_mid_dream_and_reopened(
    told: MemoryBank, tmp_path: Path, open_bank: Any, kind: str
) -> None:
    before = [(memory.id, memory.text, memory.metadata) for memory in told]
    with other_process(told, tmp_path, kind=kind, deed="os.kill(os.getpid(), signal.SIGKILL)") as process:
        assert process.wait(SECONDS) == -signal.SIGKILL
    bank = open_bank(embedder=told.embedder)
    assert [(m.id, m.text, m.metadata) for m in bank if not m.id.startswith("dream-")] == before
    assert retrieved(bank) == "user: The glaze is copper red."
    repairs = [run for run in bank.runs() if run.kind == "repair"]
    assert len(repairs) == (1 if kind == "repair" else 0)
    assert bool(bank.state.retrieval_keys()) == bool(repairs)
    # the dead process's lock is taken over, and the bank dreams
    node = DreamNode(bank, triggers=NEVER, config=PATIENT)
    node.scheduler.request("cycle")
    assert node.scheduler.flush(SECONDS)
    assert node.scheduler.status().history[0]["outcome"] == "done"
