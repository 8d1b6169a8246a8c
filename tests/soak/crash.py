"""Kill a process that changes a bank, again and again, and check what the next one finds.

Instants are drawn by chance within the measured duration of the operation and its undo; ``POINTS`` names
further ones, between two steps of it. ``make soak`` runs it for long, see ``test_crash_small``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.soak.points import POINTS
from tests.soak.snapshots import differing, users
from tests.soak.worker import additions

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 60.0
ROWS = 48
MOST_ROWS = 4_000
TORN = "was cut off while it was written"
ADDING = ("add", "pages", "ingest", "cache")
DREAMING = ("cycle", "fleet")
REVERSIBLE = ("update", "delete", "restore", "reweight", "feedback", "sweep", "repair")
KINDS = (*REVERSIBLE, *ADDING, *DREAMING)


class TornIndexError(Exception):
    """Chroma was killed while it wrote its index: the first question fails, later ones are answered."""


@dataclass(frozen=True)
class Setup:
    """Where texts and state are."""

    name: str
    location: str
    state: str | None = None


@dataclass
class Tally:
    """What came of the kills of one operation in one set-up."""

    kills: int = 0
    before: int = 0
    after: int = 0
    between: int = 0
    """Kills after which some of several additions, or repairs of a dream, were there whole."""
    acknowledged: int = 0
    torn: int = 0
    """Kills while Chroma wrote its index; of these ``wrong`` counts all but the embeddings."""
    longest_opening: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Child:
    """One forked process, seen from here."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(WAIT_SECONDS)
        self._connection = connection
        self._lines = connection.makefile("r")
        self.pid = int(json.loads(self._lines.readline())["pid"])

    def send(self, do: str, **options: Any) -> None:
        self._connection.sendall((json.dumps({"do": do, **options}) + "\n").encode())

    def ask(self, do: str, **options: Any) -> Any:
        self.send(do, **options)
        said = json.loads(self._lines.readline())
        if TORN in said.get("unexpected", ""):
            raise TornIndexError
        assert "unexpected" not in said, said["unexpected"]
        return said["answer"]

    def kill(self) -> list[dict[str, Any]]:
        """Kill it; returns what it had said."""
        os.kill(self.pid, signal.SIGKILL)
        return self.last_words()

    def last_words(self) -> list[dict[str, Any]]:
        """Return what it said until its end, and wait for that."""
        said: list[dict[str, Any]] = []
        with suppress(ConnectionResetError):  # it died before it had read its order
            said += (json.loads(line) for line in self._lines)
        assert not any("unexpected" in one for one in said), said
        self._connection.close()
        deadline = time.monotonic() + WAIT_SECONDS
        while _lives(self.pid):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return said


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Nursery:
    """Makes child processes by forking one that has imported everything."""

    def __init__(self, folder: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        # a Unix socket's path may have 107 characters
        path = os.path.relpath(folder / "s")
        self._listener.bind(path)
        self._listener.listen()
        self._listener.settimeout(WAIT_SECONDS)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.worker", str(folder / "s")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "DREAM_SOAK_JOURNAL": str(folder / "fleet-")},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def child(self) -> Child:
        assert self._process.stdin is not None
        self._process.stdin.write("fork\n")
        self._process.stdin.flush()
        return Child(self._listener.accept()[0])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_SECONDS)
        self._listener.close()


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    made = Nursery(folder)
    try:
        yield made
    finally:
        made.close()


