"""A process that is killed in the middle of its work, and the one that opens the bank after it.

Run as ``python -m tests.soak.worker SOCKET``: imports all that takes time, and then forks one process per
line it reads, so that a kill costs a fork and no start. A forked process connects to the socket and takes
orders.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shared_core import ForgettingConfig, MemoryBank
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.bank import matrix_cache
from shared_core.bank.chroma import ChromaContent
from shared_core.bank.conversation import SESSION, ConversationMemory, Page
from shared_core.bank.derived import SUSPECT, derived_id
from shared_core.bank.edges import Edge
from shared_core.bank.keys import RetrievalKey
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.bank.stored_vectors import read_vectors
from shared_core.errors import DreamError
from shared_core.fleet import DreamFleet, FleetConfig, FleetJob
from tests.soak import checks
from tests.soak.full_disk import Disk, How

SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5, iterations=2)
DREAM = DreamConfig(rounds=1, partitions=1, probes=6, repairs=3)
DIMENSION = 16
INGESTED = 300


class Hashed:
    """Embeds by words; quick, and the same texts give the same vectors."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        seeds = [zlib.crc32(word.encode()) for word in text.split()] or [0]
        rows = [np.random.default_rng(seed).standard_normal(DIMENSION) for seed in seeds]
        return [float(x) for x in np.sum(rows, axis=0)]


class Worker:
    """One forked process."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._orders = self._socket.makefile("r")
        self.tell(pid=os.getpid())

    def tell(self, **said: Any) -> None:
        """Say something that the kernel keeps though this process is killed right after."""
        self._socket.sendall((json.dumps(said) + "\n").encode())

    def serve(self) -> None:
        """Take orders until the other side is gone."""
        for line in self._orders:
            order = json.loads(line)
            do = order.pop("do")
            try:
                self.tell(answer=getattr(self, do)(**order))
            except Exception:
                self.tell(unexpected=traceback.format_exc())

    # ---- orders

    def open(self, location: str, name: str, state: str | None, least_rows: int | None) -> dict[str, Any]:
        """Open the bank, and tell what its lock, its journal and its records are like."""
        if least_rows is not None:
            matrix_cache.LEAST_ROWS = least_rows
        self.place = {"location": location, "collection": name, "state_url": state}
        began = time.monotonic()
        self.bank = MemoryBank.open(
            location, name, state_url=state, embedder=Hashed(), create=True, value_key="value"
        )
        opened = time.monotonic() - began
        wrong = checks.lock_is_free(self.bank)
        return {"seconds": opened, "wrong": wrong}

    def look(self, cleaned: bool = True) -> dict[str, Any]:
        """Tell all that the bank holds, and what is wrong with it."""
        wrong = checks.all_of(self.bank, cleaned=cleaned)
        return {"snapshot": checks.snapshot(self.bank), "wrong": wrong}

    def search(self) -> list[str]:
        """Compare answers with those of arithmetic on what is stored."""
        return checks.searches(self.bank) + checks.cache(self.bank)

    def undo_last(self, kind: str) -> str | None:
        """Undo the newest whole run that is applied, if it is of this kind."""
        for run in self.bank.state.runs(whole=True):
            if run.kind in ("undo", "recover") or run.status != "applied":
                continue
            if run.kind != kind:
                return None
            self.bank.undo(run.run_id)
            return run.run_id
        return None

    def die_at(self, point: str, when: str, count: int) -> None:
        """Kill this process at the ``count``-th call of "module:Class.name", before or after it."""
        module, path = point.split(":")
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        real, calls = getattr(owner, name), [0]

        def deadly(*args: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] == count and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            done = real(*args, **options)
            if calls[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        setattr(owner, name, deadly)

    def fill(self, rows: int, dimension: int = DIMENSION) -> None:
        """Add a bank's first memories, as pages of a few sessions."""
        rng = np.random.default_rng(0)
        names, things = ("Nora", "Emil", "Ida"), ("boat", "heron", "ferry", "plum", "letter", "violin")
        pages = [
            Page(
                text=f"{names[i % 3]} tells {names[(i + 1) % 3]} of the {things[i % 6]} and the "
                f"{things[rng.integers(6)]}, number {i}.",
                session=f"day {i // 8}",
                speaker=names[i % 3],
                id=f"m{i}",
                metadata={"number": i},
            )
            for i in range(rows)
        ]
        ConversationMemory(self.bank).add_pages(pages)

    def once(self, kind: str, turn: str) -> dict[str, Any]:
        """Do it once, to the end."""
        began = time.monotonic()
        done = OPERATIONS[kind](self, turn)
        return {"run_id": done, "seconds": time.monotonic() - began}

    def loop(self, kind: str, turn: str) -> None:
        """Do it, and undo it where that can be, until killed."""
        number = 0
        while True:
            self.tell(begin="do", number=number)
            run_id = OPERATIONS[kind](self, f"{turn}-{number}")
            self.tell(done="do", number=number, run_id=run_id)
            if run_id is not None:
                self.tell(begin="undo", number=number)
                self.bank.undo(run_id)
                self.tell(done="undo", number=number)
            number += 1

    def full(self, kind: str, folder: str, how: How) -> dict[str, str]:
        """Do it while the disk fills up, and tell what was said; afterwards there is room again."""
        disk = Disk(folder, how)
        replace = ChromaContent.replace
        try:
            if kind == "sweep":
                self.bank.sweep(SWEEP, progress=disk.fill)
            elif kind == "update":
                ChromaContent.replace = lambda *change: (disk.fill(), replace(*change))[1]  # type: ignore[assignment,method-assign]
                self.bank.update("m3", "rewritten " * 999)
            else:
                disk.fill()
                OPERATIONS[kind](self, "full")
        except DreamError as error:
            return {"error": type(error).__name__, "said": str(error)}
        finally:
            disk.free()
            ChromaContent.replace = replace  # type: ignore[method-assign]
        return {"error": "none", "said": ""}

    def end(self) -> None:
        """Close the bank."""
        self.bank.close()


