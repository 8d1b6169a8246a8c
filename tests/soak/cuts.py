"""Cut the network under an operation, again and again, and check what is found once it is there again.

The bank is on a Chroma server, its state in PostgreSQL, and a proxy stands before each. What may be found is
what may be found after a kill, see ``crash``; besides, the error must be ours and name the server, nobody may
wait longer than is allowed, and the same bank must work on.
"""

from __future__ import annotations

import gc
import random
import re
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from shared_core import MemoryBank
from shared_core.errors import DreamError
from shared_core.retrieval import BankRetriever
from tests.soak import checks
from tests.soak.crash import ADDING, REVERSIBLE, ROWS
from tests.soak.cut_network import Cut, CutNetwork
from tests.soak.snapshots import differing, users
from tests.soak.worker import OPERATIONS, Hashed, Worker, additions

KINDS = (*(kind for kind in REVERSIBLE), "undo", "add", "pages", "ingest", "cycle", "search", "open")
HOWS = ("reset", "forsake", "end", "silence", "delay")
BOUND_SECONDS = 30.0
"""Within which a call must end where each wait may take a second, on a busy machine."""
LATE_SECONDS = 0.4
"""So late a request may still come to a server whose client has given it up."""
NAMES = re.compile(r"Chroma server|state database postgresql")


@dataclass(frozen=True, kw_only=True)
class Place:
    """How to get to a bank."""

    location: str
    state: str

    def open(self, name: str) -> MemoryBank:
        return MemoryBank.open(
            self.location, name, state_url=self.state, embedder=Hashed(), create=True, value_key="value"
        )


def through(direct: Place, chroma: CutNetwork, postgres: CutNetwork) -> Place:
    """Return the same place by way of two proxies."""
    url = make_url(direct.state)
    query = {name: value for name, value in url.query.items() if name != "host"}
    by_proxy = url.set(host="127.0.0.1", port=postgres.port, query={**query, "application_name": "cut"})
    return Place(
        location=f"http://127.0.0.1:{chroma.port}", state=by_proxy.render_as_string(hide_password=False)
    )


def target_of(state: str) -> tuple[str, int] | str:
    """Return where PostgreSQL listens."""
    url = make_url(state)
    host, port = url.query.get("host") or url.host or "127.0.0.1", url.port or 5432
    return f"{host}/.s.PGSQL.{port}" if str(host).startswith("/") else (str(host), port)


def bounded(call: Callable[[], object]) -> Any:
    """Return what a call returned, or its error; fail if neither comes."""
    outcome: list[object] = []

    def work() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(BOUND_SECONDS)
    assert outcome, "nothing comes, and no error"
    return outcome[0]


def _let_go(error: BaseException) -> None:
    """Let an error's frames go, which keep a connection open."""
    one: BaseException | None = error
    while one is not None:
        traceback.clear_frames(one.__traceback__)
        one = one.__context__


@dataclass
class Tally:
    """What came of the cuts of one operation."""

    cuts: int = 0
    failed: int = 0
    """Operations that ended with an error; the others were done before the cut, or delayed."""
    before: int = 0
    between: int = 0
    after: int = 0
    hows: dict[str, int] = field(default_factory=dict)
    longest: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass
class _Hand:
    """As much of a ``Worker`` as the operations need."""

    bank: MemoryBank


