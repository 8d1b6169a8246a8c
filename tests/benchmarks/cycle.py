"""The dream cycle by rules over banks of 300, 3,000 and 30,000 pages: time per part, memory, and slopes.

Run by ``make bench-cycle``; prints a table and writes JSON. The pages are dialogues of the script's own
words, with names, places, numbers and dates, topics that come up again, and greetings, so that there is
something to repair; with ``--msc`` they are real talks. Each size runs in a process of its own, on a copy
of a bank that is built once and kept. Caps on probes and repairs are the same for all sizes: what grows is
what the size of the bank costs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from shared_core import MemoryBank, packaged_embedder
from shared_core.agents import DreamConfig, DreamCycle, associating, cycle, dreaming, groundwork
from shared_core.agents.groundwork import GroundworkTrial
from shared_core.agents.probe_index import ProbeIndex
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.agents.rule_dreamer import RuleDreamer
from shared_core.agents.verification import Verifier
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.language import words
from shared_core.types import Embedder, FloatArray

DIMENSION = 384
TURNS, SESSIONS = 20, 15
"""Of a session, and sessions of a pair of speakers."""


def _listed(text: str) -> list[str]:
    return text.split()


PEOPLE = _listed(
    "Ada Bruno Clara Dario Edith Farid Greta Henrik Ines Jonas Katja Liam Mona Nadir Olga Pablo Quentin Rosa "
    "Stefan Tilda Umberto Vera Walid Xenia Yusuf Zelda Arne Birgit Cosmo Delia"
)
PLACES = _listed(
    "Lisbon Bergen Graz Porto Turin Ghent Malmo Tartu Krakow Brno Split Bilbao Leeds Cork Basel Lyon Aarhus "
    "Turku Riga Vilnius Sofia Varna Cluj Patras Nice Genoa Utrecht Bruges Linz Pecs"
)
THINGS = _listed(
    "canoe telescope accordion greenhouse bicycle sewing-machine drone kiln sailboat beehive piano camera "
    "chessboard loom tent kayak violin microscope lathe trampoline guitar printer tandem aquarium projector "
    "orchard workshop allotment bookshop bakery"
)
DOINGS = _listed(
    "repaired borrowed sold painted cleaned photographed inherited rented measured assembled polished "
    "insured carried catalogued restored weighed packed registered exchanged dismantled"
)
QUALITIES = _listed(
    "red blue heavy tiny rusty wooden silver noisy fragile striped crooked portable ancient spare"
)
FILLERS = (
    "Hi {other}!",
    "Thanks, sounds great!",
    "Wow, that's nice!",
    "Good morning!",
    "Okay, see you later!",
)
FORMS = (
    "I {done} a {how} {thing} in {place} last {day}.",
    "My cousin {friend} {done} the {how} {thing} for {count} euros.",
    "We met {friend} near {place} and talked about the {thing}.",
    "Did you ever see a {how} {thing} like the one that {friend} {done}?",
    "On {number} {month} I will bring the {thing} to {place}.",
    "Yesterday {friend} {done} {count} parts of my {thing}.",
)
WEEKDAYS = _listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _listed("January February March April May June July August September October November December")


class HashedWords:
    """Embeds a text as the sum of a fixed random direction per word: cheap, and near for shared words."""

    def __init__(self) -> None:
        self._known: dict[str, FloatArray] = {}

    def embed_documents(self, texts: list[str]) -> FloatArray:
        return np.stack([self._sum(text) for text in texts])

    def embed_queries(self, texts: list[str]) -> FloatArray:
        return self.embed_documents(texts)

    def embed_query(self, text: str) -> FloatArray:
        return self._sum(text)

    def _sum(self, text: str) -> FloatArray:
        total = sum((self._of(word) for word in words(text)), np.zeros(DIMENSION, np.float32))
        return np.asarray(total if total.any() else self._of(""), np.float32)

    def _of(self, word: str) -> FloatArray:
        if (known := self._known.get(word)) is None:
            known = np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSION)
            self._known[word] = known = known.astype(np.float32)
        return known


def dialogues(count: int) -> Iterator[Page]:
    """Yield so many pages; pairs of speakers come back to their few things in session after session."""
    draw = random.Random(0)  # noqa: S311
    for number in range(count):
        pair, session, turn = number // (TURNS * SESSIONS), number // TURNS, number % TURNS
        if number % (TURNS * SESSIONS) == 0:
            speakers = draw.sample(PEOPLE, 2)
            things = draw.sample(THINGS, 6)
        day = datetime(2019, 1, 1, tzinfo=timezone.utc) + timedelta(
            days=7 * (session % SESSIONS) + pair % 365
        )
        who, other = speakers[turn % 2], speakers[1 - turn % 2]
        text = draw.choice(FILLERS).format(other=other)
        if draw.random() > 0.2:
            sentences = [_said(draw, draw.choice(things)) for _ in range(draw.choice((1, 1, 2, 4)))]
            text = " ".join(sentences)
        yield Page(
            text=text, session=f"s{session}", speaker=who, time=day + timedelta(minutes=turn), id=f"p{number}"
        )


def _said(draw: random.Random, thing: str) -> str:
    return draw.choice(FORMS).format(
        done=draw.choice(DOINGS),
        how=draw.choice(QUALITIES),
        thing=thing,
        place=draw.choice(PLACES),
        friend=draw.choice(PEOPLE),
        day=draw.choice(WEEKDAYS),
        number=draw.randint(1, 28),
        month=draw.choice(MONTHS),
        count=draw.randint(20, 900),
    )


def talks(folder: Path, count: int) -> Iterator[Page]:
    """Yield so many pages of MSC, or as many as there are; every talk of three sessions has its own pair."""
    number = 0
    for file in sorted(folder.glob("msc_dialogue_session_*.jsonl")):
        for at, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            talk = json.loads(line)
            for part, said in enumerate(
                [*(one["dialog"] for one in talk["previous_dialogs"]), talk["dialog"]]
            ):
                for turn, one in enumerate(said):
                    if number >= count:
                        return
                    yield Page(
                        text=one["text"].strip() or "...",
                        session=f"{file.stem} {at} {part}",
                        speaker=one.get("id") or f"Speaker {turn % 2 + 1}",
                        id=f"p{number}",
                    )
                    number += 1


class Parts:
    """Seconds by the clock and of CPU per part, each without the parts that it calls."""

    def __init__(self) -> None:
        self.clock: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._open: list[list[float]] = []

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count what happens inside."""
        began, used = time.perf_counter(), time.process_time()
        self._open.append([0.0, 0.0])
        try:
            yield
        finally:
            took, spent = time.perf_counter() - began, time.process_time() - used
            inner = self._open.pop()
            self.clock[name] += took - inner[0]
            self.cpu[name] += spent - inner[1]
            self.calls[name] += 1
            if self._open:
                self._open[-1][0] += took
                self._open[-1][1] += spent

    def watch(self, owner: Any, attribute: str, name: str) -> None:
        """Count every call of a function or method from now on."""
        inner: Callable[..., Any] = getattr(owner, attribute)

        @wraps(inner)
        def counted(*given: Any, **named: Any) -> Any:
            with self.of(name):
                return inner(*given, **named)

        setattr(owner, attribute, counted)