def _newest(worker: Worker, kind: str) -> str:
    return next(run.run_id for run in worker.bank.runs(20) if run.kind == kind)


def additions(kind: str, turn: str) -> dict[str, tuple[str, dict[str, Any], list[float]]]:
    """Return the text, metadata and embedding of each memory that one turn of an adding operation adds."""
    count = {"add": 3, "pages": 2, "ingest": INGESTED, "cache": 1}[kind]
    ids = [f"{kind}-{turn}-{number}" for number in range(count)]
    session = {SESSION: f"session {turn}"} if kind == "pages" else {}
    embed = Hashed().embed_query
    if kind == "ingest":
        rows = iter(
            np.random.default_rng(zlib.crc32(turn.encode())).standard_normal((INGESTED, DIMENSION)).tolist()
        )
        embed = lambda _text: next(rows)  # noqa: E731
    return {i: (f"added as {i}", {"of": i, **session}, embed(f"added as {i}")) for i in ids}


def _add(kind: str, worker: Worker, turn: str) -> None:
    new = additions(kind, turn)
    texts, metadatas, vectors = map(list, zip(*new.values(), strict=True))
    worker.bank.add(texts, ids=list(new), metadatas=metadatas, embeddings=np.array(vectors))


def _pages(worker: Worker, turn: str) -> None:
    pages = [
        Page(text=text, session=metadata.pop(SESSION), id=i, metadata=metadata)
        for i, (text, metadata, _) in additions("pages", turn).items()
    ]
    ConversationMemory(worker.bank).add_pages(pages)


def _update(worker: Worker, _turn: str) -> str:
    return worker.bank.update("m3", "Nora rewrote this.", metadata={"number": -3}).run_id


def _delete(worker: Worker, _turn: str) -> str:
    return worker.bank.delete(["m1", "m4", "m7"]).run_id


def _restore(worker: Worker, _turn: str) -> str:
    return worker.bank.restore(["m0", "m2", "m5"]).run_id


def _reweight(worker: Worker, _turn: str) -> str:
    return worker.bank.set_weights({f"m{i}": 0.25 for i in range(12)}).run_id


def _feedback(worker: Worker, _turn: str) -> str:
    return worker.bank.feedback(["m0", "m1", "m2"], [0.9, 0.5, 0.1], 1.0).run_id


def _sweep(worker: Worker, _turn: str) -> str:
    return str(worker.bank.sweep(SWEEP).run_id)


def _repair(worker: Worker, _turn: str) -> str:
    ids = [f"m{i}" for i in range(12)]
    suspicion = worker.bank.state.columns().gather(ids, "suspicion")
    one, other = [i for i, s in zip(ids, suspicion, strict=True) if s < SUSPECT][:2]
    made = DerivedMemory(text="Of the boat and the heron.", sources=(one, other), id=derived_id())
    repair = Repair(
        operation="merge",
        reason="a test",
        memories=(made,),
        weights={"m0": 0.5, "m2": 0.75},
        edges=(Edge("m2", "m5", "bridge"),),
        keys=(RetrievalKey(one, "sentence", "a key"), RetrievalKey(other, "sentence", "another key")),
    )
    with worker.bank.state.lock("cycle") as lock:
        return apply_repair(worker.bank, repair, lock=lock).run_id


def _cycle(worker: Worker, _turn: str) -> str:
    return str(DreamCycle(worker.bank, config=DREAM).run().run_id)


def _fleet(worker: Worker, turn: str) -> str:
    place = worker.place
    job = FleetJob(location=place["location"], collection=place["collection"], state=place["state_url"])
    config = FleetConfig(dream=DREAM, embedder=Hashed)
    report = DreamFleet([job], config, workers=0, out=os.environ["DREAM_SOAK_JOURNAL"] + turn).run()
    assert report.counts["done"] == 1, report
    return _newest(worker, "cycle")


def _cache(worker: Worker, turn: str) -> None:
    """Change a few embeddings, and have the cache of all of them brought up to date."""
    number = int(turn.rpartition("-")[2])
    _add("cache", worker, turn)
    if number % 3 == 2:
        for file in worker.bank.content.database_file().with_name(matrix_cache.FOLDER).glob("*.f32"):  # type: ignore[union-attr]
            file.unlink()
    read_vectors(worker.bank.content)


OPERATIONS: dict[str, Callable[[Worker, str], str | None]] = {
    "add": partial(_add, "add"),
    "ingest": partial(_add, "ingest"),
    "pages": _pages,
    "update": _update,
    "delete": _delete,
    "restore": _restore,
    "reweight": _reweight,
    "feedback": _feedback,
    "sweep": _sweep,
    "repair": _repair,
    "cycle": _cycle,
    "fleet": _fleet,
    "cache": _cache,
}


def main() -> None:
    """Fork a process for every line; the dead are reaped by the kernel at once."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        if os.fork() == 0:
            # what it starts itself it wants to wait for
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                Worker(sys.argv[1]).serve()
            finally:
                os._exit(0)


if __name__ == "__main__":
    main()
