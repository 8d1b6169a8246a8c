"""Threads and asyncio tasks at work on one bank at once: nothing is lost, and the journal tells one story.

Processes: tests/bank/test_many_clients.py.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import select

from shared_core import BankRetriever, ForgettingConfig, MemoryBank
from shared_core.bank.schema import changes, reading, runs
from shared_core.errors import BankLockedError, JournalError
from tests.bank.test_many_clients import check_journal
from tests.soak.effort import LetterEmbedder, many
from tests.soak.oracle import FIELDS

SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5, iterations=2)
CHOICES = {"add": 5, "search": 6, "feedback": 5, "reweight": 2, "delete": 1, "sweep": 2, "undo": 4}
WORDS = ("boat", "heron", "ferry", "plum", "orchard", "letter", "violin", "lantern")
WORKERS = 4


@dataclass
class Worker:
    """Does things by chance, and remembers what came of them."""

    bank: MemoryBank
    retriever: BankRetriever
    name: str
    chance: random.Random
    added: dict[str, str] = field(default_factory=dict)
    found: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    credit: dict[str, list[str]] = field(default_factory=dict)
    """By run, what feedback was given for; gone if it was undone."""
    mine: list[str] = field(default_factory=list)
    """Runs to undo."""

    def step(self, number: int) -> None:
        chosen = self.chance.choices(list(CHOICES), list(CHOICES.values()))[0]
        try:
            getattr(self, f"_{chosen}")(number)
        except BankLockedError:
            self.refused[f"{chosen}, locked"] += 1
        except JournalError:
            if chosen != "undo":
                raise
            self.refused["undo, built upon"] += 1
        else:
            self.done[chosen] += 1

    def _add(self, number: int) -> None:
        texts = [f"{self.chance.choice(WORDS)} {self.name} {number} {i}" for i in range(2)]
        ids = [f"{self.name}-{number}-{i}" for i in range(2)]
        self.bank.add(texts, ids=ids)
        self.added |= dict(zip(ids, texts, strict=True))

    def _search(self, _number: int) -> list[str]:
        kind = self.chance.choice(["similarity", "similarity", "hybrid"])
        hits = self.retriever.search(self.chance.choice(WORDS), k=3, search_type=kind)
        self.found.update(hit.id for hit in hits)
        assert len({hit.id for hit in hits}) == len(hits)
        assert all(0 < hit.weight <= 1 for hit in hits)
        return [hit.id for hit in hits]

    def _feedback(self, number: int) -> None:
        ids = self._search(number)
        run = self.bank.feedback(ids, [1.0] * len(ids), 1.0)
        self.credit[run.run_id] = ids
        self.mine.append(run.run_id)

    def _reweight(self, number: int) -> None:
        chosen = {i: self.chance.choice([0.2, 0.6, 1.0]) for i in self._search(number)}
        self.mine.append(self.bank.set_weights(chosen).run_id)

    def _delete(self, number: int) -> None:
        self.mine.append(self.bank.delete(self._search(number)[:1]).run_id)

    def _sweep(self, _number: int) -> None:
        self.mine.append(str(self.bank.sweep(SWEEP).run_id))

    def _undo(self, _number: int) -> None:
        if self.mine:
            run_id = self.mine.pop()
            undone = self.bank.undo(run_id)
            ids = self.credit.pop(run_id, None)
            if self.chance.random() < 0.3:
                self.bank.undo(undone.run_id)
                if ids is not None:
                    self.credit[run_id] = ids


@pytest.fixture
def opened(tmp_path: Path, name: str) -> Iterator[Callable[[], MemoryBank]]:
    banks: list[MemoryBank] = []

    def one() -> MemoryBank:
        banks.append(MemoryBank.open(tmp_path / "chroma", name, embedder=LetterEmbedder(), create=True))
        return banks[-1]

    yield one
    for bank in banks:
        bank.close()


def seeded(bank: MemoryBank) -> dict[str, str]:
    texts = [f"{WORDS[i % 8]} of {WORDS[i // 8]}" for i in range(24)]
    return dict(zip(bank.add(texts, ids=[f"seed-{i}" for i in range(24)]), texts, strict=True))


def check(bank: MemoryBank, seeds: dict[str, str], workers: list[Worker]) -> None:
    texts = seeds | {i: text for worker in workers for i, text in worker.added.items()}
    assert {memory.id: memory.text for memory in bank} == texts
    assert set(bank.content.get_embeddings(list(texts))) == set(texts)
    found = sum((worker.found for worker in workers), Counter())
    assert {m.id: m.state.retrievals for m in bank if m.state.retrievals} == dict(found)
    credit = Counter(i for worker in workers for ids in worker.credit.values() for i in ids)
    assert {m.id: m.state.successes for m in bank if m.state.successes} == dict(credit)

    done = sum((worker.done for worker in workers), Counter())
    kinds = Counter(run.kind for run in bank.runs())
    assert kinds["add"] == done["add"] + 1
    assert all(kinds[kind] == done[kind] for kind in ("sweep", "feedback", "reweight", "delete"))
    assert {run.status for run in bank.runs()} <= {"applied", "undone"}
    check_journal(bank)
    assert replayed(bank, list(texts)) == {
        name: bank.state.columns().gather(list(texts), name).tolist() for name in FIELDS
    }
    assert bank.status().locked_by is None
    # what was held in memory all along is what a new reader sees
    ids = {hit.id for hit in workers[0].retriever.search("boat", k=1000)}
    assert ids == {hit.id for hit in BankRetriever(bank, track_access=False).search("boat", k=1000)}


def replayed(bank: MemoryBank, ids: list[str]) -> dict[str, list[float]]:
    """Return the columns as the journal has them: the defaults, and every run's changes in their order."""
    state = {name: dict.fromkeys(ids, default) for name, default in FIELDS.items()}
    query = select(changes.c.memory_id, changes.c.field, changes.c.after).join(
        runs, runs.c.run_id == changes.c.run_id
    )
    with reading(bank.state.engine) as connection:
        mine = query.where(runs.c.bank_id == bank.state.bank_id).order_by(runs.c.version)
        for row in connection.execute(mine):
            state[row.field][row.memory_id] = row.after
    return {name: list(column.values()) for name, column in state.items()}