WATCHED: tuple[tuple[Any, str, str], ...] = (
    (cycle, "read_graph", "read the bank"),
    (associating, "sentence_keys", "sentence keys"),
    (associating, "scene_keys", "scene keys"),
    (associating, "bridge_edges", "bridges"),
    (associating, "_lowered", "graded weights"),
    (dreaming, "worth_asking", "graded weights"),
    (dreaming, "weakness_terms", "weakness (Eq. 3)"),
    (dreaming, "with_partners", "partners (Eq. 4)"),
    (groundwork, "_with", "groundwork index"),
    (GroundworkTrial, "__init__", "groundwork index"),
    (GroundworkTrial, "_ask", "groundwork probes"),
    (ProbeIndex, "__init__", "probe index"),
    (RuleDreamer, "probe", "making probes"),
    (Verifier, "ask", "probing"),
    (Verifier, "attempt", "verifying"),
    (RuleAnalyst, "diagnose", "diagnosing"),
    (RuleConsolidator, "propose", "proposing"),
    (cycle, "write_repair", "writing"),
)


def built(given: argparse.Namespace, size: int) -> Path:
    """Return the folder of the bank of this size, built if it is not there."""
    source = "msc" if given.msc else "own"
    folder: Path = given.folder / f"cycle-{source}-{given.embedder}-{size}"
    if not folder.exists():
        pages = list(talks(given.msc, size) if given.msc else dialogues(size))
        with tempfile.TemporaryDirectory(dir=given.folder) as building:
            bank = MemoryBank.open(building, "bench", create=True, embedder=embedder(given.embedder))
            ConversationMemory(bank).add_pages(pages)
            shutil.copytree(building, folder)
    return folder


def embedder(name: str) -> Embedder:
    """Return the free embedder, or the packaged model."""
    return HashedWords() if name == "hashed" else packaged_embedder()


