"""The disk fills up in the middle: a clear error, nothing by half, and it works again once there is room.

Embedded Chroma itself may stand still at its next write after one that failed for want of room, so whoever
comes after that is another process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.crash import Child, Nursery, nursery
from tests.soak.mounting import mounted
from tests.soak.worker import additions

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX")
SAID = {"limit": "disk I/O error", "ballast": "database or disk is full"}
ERRORS = {"sweep": "StateError", "update": "DreamError", "ingest": "DreamError"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with nursery(tmp_path_factory.mktemp("full")) as made:
        yield made


@pytest.fixture(params=["limit", "ballast"])
def how(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "limit":
        yield "limit"
        return
    if not sys.platform.startswith("linux"):
        pytest.skip("a small file system is made by Linux")
    with mounted("-t", "tmpfs", "-o", "size=8m", "tmpfs", at=tmp_path):
        yield "ballast"


def opened(made: Nursery, place: Path) -> Child:
    child = made.child()
    told = child.ask("open", location=str(place), name="full", state=None, least_rows=None)
    assert told["wrong"] == []
    return child


@pytest.mark.parametrize("kind", ERRORS)
def test_the_disk_fills_up(made: Nursery, tmp_path: Path, how: str, kind: str) -> None:
    child = opened(made, tmp_path)
    child.ask("fill", rows=48)
    before = child.ask("look")["snapshot"]
    told = child.ask("full", kind=kind, folder=str(tmp_path), how=how)
    assert told["error"] == ERRORS[kind]
    assert SAID[how] in told["said"]
    if kind == "sweep":
        assert child.ask("look")["snapshot"] == before
        # at once, in the same process: its own lock is not in its way
        child.ask("once", kind="sweep", turn="")
        assert child.ask("undo_last", kind="sweep")
    child.kill()

    child = opened(made, tmp_path)
    now = child.ask("look")
    assert now["wrong"] == []
    found = now["snapshot"]
    new = {i: found["contents"].pop(i)[:2] for i in list(found["contents"]) if i.startswith("ingest")}
    assert {name: found[name] for name in found if name != "runs"} == {
        name: before[name] for name in before if name != "runs"
    }
    given = additions("ingest", "full")
    assert new == {i: [given[i][0], given[i][1]] for i in new}
    assert child.ask("search") == []
    child.ask("once", kind=kind, turn="again")
    child.kill()