def crew(banks: list[MemoryBank]) -> list[Worker]:
    retrievers = {id(bank): BankRetriever(bank) for bank in banks}
    return [
        Worker(bank, retrievers[id(bank)], f"w{i}", random.Random(i))  # noqa: S311
        for i, bank in enumerate(banks)
    ]


@pytest.mark.parametrize("share", [True, False], ids=["one-bank", "a-bank-each"])
def test_threads(opened: Callable[[], MemoryBank], share: bool) -> None:
    first = opened()
    seeds = seeded(first)
    workers = crew([first if share else opened() for _ in range(WORKERS)])
    failed: list[BaseException] = []

    def work(worker: Worker) -> None:
        try:
            for number in range(many(16)):
                worker.step(number)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)
        assert not thread.is_alive()
    assert failed == []
    for worker in workers:
        worker.bank.state.flush()
    check(first, seeds, workers)


async def test_tasks_of_one_event_loop(opened: Callable[[], MemoryBank]) -> None:
    bank = opened()
    seeds = seeded(bank)
    workers = crew([bank] * WORKERS)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    async def work(worker: Worker) -> None:
        for number in range(many(12)):
            await asyncio.to_thread(worker.step, number)
            found = await worker.retriever.asearch(WORDS[number % 8], k=2)
            worker.found.update(hit.id for hit in found)
            if number % 6 == 5:
                try:
                    worker.mine.append(str((await bank.asweep(SWEEP)).run_id))
                    worker.done["sweep"] += 1
                except BankLockedError:
                    worker.refused["sweep, locked"] += 1

    ticking = asyncio.create_task(tick())
    await asyncio.gather(*map(work, workers))
    ticking.cancel()
    assert ticks > 20, "the event loop stood still"
    bank.state.flush()
    check(bank, seeds, workers)