class Soak:
    """Kills during one operation on one bank, and what was found.

    Args:
        made: Makes the processes.
        setup: Where the bank is.
        kind: The operation, of ``KINDS``.
        rng: Draws the instants.
    """

    def __init__(self, made: Nursery, setup: Setup, kind: str, rng: random.Random) -> None:
        self.made, self.setup, self.kind, self.rng = made, setup, kind, rng
        self.tally = Tally()
        self._turn = 0
        self._begin()

    def at_random(self, kills: int) -> None:
        """Kill at instants by chance."""
        for _ in range(kills):
            if len(self.base["contents"]) > MOST_ROWS:
                self._begin()
            self.child.send("loop", kind=self.kind, turn=self._next_turn())
            time.sleep(self.rng.uniform(0.0, 1.5 * self.seconds))
            self._killed(self.child.kill())

    def at_points(self, points: Sequence[str]) -> None:
        """Kill between two steps, in the operation and, where there is one, in its undo."""
        for point in points:
            path, when = POINTS[point]
            for count in (1, 2) if self.kind in REVERSIBLE else (1,):
                self.child.ask("die_at", point=path, when=when, count=count)
                self.child.send("loop", kind=self.kind, turn=self._next_turn())
                self._killed(self.child.last_words(), f"{point}, {count}")

    def close(self) -> None:
        self.child.ask("end")
        self.child.kill()

    # ---- inner

    def _next_turn(self) -> str:
        self._turn += 1
        return f"{self._turn}"

    def _begin(self) -> None:
        """Make a bank, do the operation once to its end, and undo it."""
        self.name = f"soak-{self.rng.getrandbits(48):012x}"
        self.unanswered: dict[str, Any] = {}
        self.child = self._opened()
        self.child.ask("fill", rows=ROWS)
        # weights that differ from the defaults, so that it is seen when one is lost
        self.child.ask("once", kind="sweep", turn="")
        self.child.ask("once", kind="feedback", turn="")
        self.base = self._looked()
        turn = f"{self._next_turn()}-0"
        done = self.child.ask("once", kind=self.kind, turn=turn)
        self.after, self.seconds = self._looked(), done["seconds"]
        self.acked = self.after["runs"].get("add", 0)
        if done["run_id"] is None:
            self.base = self.after
        else:
            began = time.monotonic()
            assert self.child.ask("undo_last", kind=_run_kind(self.kind)) == done["run_id"]
            self.seconds += time.monotonic() - began
            self._equal(self._looked(), self.base, "undone")

    def _opened(self, child: Child | None = None) -> Child:
        child = child or self.made.child()
        least = 20 if self.kind == "cache" else None
        told = child.ask(
            "open", location=self.setup.location, name=self.name, state=self.setup.state, least_rows=least
        )
        self.tally.longest_opening = max(self.tally.longest_opening, told["seconds"])
        self.tally.wrong += told["wrong"]
        return child

    def _looked(self) -> dict[str, Any]:
        seen = self.child.ask("look")
        self.tally.wrong += seen["wrong"]
        snapshot: dict[str, Any] = seen["snapshot"]
        return snapshot

    def _killed(self, said: list[dict[str, Any]], point: str = "") -> None:
        """Open the bank again, and compare it with what may be there."""
        self.tally.kills += 1
        self.tally.acknowledged += sum("done" in one for one in said)
        known = len(self.tally.wrong)
        self.child = self.made.child()
        try:
            self._opened(self.child)
            now = self._looked()
        except TornIndexError:
            self._torn(said)
            return
        if self.kind in ADDING:
            self._added(now, said)
        elif self.kind in DREAMING:
            self._dreamt(now, bool(said) and said[-1].get("done") == "do")
        else:
            self._whole(now, said)
        if self.tally.kills % 5 == 1 or self.kind == "cache":
            self.tally.wrong += self.child.ask("search")
        last = said[-1] if said else {}
        self.tally.wrong[known:] = [
            f"{self.setup.name}, {self.kind}, {point or 'at random'}, after {last}: {line}"
            for line in self.tally.wrong[known:]
        ]

    def _torn(self, said: list[dict[str, Any]]) -> None:
        """Texts, metadata and state are whole all the same; go on with another bank."""
        self.tally.torn += 1
        self._opened(self.child)
        now = self._looked()
        after = self.after["contents"]
        wanted = {i: [one[:2], after.get(i, one)[:2]] for i, one in self.base["contents"].items()}
        for one in said if self.kind in ADDING else ():
            if "done" in one:
                new = additions(self.kind, f"{self._turn}-{one['number']}")
                wanted |= {i: [[text, metadata]] for i, (text, metadata, _) in new.items()}
        there = {i: content[:2] for i, content in now["contents"].items()}
        self.tally.wrong += [f"torn: {i} is {there.get(i)}" for i in wanted if there.get(i) not in wanted[i]]
        if self.kind not in DREAMING and now["state"] not in (self.base["state"], self.after["state"]):
            self.tally.wrong.append("torn: the state is neither that of before nor that of after")
        self.child.kill()
        self._begin()

    def _whole(self, now: dict[str, Any], said: list[dict[str, Any]]) -> None:
        """The state is the one before or the one after, and what was acknowledged is there."""
        last = said[-1] if said else {"done": "undo"}
        is_base, is_after = not differing(now, self.base), not differing(now, self.after)
        self.tally.before += is_base
        self.tally.after += is_after
        if not (is_base or is_after):
            self._equal(now, self.base, "neither before nor after; before")
            self._equal(now, self.after, "nor after")
        if last.get("done") == "do" and not is_after:
            self.tally.wrong.append("an acknowledged change is not there")
        if last.get("done") == "undo" and not is_base:
            self.tally.wrong.append("an acknowledged undo is not there")
        if is_after:
            if self.child.ask("undo_last", kind=_run_kind(self.kind)) is None:
                self.tally.wrong.append("the applied run is not the newest in the journal")
            self._equal(self._looked(), self.base, "undone after the crash")

    def _added(self, now: dict[str, Any], said: list[dict[str, Any]]) -> None:
        """Every acknowledged memory is there, one that was under way whole or not, and nothing else is."""
        wanted = {**self.base["contents"]}
        for one in said:
            turn = f"{self._turn}-{one['number']}"
            new = additions(self.kind, turn)
            there = [i for i in new if i in now["contents"]]
            for i in there:
                wanted[i] = now["contents"][i]
                self._is(i, wanted[i], new[i])
            if "done" not in one:
                self.unanswered |= new
            else:
                self.acked += 1
                if len(there) < len(new):
                    self.tally.wrong.append(f"{len(new) - len(there)} acknowledged additions are lost")
        # a server may carry out what it was sent after its client was killed, and after we looked
        for i in self.unanswered.keys() & now["contents"].keys():
            wanted[i] = now["contents"][i]
            self._is(i, wanted[i], self.unanswered[i])
        self._equal(now, {**now, "contents": wanted}, "added")
        self._equal(now, {**now, "state": self.base["state"]}, "added")
        if now["runs"].get("add", 0) < self.acked:
            self.tally.wrong.append("an acknowledged addition is not in the journal")
        self._tally_added(now, said)
        self.base = now

    def _tally_added(self, now: dict[str, Any], said: list[dict[str, Any]]) -> None:
        if not said or "done" in said[-1]:
            self.tally.after += bool(said)
            self.tally.before += not said
            return
        turn = f"{self._turn}-{said[-1]['number']}"
        new = additions(self.kind, turn)
        there = sum(i in now["contents"] for i in new)
        self.tally.before += there == 0
        self.tally.after += there == len(new)
        self.tally.between += 0 < there < len(new)
        if self.kind == "pages":
            # whoever has no answer gives the same pages again
            self.child.ask("once", kind="pages", turn=turn)
            now.update(self._looked())
            if placeless := [i for i in new if i not in now["tiers"]]:
                self.tally.wrong.append(f"{len(placeless)} pages given again stand in no tier")
            self.acked = now["runs"]["add"]

    def _is(self, memory_id: str, found: list[Any], given: tuple[str, dict[str, Any], list[float]]) -> None:
        text, metadata, vector = given
        stored = np.frombuffer(bytes.fromhex(found[2]), np.float32)
        cosine = float(stored @ np.array(vector) / np.linalg.norm(stored) / np.linalg.norm(vector))
        if (found[0], found[1]) != (text, metadata) or cosine < 1 - 1e-5:
            self.tally.wrong.append(f"{memory_id} is not what was given: {found[:2]}, cosine {cosine}")

    def _dreamt(self, now: dict[str, Any], acknowledged: bool) -> None:
        """The user's memories are the same, each repair is whole, and undoing the dream leaves nothing."""
        self._equal(users(now), {**users(now), "contents": users(self.base)["contents"]}, "dreamt")
        undone = self.child.ask("undo_last", kind="cycle")
        changed = bool(differing(users(now), users(self.base)))
        self.tally.before += not changed
        self.tally.between += changed
        if (changed or acknowledged) and undone is None:
            self.tally.wrong.append("a dream that was done, or changed something, cannot be undone")
        self._equal(users(self._looked()), users(self.base), "dream undone")

    def _equal(self, found: dict[str, Any], wanted: dict[str, Any], what: str) -> None:
        self.tally.wrong += [f"{what}: {line}" for line in differing(found, wanted)]


def _run_kind(kind: str) -> str:
    return {"fleet": "cycle"}.get(kind, kind)
