"""One client process of a shared bank, as a test drives it: orders come in as JSON lines, answers go out so.

Run as ``python -m tests.bank.client SETUP``. ``Client`` is the driver's side of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 120.0
CHOICES = {"add": 8, "search": 10, "feedback": 6, "sweep": 3, "undo": 3, "cycle": 1}
TOPICS = ("boat", "heron", "ferry", "plum", "orchard", "letter", "violin", "lantern")


class Client:
    """A client process, seen from the test."""

    def __init__(self, server: str, state: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bank.client", server, state],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, do: str, **options: Any) -> None:
        """Give an order; ``answer`` waits for what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **options}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the client ended with {self._process.wait(WAIT_SECONDS)}"
        answer: dict[str, Any] = json.loads(line)
        assert "unexpected" not in answer, answer
        return answer

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        self.send(do, **options)
        return self.answer()

    def killed(self) -> None:
        """Wait until it has killed itself."""
        assert self._process.wait(WAIT_SECONDS) == -signal.SIGKILL
        self._close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_SECONDS)
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class Worker:
    """The process itself."""

    def __init__(self, server: str, state: str) -> None:
        from shared_core.embedding import WordLlamaEmbedder

        self.server, self.state, self.words = server, state, WordLlamaEmbedder()
        self.bank: Any = None
        self.held: list[tuple[float, float]] = []
        self._record_locks()

    def open(self, name: str, where: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Open a bank, and close the one before."""
        from shared_core import MemoryBank
        from shared_core.retrieval import BankRetriever

        self.close()
        self.bank = MemoryBank.open(self.server, name, state_url=self.state, where=where, embedder=self.words)
        self.retriever = BankRetriever(self.bank)
        self.undoable: list[tuple[str, list[str]]] = []
        self.held.clear()
        return {}

    def close(self) -> dict[str, Any]:
        """Write the access counts and let the bank go."""
        if self.bank is not None:
            self.bank.close()
        return {}

    def _record_locks(self) -> None:
        from shared_core.bank.lock import BankLock

        acquire, release = BankLock.acquire, BankLock.release
        since: dict[int, float] = {}

        def acquired(lock: Any) -> None:
            acquire(lock)
            since[id(lock)] = time.monotonic()

        def released(lock: Any) -> None:
            self.held.append((since.pop(id(lock)), time.monotonic()))
            release(lock)

        BankLock.acquire, BankLock.release = acquired, released  # type: ignore[method-assign]

    def mix(self, seed: int, steps: int) -> dict[str, Any]:
        """Do so many things by chance; returns what was done, and what was refused with which error."""
        from shared_core.errors import BankLockedError, JournalError

        rng = random.Random(seed)  # noqa: S311
        told: dict[str, Any] = {
            "added": {},
            "undone": [],
            "credited": [],
            "found": Counter(),
            "runs": Counter(),
        }
        refused: Counter[str] = Counter()
        for step in range(steps):
            chosen = rng.choices(list(CHOICES), list(CHOICES.values()))[0]
            try:
                getattr(self, f"_{chosen}")(f"{seed}-{step}", rng, told)
                told["runs"][chosen] += 1
            except (BankLockedError, JournalError) as error:
                refused[f"{chosen} {type(error).__name__}"] += 1
        return {**told, "refused": refused, "held": self.held}

    def _add(self, key: str, rng: random.Random, told: dict[str, Any]) -> None:
        texts = [
            f"The {rng.choice(TOPICS)} number {key}-{i} is by the {rng.choice(TOPICS)}." for i in range(2)
        ]
        ids = [f"{key}-{i}" for i in range(2)]
        self.bank.add(texts, ids=ids)
        told["added"].update(zip(ids, texts, strict=True))
        if rng.random() < 0.3:
            run = next(
                run for run in self.bank.runs(50) if run.kind == "add" and self._touches(run.run_id, ids[0])
            )
            self.undoable.append((run.run_id, ids))

    def _touches(self, run_id: str, memory_id: str) -> bool:
        from shared_core.bank.journal import touched_ids
        from shared_core.bank.schema import reading

        with reading(self.bank.state.engine) as connection:
            return memory_id in touched_ids(connection, run_id)

    def _search(self, _key: str, rng: random.Random, told: dict[str, Any]) -> None:
        told["found"].update(hit.id for hit in self._hits(rng))

    def _hits(self, rng: random.Random) -> list[Any]:
        hits = self.retriever.search(f"{rng.choice(TOPICS)} and {rng.choice(TOPICS)}", k=3)
        assert hits
        return hits

    def _feedback(self, _key: str, rng: random.Random, told: dict[str, Any]) -> None:
        hits = self._hits(rng)
        ids = [hit.id for hit in hits]
        told["found"].update(ids)
        self.bank.feedback(ids, [hit.score for hit in hits], 1.0)
        told["credited"] += ids

    def _sweep(self, _key: str, _rng: random.Random, _told: dict[str, Any]) -> None:
        from shared_core import ForgettingConfig

        report = self.bank.sweep(ForgettingConfig(eta=0.3, noise_ratio=0.5))
        self.undoable.append((str(report.run_id), []))

    def _cycle(self, _key: str, _rng: random.Random, _told: dict[str, Any]) -> None:
        from shared_core.agents import DreamConfig, DreamCycle

        DreamCycle(self.bank, config=DreamConfig(rounds=1, partitions=1, probes=6, repairs=2)).run()

    def _undo(self, _key: str, _rng: random.Random, told: dict[str, Any]) -> None:
        if self.undoable:
            run_id, ids = self.undoable.pop()
            self.bank.undo(run_id)
            told["undone"] += ids

    # ---- single orders

    def sweep(self, at: float = 0.0, inside: float = 0.0) -> dict[str, Any]:
        """Sweep at a moment (of the monotonic clock), and hold the lock for so many seconds more."""
        from shared_core import ForgettingConfig
        from shared_core.errors import BankLockedError

        time.sleep(max(0.0, at - time.monotonic()))
        began = time.monotonic()
        try:
            report = self.bank.sweep(
                ForgettingConfig(eta=0.3, noise_ratio=0.5),
                progress=lambda _, done, __: time.sleep(inside) if done == 1 else None,
            )
        except BankLockedError as error:
            return {"locked": str(error), "seconds": time.monotonic() - began}
        return {"run_id": report.run_id, "lowered": report.lowered, "held": self.held[-1]}

    def add_same(self, at: float, count: int, name: str) -> dict[str, Any]:
        """Add ids that others add at the same time; returns those that were taken."""
        from shared_core.errors import InvalidMemoryError

        taken = {}
        time.sleep(max(0.0, at - time.monotonic()))
        for i in range(count):
            text = f"{name} says what number {i} is."
            try:
                self.bank.add([text], ids=[f"same-{i}"], metadatas=[{"by": name}])
                taken[f"same-{i}"] = text
            except InvalidMemoryError:
                continue
        return {"taken": taken}

    def weights(self, ids: list[str]) -> dict[str, Any]:
        """Tell the weights as this process sees them, and the version."""
        return {"weights": self.bank.weights(ids).tolist(), "version": self.bank.state.version()}

    def update(self, memory_id: str, text: str, die: str | None = None) -> dict[str, Any]:
        """Rewrite a text; ``die`` "before" or "after" Chroma is written."""
        from shared_core.bank.chroma import ChromaContent
        from shared_core.bank.content_writer import ContentWriter

        if die == "before":
            ChromaContent.replace = _die  # type: ignore[method-assign]
        elif die == "after":
            ContentWriter._finish = _die  # type: ignore[method-assign]
        return {"run_id": self.bank.update(memory_id, text).run_id}

    def cycle(self, die: bool = False) -> dict[str, Any]:
        """Dream; ``die`` after the first text that the dream writes."""
        from shared_core.agents import DreamConfig, DreamCycle

        cycle = DreamCycle(self.bank, config=DreamConfig(rounds=1, partitions=1, probes=8, repairs=4))
        report = cycle.run(on_event=lambda event: _die() if die and event.kind == "repair" else None)
        return {"run_id": report.run_id, "repairs": len(report.repairs)}


def _die(*_args: Any, **_options: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Serve orders until told to end."""
    worker = Worker(*sys.argv[1:])
    for line in sys.stdin:
        order = json.loads(line)
        do = order.pop("do")
        try:
            answer = getattr(worker, do)(**order)
        except Exception as error:
            answer = {"unexpected": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