def dream(given: argparse.Namespace, size: int) -> dict[str, Any]:
    """Dream once over a copy of the bank and return what it took; meant for a process of its own."""
    folder = built(given, size)
    with tempfile.TemporaryDirectory(dir=given.folder) as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        bank = MemoryBank.open(copy, "bench", embedder=embedder(given.embedder))
        config = DreamConfig(repairs=given.repairs, probes=given.probes, seconds=given.seconds)
        parts = Parts()
        for watched in WATCHED:
            parts.watch(*watched)
        before = peak()
        began, used = time.perf_counter(), time.process_time()
        report = DreamCycle(bank, config=config).run()
        took, spent = time.perf_counter() - began, time.process_time() - used
    kept = [(one.proposal.operation, one.proposal.f1_before, one.proposal.f1_after) for one in report.repairs]
    return {
        "pages": report.memories,
        "wall_s": took,
        "cpu_s": spent,
        "peak_mb": peak(),
        "peak_before_mb": before,
        "probes": sum(one.probes for one in report.rounds),
        "failures": sum(one.failures for one in report.rounds),
        "tried": parts.calls["verifying"],
        "repairs": sum(one.round > 0 for one in report.repairs),
        "groundwork": sum(one.round == 0 for one in report.repairs),
        "stopped_by": report.stopped_by,
        "f1": [report.f1_before, report.f1_after],
        # the same before and after a change of the code, where it changes no result
        "digest": zlib.crc32(json.dumps(kept).encode()),
        "cpu_parts": {**parts.cpu, "the rest": spent - sum(parts.cpu.values())},
        "calls": dict(parts.calls),
    }


def peak() -> float:
    """Return the most memory that this process has held, in MB."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / (1e6 if sys.platform == "darwin" else 1e3)


def slope(small: dict[str, Any], large: dict[str, Any], value: Callable[[dict[str, Any]], float]) -> float:
    """Return how the value grows with the pages: 1 is in proportion, 2 with their square."""
    if min(value(small), value(large)) < 0.01:
        return math.nan
    return math.log(value(large) / value(small)) / math.log(large["pages"] / small["pages"])


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return the results for people: totals, then CPU seconds per part and the slope between the last two."""
    rows = [["pages", *(f"{one['pages']:,}" for one in records), "slopes"]]
    for name, unit in (("cpu_s", "s"), ("wall_s", "s"), ("peak_mb", "MB")):
        rows.append(
            [
                f"{name}",
                *(f"{one[name]:.1f} {unit}" for one in records),
                _slopes(records, lambda one, n=name: one[n]),
            ]
        )
    rows.append(
        ["probes / tried / kept", *(f"{r['probes']} / {r['tried']} / {r['repairs']}" for r in records), ""]
    )
    for name in sorted(records[-1]["cpu_parts"], key=lambda part: -records[-1]["cpu_parts"][part]):
        value = lambda one, n=name: one["cpu_parts"].get(n, 0.0)  # noqa: E731
        rows.append([name, *(f"{value(one):.2f}" for one in records), _slopes(records, value)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _slopes(records: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> str:
    pairs = pairwise(records)
    return ", ".join("-" if math.isnan(found := slope(*pair, value)) else f"{found:.2f}" for pair in pairs)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, nargs="+", default=[300, 3_000, 30_000])
    parser.add_argument("--repairs", type=int, default=20)
    parser.add_argument("--probes", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--embedder", choices=("hashed", "minilm"), default="hashed")
    parser.add_argument("--msc", type=Path, help="directory of MSC, for real talks")
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"))
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/cycle.json"))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        given.child.write_text(json.dumps(dream(given, given.pages[0])), encoding="utf-8")
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    records = []
    for size in given.pages:
        built(given, size)
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "record.json"
            again = sys.argv[1:]
            command = [sys.executable, "-m", "tests.benchmarks.cycle", *again, "--pages", str(size)]
            subprocess.run([*command, "--child", str(answer)], check=True)
            records.append(json.loads(answer.read_text(encoding="utf-8")))
        print(f"{size} pages: {records[-1]['cpu_s']:.1f} s of CPU", flush=True)  # noqa: T201
    load = os.getloadavg()
    given.out.write_text(json.dumps({"load average": load, "records": records}, indent=1), encoding="utf-8")
    print(table(records))  # noqa: T201
    print(f"load average of the machine: {load[0]:.1f}; written to {given.out}")  # noqa: T201


if __name__ == "__main__":
    main()
