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

from tests.soak.worker import additions

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 60.0
ROWS = 48
MOST_ROWS = 4_000
ROUNDING = 1e-6
ADDING = ("add", "pages", "ingest", "cache")
DREAMING = ("cycle", "fleet")
REVERSIBLE = ("update", "delete", "restore", "reweight", "feedback", "sweep", "repair")
KINDS = (*REVERSIBLE, *ADDING, *DREAMING)
_CHROMA = "shared_core.bank.chroma:ChromaContent"
_WRITER = "shared_core.bank.content_writer:ContentWriter"
_TRANSACTION = "shared_core.bank.transaction:StateTransaction"
POINTS = {
    "lock taken": ("shared_core.bank.lock:BankLock.acquire", "after"),
    "lock not given back": ("shared_core.bank.lock:BankLock.release", "before"),
    "Chroma not yet added to": (f"{_CHROMA}.add", "before"),
    "Chroma added to": (f"{_CHROMA}.add", "after"),
    "Chroma not yet rewritten": (f"{_CHROMA}.replace", "before"),
    "Chroma rewritten": (f"{_CHROMA}.replace", "after"),
    "rewriting finished": (f"{_WRITER}._finish", "after"),
    "state written, not committed": (f"{_TRANSACTION}._write", "after"),
    "edges written, not committed": ("shared_core.bank.repairing:write_edges", "after"),
    "keys written, not committed": ("shared_core.bank.repairing:write_keys", "after"),
    "before a tier": ("shared_core.bank.tiers:TierStore.place", "before"),
    "repair applied": ("shared_core.agents.writing:apply_repair", "after"),
    "embeddings' file written, not named": ("shared_core.bank.matrix_file:Path.replace", "before"),
}
AT = {
    "update": ("lock taken", "Chroma not yet rewritten", "Chroma rewritten", "rewriting finished"),
    "delete": ("state written, not committed",),
    "restore": ("lock taken", "state written, not committed", "lock not given back"),
    "sweep": ("lock taken", "state written, not committed", "lock not given back"),
    "feedback": ("state written, not committed",),
    "repair": ("Chroma added to", "edges written, not committed", "keys written, not committed"),
    "add": ("Chroma not yet added to", "Chroma added to"),
    "pages": ("Chroma added to", "before a tier"),
    "ingest": ("Chroma added to",),
    "cycle": ("Chroma added to", "keys written, not committed", "repair applied", "before a tier"),
    "fleet": ("repair applied",),
    "cache": ("embeddings' file written, not named",),
}


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

    def _opened(self) -> Child:
        child = self.made.child()
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
        self.child = self._opened()
        known = len(self.tally.wrong)
        now = self._looked()
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

    def _whole(self, now: dict[str, Any], said: list[dict[str, Any]]) -> None:
        """The state is the one before or the one after, and what was acknowledged is there."""
        last = said[-1] if said else {"done": "undo"}
        is_base, is_after = not _differing(now, self.base), not _differing(now, self.after)
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
            if "done" in one:
                self.acked += 1
                if len(there) < len(new):
                    self.tally.wrong.append(f"{len(new) - len(there)} acknowledged additions are lost")
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
        self._equal(_users(now), {**_users(now), "contents": _users(self.base)["contents"]}, "dreamt")
        undone = self.child.ask("undo_last", kind="cycle")
        changed = bool(_differing(_users(now), _users(self.base)))
        self.tally.before += not changed
        self.tally.between += changed
        if (changed or acknowledged) and undone is None:
            self.tally.wrong.append("a dream that was done, or changed something, cannot be undone")
        self._equal(_users(self._looked()), _users(self.base), "dream undone")

    def _equal(self, found: dict[str, Any], wanted: dict[str, Any], what: str) -> None:
        self.tally.wrong += [f"{what}: {line}" for line in _differing(found, wanted)]


def _run_kind(kind: str) -> str:
    return {"fleet": "cycle"}.get(kind, kind)


def _users(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot without derived memories."""
    own = {
        name: {i: v for i, v in snapshot[name].items() if not i.startswith("dream-derived/")}
        for name in ("contents", "state", "tiers")
    }
    return {**snapshot, **own}


def _differing(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return in what two snapshots differ; undone derived memories stay in the collection, unseen."""
    lines = []
    for name in ("contents", "state", "tiers"):
        # an undone repair's memories stay, without effect: ``checks.derived`` looks at those
        a, b = _users(found)[name], _users(wanted)[name]
        if keys := sorted(key for key in a.keys() | b.keys() if not _same(a.get(key), b.get(key))):
            lines.append(f"{len(keys)} {name}, such as {keys[0]}: {a.get(keys[0])}, not {b.get(keys[0])}")
    for name in ("edges", "keys"):
        if _users_own(found[name]) != _users_own(wanted[name]):
            lines += [f"{name}: {found[name]}, not {wanted[name]}"]
    return lines


def _users_own(rows: list[list[str]]) -> list[list[str]]:
    return [row for row in rows if not any(end.startswith("dream-derived/") for end in row)]


def _same(one: Any, other: Any) -> bool:
    if one == other or one is None or other is None or len(one) != 3:
        return bool(one == other)
    # Chroma divides by the norm and multiplies again whenever it writes: the last bit may change
    vectors = (np.frombuffer(bytes.fromhex(content[2]), np.float32) for content in (one, other))
    return bool(one[:2] == other[:2] and np.allclose(*vectors, rtol=ROUNDING, atol=ROUNDING))
