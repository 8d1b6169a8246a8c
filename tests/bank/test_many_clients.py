"""Several processes share one bank: texts on a real Chroma server, state in a real PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select, update

from shared_core import ForgettingConfig, MemoryBank, RetrievalConfig
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.bank.derived import is_derived
from shared_core.bank.lock import STALE_SECONDS
from shared_core.bank.schema import changes, locks, memories, reading, runs, writing
from shared_core.embedding import WordLlamaEmbedder
from shared_core.errors import BankLockedError
from shared_core.retrieval import BankRetriever
from tests.bank.client import TOPICS, Client
from tests.fleet.parts import PAGES, fill

OpenShared = Callable[..., MemoryBank]
Clients = Callable[..., list[Client]]
SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5)


@pytest.fixture(scope="module")
def words() -> WordLlamaEmbedder:
    pytest.importorskip("wordllama")
    return WordLlamaEmbedder()


@pytest.fixture
def shared(chroma_server: str, postgres_url: str, name: str, words: Any) -> Iterator[OpenShared]:
    """Open banks of this process on the shared collection."""
    opened: list[MemoryBank] = []

    def bank(**options: Any) -> MemoryBank:
        options = {"create": True, "embedder": words, **options}
        opened.append(MemoryBank.open(chroma_server, name, state_url=postgres_url, **options))
        return opened[-1]

    yield bank
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def processes(chroma_server: str, postgres_url: str) -> Iterator[list[Client]]:
    """Processes that live as long as these tests: starting one takes seconds."""
    alive: list[Client] = []
    yield alive
    for client in alive:
        client.kill()


@pytest.fixture
def clients(chroma_server: str, postgres_url: str, name: str, processes: list[Client]) -> Iterator[Clients]:
    """Give so many processes that have opened the shared bank; each is used by one test at a time."""

    def opened(*wheres: Mapping[str, str] | None) -> list[Client]:
        while len(processes) < len(wheres):
            processes.append(Client(chroma_server, postgres_url))
        for client, where in zip(processes, wheres, strict=False):
            client.send("open", name=name, where=where)
        for client in processes[: len(wheres)]:
            client.answer()
        return processes[: len(wheres)]

    yield opened
    processes[:] = [client for client in processes if client.is_alive]
    for client in processes:
        client.ask("close")


def seed(bank: MemoryBank, count: int = 24) -> dict[str, str]:
    texts = [
        f"The {TOPICS[i % 8]} of house {i} is older than the {TOPICS[i // 8 % 8]}." for i in range(count)
    ]
    return dict(zip(bank.add(texts, ids=[f"seed-{i}" for i in range(count)]), texts, strict=True))


def others_lock(bank: MemoryBank, **values: Any) -> None:
    with writing(bank.state.engine) as connection:
        mine = update(locks).where(locks.c.bank_id == bank.state.bank_id)
        assert connection.execute(mine.values(**values)).rowcount == 1


def check_journal(bank: MemoryBank) -> None:
    """Replay the journal: every run found what the one before it left, and the last left what is stored."""
    with reading(bank.state.engine) as connection:
        mine = runs.c.bank_id == bank.state.bank_id
        done = connection.execute(select(runs.c.run_id, runs.c.version, runs.c.status).where(mine)).all()
        query = select(changes, runs.c.version).join(runs, runs.c.run_id == changes.c.run_id).where(mine)
        changed = connection.execute(query.order_by(runs.c.version)).all()
        stored = connection.execute(select(memories).where(memories.c.bank_id == bank.state.bank_id)).all()
    assert {run.status for run in done} <= {"applied", "undone"}
    assert max(Counter(run.version for run in done).values()) == 1
    now: dict[tuple[str, str], float] = {}
    for change in changed:
        key = (change.memory_id, change.field)
        assert now.get(key, change.before) == change.before, (key, change)
        now[key] = change.after
    rows = {row.memory_id: row for row in stored}
    assert {key: getattr(rows[key[0]], key[1]) for key in now if key[0] in rows} == {
        key: value for key, value in now.items() if key[0] in rows
    }
    # a memory that was only ever added has no row
    assert all(
        value == {"deleted": 0.0, "weight": 1.0}.get(field)
        for (i, field), value in now.items()
        if i not in rows
    )


def mixed(bank: MemoryBank, started: Sequence[Client], steps: int) -> list[dict[str, Any]]:
    """Let all work at the same time, and check what cannot depend on who came first."""
    seeds = seed(bank)
    retriever = BankRetriever(bank, RetrievalConfig(backend="scan"), track_access=False)
    for number, client in enumerate(started):
        client.send("mix", seed=number, steps=steps)
    told = [client.answer() for client in started]

    texts = seeds | {key: text for one in told for key, text in one["added"].items()}
    kept = {memory.id: memory for memory in bank if not is_derived(memory.id)}
    assert {memory_id: memory.text for memory_id, memory in kept.items()} == texts
    undone = {memory_id for one in told for memory_id in one["undone"]}
    assert {memory_id for memory_id, memory in kept.items() if memory.state.deleted} == undone
    credit = Counter(i for one in told for i in one["credited"] if not is_derived(i))
    assert {i: memory.state.successes for i, memory in kept.items() if memory.state.successes} == credit

    held = sorted(tuple(span) for one in told for span in one["held"])
    assert held
    assert all(before[1] <= after[0] for before, after in pairwise(held)), "two dreamers at once"
    counted = Counter(run.kind for run in bank.runs())
    made: Counter[str] = sum((Counter(one["runs"]) for one in told), Counter())
    assert (counted["sweep"], counted["cycle"], counted["add"] - 1) == (
        made["sweep"],
        made["cycle"],
        made["add"],
    )
    check_journal(bank)

    report = bank.sweep(SWEEP)
    ids = sorted(texts)
    seen = [client.ask("weights", ids=ids) for client in started]
    assert all(
        one == {"weights": bank.weights(ids).tolist(), "version": bank.state.version()} for one in seen
    )
    bank.undo(str(report.run_id))
    assert all(client.ask("weights", ids=ids)["weights"] == bank.weights(ids).tolist() for client in started)
    found = {hit.id for text in list(texts.values())[-6:] for hit in retriever.search(text, k=1)}
    assert found <= set(texts) | {memory_id for memory_id in bank.ids() if is_derived(memory_id)}
    assert not found & undone

    for client in started:
        client.ask("close")
    retrieved = sum((Counter(one["found"]) for one in told), Counter())
    assert {memory.id: memory.state.retrievals for memory in bank if memory.state.retrievals} == retrieved
    return told


def test_four_processes_at_the_same_time(shared: OpenShared, clients: Clients) -> None:
    told = mixed(shared(), clients(*[None] * 4), steps=14)
    assert sum(sum(one["runs"].values()) for one in told) > 25


@pytest.mark.slow
def test_six_processes_for_longer(shared: OpenShared, clients: Clients) -> None:
    told = mixed(shared(), clients(*[None] * 6), steps=200)
    runs_made = sum((Counter(one["runs"]) for one in told), Counter())
    refused = sum((Counter(one["refused"]) for one in told), Counter())
    sys.stdout.write(f"\n{json.dumps({'done': runs_made, 'refused': refused})}\n")  # read with -s
    assert refused["sweep BankLockedError"]


def test_of_those_who_add_the_same_id_one_is_told_so(shared: OpenShared, clients: Clients) -> None:
    bank = shared()
    started = clients(None, None, None)
    at = time.monotonic() + 0.5
    for number, client in enumerate(started):
        client.send("add_same", at=at, count=15, name=f"client {number}")
    taken = [client.answer()["taken"] for client in started]
    assert Counter(memory_id for one in taken for memory_id in one) == dict.fromkeys(bank.ids(), 1)
    assert {memory.id: memory.text for memory in bank} == {i: t for one in taken for i, t in one.items()}
    assert [run.report for run in bank.runs() if run.kind == "add"] == [{"added": 1, "asked": 1}] * 15


def test_what_others_do_to_a_memory_before_its_addition_is_journalled_stays(shared: OpenShared) -> None:
    bank, other = shared(), shared()
    seed(bank)

    def find_at_once(_stage: str, _done: int, _total: int) -> None:
        other.feedback(["new"], [1.0], 1.0)
        other.set_weights({"new": 0.4})

    bank.add(["The canoe is red."], ids=["new"], progress=find_at_once)
    assert (bank.get(["new"])[0].state.successes, bank.get(["new"])[0].state.weight) == (1.0, 0.4)
    check_journal(bank)


def test_one_sweeps_and_the_others_are_told_who(shared: OpenShared, clients: Clients) -> None:
    bank = shared()
    seed(bank)
    started = clients(None, None)
    at = time.monotonic() + 0.3
    started[0].send("sweep", at=at, inside=2.5)
    started[1].send("sweep", at=at + 1.0)
    locked = started[1].answer()
    assert f"'sweep' by pid {started[0].pid}" in locked["locked"]
    assert locked["seconds"] < 1.0
    # a short write waits, and then says the same
    with pytest.raises(BankLockedError, match="'sweep' by pid"):
        bank.state.lock("reweight", wait=0.2).__enter__()
    bank.feedback(["seed-1"], [1.0], 1.0)  # needs no lock
    assert started[0].answer()["run_id"]
    assert bank.set_weights({"seed-0": 0.5}).kind == "reweight"
    assert bank.get(["seed-1"])[0].state.successes == 1.0
    assert started[1].ask("sweep")["run_id"]


def test_two_tenants_sweep_at_the_same_time_and_the_whole_bank_waits(
    shared: OpenShared, clients: Clients
) -> None:
    whole = shared()
    for tenant in ("ada", "bob"):
        bank = shared(where={"user": tenant})
        bank.add(
            [f"{tenant} has {i} {TOPICS[i % 8]}s" for i in range(16)],
            ids=[f"{tenant}-{i}" for i in range(16)],
        )
    started = clients({"user": "ada"}, {"user": "bob"})
    at = time.monotonic() + 0.3
    for client in started:
        client.send("sweep", at=at, inside=1.5)
    time.sleep(1.0)
    with pytest.raises(BankLockedError, match="'sweep' by pid"):
        whole.sweep(SWEEP)
    (one, other) = (client.answer() for client in started)
    assert max(one["held"][0], other["held"][0]) < min(one["held"][1], other["held"][1])
    assert {run.scope: run.run_id for run in whole.runs() if run.kind == "sweep"} == {
        '{"user": "ada"}': one["run_id"], '{"user": "bob"}': other["run_id"]
    }  # fmt: skip
    check_journal(whole)


@pytest.mark.parametrize("die", ["before", "after"])
def test_killed_while_rewriting_is_rolled_back_on_this_host_at_once_on_another_by_the_heartbeat(
    shared: OpenShared, clients: Clients, die: str
) -> None:
    bank = shared()
    text = seed(bank)["seed-3"]
    [client] = clients(None)
    client.send("update", memory_id="seed-3", text="The boat is new.", die=die)
    client.killed()
    assert (bank.get(["seed-3"])[0].text == text) == (die == "before")

    others_lock(bank, host="elsewhere", heartbeat_at=time.time() - STALE_SECONDS + 20)
    assert [run.status for run in shared().runs() if run.kind == "update"] == ["pending"]
    with pytest.raises(BankLockedError, match=f"'update' by pid {client.pid} on elsewhere"):
        bank.sweep(SWEEP)
    others_lock(bank, heartbeat_at=time.time() - STALE_SECONDS - 1)
    bank = shared()
    assert [run.status for run in bank.runs() if run.kind == "update"] == ["aborted"]
    assert bank.get(["seed-3"])[0].text == text
    assert bank.sweep(SWEEP).memories == 24


def test_killed_in_mid_dream_and_dreamt_again(
    shared: OpenShared, clients: Clients, chroma_server: str, postgres_url: str, name: str, words: Any
) -> None:
    fill(chroma_server, name, words, state=postgres_url)
    [client] = clients(None)
    client.send("cycle", die=True)
    client.killed()
    bank = shared()
    assert bank.state.lock_holder() == f"cycle by pid {client.pid} on {_host()}"
    report = DreamCycle(bank, config=DreamConfig(rounds=1, partitions=1, probes=8, repairs=4)).run()
    whole = [run for run in bank.runs() if run.kind == "cycle"]
    assert (len(whole), whole[0].run_id) == (2, report.run_id)
    for run in whole:
        bank.undo(run.run_id)
    visible = [memory for memory in bank if not memory.state.deleted]
    assert (len(visible), {memory.state.weight for memory in visible}) == (PAGES, {1.0})
    assert bank.state.lock_holder() is None


def _host() -> str:
    return subprocess.check_output(["hostname"], text=True).strip()