class CutSoak:
    """Cuts during one operation on one bank.

    Args:
        direct: The bank's place, without proxies.
        nets: The proxies, "chroma" and "postgres".
        kind: The operation, of ``KINDS``.
        rng: Draws the cuts.
    """

    def __init__(self, direct: Place, nets: dict[str, CutNetwork], kind: str, rng: random.Random) -> None:
        self.direct, self.nets, self.kind, self.rng = direct, nets, kind, rng
        self.by_proxy = through(direct, nets["chroma"], nets["postgres"])
        self.tally = Tally()
        self._turn = 0
        self.name = f"cut-{rng.getrandbits(48):012x}"
        with direct.open(self.name) as bank:
            Worker.fill(_Hand(bank), ROWS)  # type: ignore[arg-type]
            for first in ("sweep", "feedback"):
                OPERATIONS[first](_Hand(bank), "")  # type: ignore[arg-type]
            self.base = checks.snapshot(bank)
        self._measure()

    def at_random(self, cuts: int, hows: tuple[str, ...] = HOWS) -> None:
        for _ in range(cuts):
            how = self.rng.choice(hows)
            link = self.rng.choice(list(self.nets))
            self.strike(link, self._drawn(how, link))

    def strike(self, link: str, cut: Cut) -> None:
        """Do the operation under one cut, and look at what is left."""
        self._turn += 1
        turn = f"{self._turn}"
        known = len(self.tally.wrong)
        target = self._prepared()
        bank = None if self.kind == "open" else self.by_proxy.open(self.name)
        self.nets[link].arm(cut)
        outcome = self._bounded(bank, turn, target)
        struck = self.nets[link].struck
        if cut.how == "forsake":
            time.sleep(cut.seconds)
        for net in self.nets.values():
            net.heal()
        self.tally.cuts += 1
        self.tally.hows[cut.how] = self.tally.hows.get(cut.how, 0) + 1
        if bank is not None:
            self._works_again(bank)
            bank.close()
        self._settled()
        self._compare(outcome, turn)
        told = f"{self.kind}, {link}, {cut}, {struck} struck, {type(outcome).__name__} {outcome!s:.200}"
        self.tally.wrong[known:] = [f"{told}: {line}" for line in self.tally.wrong[known:]]

    def finish(self) -> None:
        """Compare answers with arithmetic, at the end of all cuts."""
        with self.direct.open(self.name) as bank:
            self.tally.wrong += checks.searches(bank)

    # ---- inner

    def _measure(self) -> None:
        """Do it once without a cut; learn its bytes, its time, and what it leads to."""
        self._turn += 1
        self.after = self.base
        target = self._prepared()
        bank = None if self.kind == "open" else self.by_proxy.open(self.name)
        for net in self.nets.values():
            net.arm(Cut(how="delay"))
        began = time.monotonic()
        done = self._do(bank, f"{self._turn}", target)
        self.seconds = time.monotonic() - began
        self.passed = {name: net.passed for name, net in self.nets.items()}
        for net in self.nets.values():
            net.heal()
        if bank is not None:
            bank.close()
        with self.direct.open(self.name) as direct:
            self.after = checks.snapshot(direct)
            if self.kind in REVERSIBLE:
                direct.undo(done)
            elif self.kind in ADDING:
                self.base = self.after
            elif self.kind == "cycle":
                direct.undo(done)
        self.found = done

    def _drawn(self, how: str, link: str) -> Cut:
        once = self.rng.random() < 0.5
        if how == "delay":
            return Cut(how="delay", seconds=self.rng.uniform(0.0, 0.02))
        direction = self.rng.choice(("request", "response"))
        drawn: dict[str, Any] = {"how": how, "direction": direction, "once": once}
        if how == "forsake":
            drawn["seconds"] = self.rng.choice((0.0, LATE_SECONDS))
        passed = self.passed[link]
        match self.rng.choice(("moment", "byte", "part", "part")):
            case "moment":
                drawn["at"] = self.rng.uniform(0.0, 1.2 * self.seconds)
            case "byte":
                drawn["after"] = self.rng.randint(0, getattr(passed, direction))
            case "part":
                drawn["part"] = self.rng.randint(1, max(1, getattr(passed, f"{direction}_parts")))
        return Cut(**drawn)

    def _prepared(self) -> str:
        """Return the run that an undo is to undo."""
        if self.kind != "undo":
            return ""
        self.of = self.rng.choice(REVERSIBLE)
        with self.direct.open(self.name) as bank:
            run_id = str(OPERATIONS[self.of](_Hand(bank), ""))  # type: ignore[arg-type]
            self.after = checks.snapshot(bank)
        return run_id

    def _do(self, bank: MemoryBank | None, turn: str, target: str) -> Any:
        if bank is None:
            self.by_proxy.open(self.name).close()
            return None
        if self.kind == "search":
            return [hit.id for hit in BankRetriever(bank, track_access=False).search(checks.QUERIES[0])]
        if self.kind == "undo":
            return bank.undo(target).run_id
        return OPERATIONS[self.kind](_Hand(bank), turn)  # type: ignore[arg-type]

    def _bounded(self, bank: MemoryBank | None, turn: str, target: str) -> Any:
        """Return what came of it, an error too."""
        began = time.monotonic()
        came = bounded(lambda: self._do(bank, turn, target))
        self.tally.longest = max(self.tally.longest, time.monotonic() - began)
        if isinstance(came, BaseException):
            self.tally.failed += 1
            _let_go(came)
            if not isinstance(came, DreamError) or not NAMES.search(str(came)):
                self.tally.wrong.append(f"the error is {type(came).__name__}: {came}")
        return came

    def _works_again(self, bank: MemoryBank) -> None:
        try:
            ids = bank.ids()
            bank.get(ids[:3])
            bank.weights(ids)
            BankRetriever(bank, track_access=False).search("the heron")
        except Exception as error:
            self.tally.wrong.append(f"the same bank fails when the network is back: {error!r}")

    def _settled(self) -> None:
        """Wait until PostgreSQL has ended what the proxy let go of."""
        engine = create_engine(make_url(self.direct.state).set(drivername="postgresql+psycopg"))
        query = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cut'")
        deadline = time.monotonic() + BOUND_SECONDS
        while True:
            with engine.connect() as connection:
                if not connection.execute(query).scalar_one():
                    break
            assert time.monotonic() < deadline, "connections stay open"
            gc.collect()
            time.sleep(0.01)
        engine.dispose()

    def _compare(self, outcome: Any, turn: str) -> None:
        failed = isinstance(outcome, BaseException)
        with self.direct.open(self.name) as bank:
            self.tally.wrong += checks.lock_is_free(bank) + checks.all_of(bank, cleaned=True)
            now = checks.snapshot(bank)
            if self.kind in ADDING:
                self._added(bank, now, turn, failed)
            elif self.kind == "cycle":
                self._dreamt(bank, now, failed)
            elif self.kind == "undo":
                self._whole(bank, now, self.after, self.base, failed)
            elif self.kind in REVERSIBLE:
                self._whole(bank, now, self.base, self.after, failed)
            else:
                self.tally.before += 1
                self._equal(now, self.base, "only looked at")
                if self.kind == "search" and not failed and outcome != self.found:
                    self.tally.wrong.append(f"found {outcome}, not {self.found}")

    def _whole(
        self,
        bank: MemoryBank,
        now: dict[str, Any],
        before: dict[str, Any],
        after: dict[str, Any],
        failed: bool,
    ) -> None:
        is_before, is_after = not differing(now, before), not differing(now, after)
        self.tally.before += is_before
        self.tally.after += is_after
        if not is_before and not is_after:
            self._equal(now, before, "neither before nor after; before")
            self._equal(now, after, "nor after")
        if not failed and not is_after:
            self.tally.wrong.append("what was acknowledged is not there")
        if (self.kind == "undo") == is_before:
            newest = [run for run in bank.state.runs(whole=True) if run.kind not in ("undo", "recover")]
            applied = next((run for run in newest if run.status == "applied"), None)
            if applied is None:
                self.tally.wrong.append("there is nothing to undo")
            else:
                bank.undo(applied.run_id)
        self._equal(checks.snapshot(bank), self.base, "undone after the cut")

    def _added(self, bank: MemoryBank, now: dict[str, Any], turn: str, failed: bool) -> None:
        new = additions(self.kind, turn)
        there = [i for i in new if i in now["contents"]]
        self.tally.before += not there
        self.tally.after += len(there) == len(new)
        self.tally.between += 0 < len(there) < len(new)
        for i in there:
            words, metadata, vector = new[i]
            found, stored = (
                now["contents"][i],
                np.frombuffer(bytes.fromhex(now["contents"][i][2]), np.float32),
            )
            cosine = float(stored @ np.array(vector) / np.linalg.norm(stored) / np.linalg.norm(vector))
            if found[:2] != [words, metadata] or cosine < 1 - 1e-5:
                self.tally.wrong.append(f"{i} is not what was given: {found[:2]}, cosine {cosine}")
        if not failed and len(there) < len(new):
            self.tally.wrong.append(f"{len(new) - len(there)} acknowledged additions are lost")
        wanted = {**self.base["contents"], **{i: now["contents"][i] for i in there}}
        self._equal(now, {**now, "contents": wanted, "state": self.base["state"]}, "added")
        if self.kind == "pages" and failed:
            # whoever has no answer gives the same pages again
            OPERATIONS["pages"](_Hand(bank), turn)  # type: ignore[arg-type]
            now = checks.snapshot(bank)
            if placeless := [i for i in new if i not in now["tiers"]]:
                self.tally.wrong.append(f"{len(placeless)} pages given again stand in no tier")
        self.base = now

    def _dreamt(self, bank: MemoryBank, now: dict[str, Any], failed: bool) -> None:
        mine = users(now)
        self._equal(mine, {**mine, "contents": users(self.base)["contents"]}, "dreamt")
        changed = bool(differing(mine, users(self.base)))
        self.tally.before += not changed
        self.tally.between += changed and failed
        self.tally.after += changed and not failed
        newest = next(run for run in bank.state.runs(whole=True) if run.kind not in ("undo", "recover"))
        if newest.kind == "cycle" and newest.status == "applied":
            bank.undo(newest.run_id)
        elif changed or not failed:
            self.tally.wrong.append("a dream that changed something cannot be undone")
        self._equal(users(checks.snapshot(bank)), users(self.base), "dream undone")

    def _equal(self, found: dict[str, Any], wanted: dict[str, Any], what: str) -> None:
        self.tally.wrong += [f"{what}: {line}" for line in differing(found, wanted)]
