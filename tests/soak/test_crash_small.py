"""Killed at any instant, whatever it was doing: nothing acknowledged is lost, and nothing is there by half.

The long run is ``make soak``, or ``make soak KILLS=2000``.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.soak.crash import KINDS, REVERSIBLE, Nursery, Setup, Soak, Tally, nursery
from tests.soak.points import AT

ROOT = Path(__file__).resolve().parents[2]
SHARES = {"embedded, SQLite": 0.5, "server, SQLite": 0.25, "server, PostgreSQL": 0.25}
SEED = 7


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with nursery(tmp_path_factory.mktemp("soak")) as made:
        yield made


@pytest.mark.parametrize(
    ("kind", "points", "kills"),
    [
        ("update", ("Chroma rewritten",), 1),
        ("sweep", ("state written, not committed",), 2),
        ("pages", ("Chroma added to",), 2),
        ("cycle", ("before a tier", "keys written, not committed"), 1),
        ("cache", ("embeddings' file written, not named",), 1),
        ("delete", (), 3),
    ],
)
def test_killed(made: Nursery, tmp_path: Path, kind: str, points: tuple[str, ...], kills: int) -> None:
    one = Soak(made, Setup("embedded, SQLite", str(tmp_path / "chroma")), kind, random.Random(SEED))  # noqa: S311
    one.at_points(points)
    one.at_random(kills)
    one.close()
    assert one.tally.wrong == []
    assert one.tally.kills == kills + len(points) * (2 if kind in REVERSIBLE else 1)


@pytest.mark.slow
def test_killed_hundreds_of_times(
    made: Nursery, tmp_path: Path, chroma_server: str, postgres_url: str
) -> None:
    kills = int(os.environ.get("DREAM_SOAK_KILLS", "150"))
    setups = [
        Setup("embedded, SQLite", str(tmp_path / "chroma")),
        Setup("server, SQLite", chroma_server, f"sqlite:///{tmp_path / 'state.sqlite3'}"),
        Setup("server, PostgreSQL", chroma_server, postgres_url),
    ]
    began, rng = time.monotonic(), random.Random(SEED)  # noqa: S311
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for setup in setups:
        kinds = [kind for kind in KINDS if kind != "cache" or setup.state is None]
        for kind in kinds:
            tally = _tally(made, setup, kind, math.ceil(kills * SHARES[setup.name] / len(kinds)), rng)
            found[setup.name][kind] = asdict(tally)
            sys.stdout.write(f"{setup.name}, {kind}: {tally}\n")
            sys.stdout.flush()
            _keep(found, time.monotonic() - began)
    wrong = [line for kinds_of in found.values() for one in kinds_of.values() for line in one["wrong"]]
    assert wrong == []


def _tally(made: Nursery, setup: Setup, kind: str, kills: int, rng: random.Random) -> Tally:
    one = Soak(made, setup, kind, rng)
    one.at_points(AT.get(kind, ()))
    one.at_random(max(2, kills - one.tally.kills))
    one.close()
    return one.tally


def _keep(found: dict[str, dict[str, Any]], seconds: float) -> None:
    total = sum(one["kills"] for kinds in found.values() for one in kinds.values())
    summary = {"kills": total, "seconds": seconds, "load": os.getloadavg(), "setups": found}
    file = ROOT / ".benchmarks" / "soak-crash.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(summary, indent=1) + "\n")
