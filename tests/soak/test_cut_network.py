"""The network drops in mid-call, and comes back: nothing is lost, nobody waits for ever.

The long run is ``make soak-network``, or ``make soak-network CUTS=2000``.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from chromadb.api.models.Collection import Collection
from sqlalchemy import event, make_url, text

from shared_core import ForgettingConfig, MemoryBank
from shared_core.bank import chroma_client, postgres_link
from shared_core.bank.checkup import Examined, examine
from shared_core.bank.chroma import ChromaContent
from shared_core.bank.derived import derived_id
from shared_core.bank.lock import adding_lock
from shared_core.bank.postgres_link import connect_arguments
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair, remove_unborn
from shared_core.errors import BankNotFoundError, StateError
from shared_core.retrieval import BankRetriever
from tests.soak import checks
from tests.soak.cut_network import Cut, CutNetwork, networks
from tests.soak.cuts import KINDS, CutSoak, Place, bounded, target_of, through

ROOT = Path(__file__).resolve().parents[2]
SEED = 11


@pytest.fixture(scope="module")
def direct(chroma_server: str, postgres_url: str) -> Place:
    return Place(location=chroma_server, state=postgres_url)


@pytest.fixture(scope="module")
def nets(direct: Place) -> Iterator[dict[str, CutNetwork]]:
    url = urlsplit(direct.location)
    with networks(chroma=(str(url.hostname), int(url.port or 80)), postgres=target_of(direct.state)) as made:
        yield made.by_name


@pytest.fixture(autouse=True)
def quick_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up after a second, not after minutes."""
    for module in (chroma_client, postgres_link):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 1.0)
        monkeypatch.setattr(module, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(postgres_link, "PROBE_SECONDS", 1.0)


@pytest.fixture
def place(direct: Place, nets: dict[str, CutNetwork]) -> Place:
    """The servers, by way of the proxies."""
    return through(direct, nets["chroma"], nets["postgres"])


@pytest.fixture
def bank(place: Place, nets: dict[str, CutNetwork], name: str) -> Iterator[MemoryBank]:
    """A bank with 20 memories, by way of the proxies."""
    with place.open(name) as bank:
        bank.add([f"memory {i}" for i in range(20)], ids=[f"m{i}" for i in range(20)])
        yield bank
        for net in nets.values():
            net.heal()


@contextmanager
def lost_answer_to_commit(bank: MemoryBank, net: CutNetwork, number: int = 1) -> Iterator[None]:
    """The ``number``-th commit is carried out, and the connection breaks before that is told."""
    left = [number]

    def arm(_connection: object) -> None:
        left[0] -= 1
        if not left[0]:
            net.arm(Cut(how="reset", direction="response", after=0, once=True))

    event.listen(bank.state.engine, "commit", arm)
    yield
    event.remove(bank.state.engine, "commit", arm)
    assert left[0] <= 0
    assert net.struck == 1


def all_is_well(direct: Place, name: str) -> None:
    with direct.open(name) as anew:
        assert checks.lock_is_free(anew) + checks.all_of(anew, cleaned=True) == []


@pytest.mark.parametrize("kind", ["update", "repair", "cycle"])
def test_cut_at_random(direct: Place, nets: dict[str, CutNetwork], kind: str) -> None:
    one = CutSoak(direct, nets, kind, random.Random(SEED))  # noqa: S311
    one.at_random(1, ("reset", "end"))
    one.at_random(1, ("silence",))
    one.at_random(1, ("forsake", "delay"))
    assert one.tally.wrong == []
    assert one.tally.cuts == 3


@pytest.mark.parametrize("link", ["chroma", "postgres"])
def test_nobody_waits_for_ever(
    bank: MemoryBank, nets: dict[str, CutNetwork], place: Place, link: str, name: str
) -> None:
    error = {"chroma": "Chroma server", "postgres": "did not answer within 1 s|timeout expired"}[link]
    # so many parts of answers still come: from the first of Chroma's two connections, or over a new one
    later = 4 if link == "postgres" else None
    calls: list[tuple[Callable[[], object], int | None]] = [
        (lambda: bank.sweep(ForgettingConfig(iterations=2)), None),
        (lambda: BankRetriever(bank).search("the boat"), None),
        (lambda: place.open(name), None),
        (lambda: place.open(name), 1),
        (lambda: examine(place.location, name, state_url=place.state), later),
    ]
    for call, part in calls:
        nets[link].arm(Cut(how="silence", direction="response", part=part))
        came = bounded(call)
        nets[link].heal()
        if isinstance(came, Examined):
            found = [check.found for check in came.checks if check.status == "fail"]
            assert [one for one in found if re.search(error, one)]
        else:
            assert isinstance(came, (BankNotFoundError, StateError))
            assert re.search(error, str(came))
    assert bank.sweep(ForgettingConfig(iterations=2)).memories == 20


def test_a_rewriting_that_comes_late_is_rolled_back_too(
    bank: MemoryBank, direct: Place, nets: dict[str, CutNetwork], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Collection.update

    def late(collection: Collection, **change: Any) -> None:
        patched.undo()
        nets["chroma"].arm(Cut(how="forsake", part=1, once=True, seconds=0.3))
        update(collection, **change)

    with monkeypatch.context() as patched:
        patched.setattr(Collection, "update", late)
        with pytest.raises(BankNotFoundError, match="Chroma server"):
            bank.update("m1", "rewritten")
    assert nets["chroma"].struck == 1
    assert [run.status for run in bank.runs() if run.kind == "update"] == ["aborted"]
    time.sleep(0.3)
    with direct.open(name) as anew:
        assert anew.get(["m1"])[0].text == "memory 1"


def test_a_lock_whose_commit_got_no_answer_is_had_at_once(
    bank: MemoryBank, nets: dict[str, CutNetwork]
) -> None:
    with lost_answer_to_commit(bank, nets["postgres"]), pytest.raises(StateError, match="postgresql"):
        bank.set_weights({"m1": 0.5})
    assert bank.state.lock_holder() is not None  # it is there, and nobody's
    bank.set_weights({"m1": 0.5})
    assert bank.weights(["m1"]).tolist() == [0.5]


def test_a_repair_whose_commit_got_no_answer_is_whole(
    bank: MemoryBank, direct: Place, nets: dict[str, CutNetwork], name: str
) -> None:
    made = DerivedMemory(text="Of two.", sources=("m1", "m2"), id=derived_id())
    with bank.state.lock("cycle") as lock:
        with lost_answer_to_commit(bank, nets["postgres"]), pytest.raises(StateError, match="postgresql"):
            apply_repair(bank, Repair(operation="merge", reason="a test", memories=(made,)), lock=lock)
        assert [run.status for run in bank.runs() if run.kind == "repair"] == ["applied"]
    assert bank.weights([made.id])[0] > 0
    all_is_well(direct, name)


def test_derived_memories_of_a_commit_that_comes_late_are_kept(
    bank: MemoryBank, direct: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = DerivedMemory(text="Of two.", sources=("m1", "m2"), id=derived_id())
    known_ids = bank.state.known_ids()
    with bank.state.lock("cycle") as lock:
        apply_repair(bank, Repair(operation="merge", reason="a test", memories=(made,)), lock=lock)
        # as if its commit had come right after the ids were read
        monkeypatch.setattr(bank.state, "known_ids", lambda: known_ids)
        assert remove_unborn(bank, lock) == []
    assert bank.get([made.id])[0].text == "Of two."
    all_is_well(direct, name)


def test_a_rewriting_whose_end_got_no_answer(
    bank: MemoryBank, direct: Place, nets: dict[str, CutNetwork], name: str
) -> None:
    # the lock, the pending run, and the run's end
    with lost_answer_to_commit(bank, nets["postgres"], 3), pytest.raises(StateError, match="postgresql"):
        bank.update("m1", "rewritten")
    with direct.open(name) as anew:
        assert anew.get(["m1"])[0].text == "rewritten"
        assert [run.status for run in anew.runs() if run.kind == "update"] == ["applied"]
    all_is_well(direct, name)


def test_an_addition_that_is_cut_at_its_first_question(
    bank: MemoryBank, nets: dict[str, CutNetwork], place: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ChromaContent.add

    def cut(content: ChromaContent, *memories: Any) -> None:
        nets["chroma"].arm(Cut(how="reset", after=0))
        add(content, *memories)

    monkeypatch.setattr(ChromaContent, "add", cut)
    with (
        place.open(name) as fresh,
        pytest.raises(BankNotFoundError, match="Chroma server"),
    ):
        fresh.add(["new"], ids=["new"])
    nets["chroma"].heal()
    assert "new" not in bank.ids()


def test_waiting_for_another_that_adds_is_no_silence(bank: MemoryBank, direct: Place, name: str) -> None:
    with direct.open(name) as other, ThreadPoolExecutor(1) as thread:
        state = other.state
        with adding_lock(state.engine, state.bank_id, "another process", shared=True):
            added = thread.submit(bank.add, ["new"], ids=["new"])
            time.sleep(1.5)  # longer than an answer may take
            assert not added.done()
        assert added.result(10) == ["new"]


def test_the_server_is_told_to_look_whether_we_are_there(bank: MemoryBank) -> None:
    asked = text("SELECT setting FROM pg_settings WHERE name = 'client_connection_check_interval'")
    with bank.state.engine.connect() as connection:
        assert connection.execute(asked).scalar() == "10000"
    own = make_url("postgresql+psycopg://host/name?connect_timeout=7&keepalives_idle=5")
    told = connect_arguments(own)
    assert {"connect_timeout", "keepalives_idle"}.isdisjoint(told)
    assert told["tcp_user_timeout"] == 60_000
    assert connect_arguments(make_url("sqlite:////state.sqlite3")) == {}


@pytest.mark.slow
def test_cut_hundreds_of_times(direct: Place, nets: dict[str, CutNetwork]) -> None:
    cuts = int(os.environ.get("DREAM_SOAK_CUTS", "150"))
    began, rng = time.monotonic(), random.Random(SEED)  # noqa: S311
    found = {}
    for kind in KINDS:
        one = CutSoak(direct, nets, kind, rng)
        one.at_random(math.ceil(cuts / len(KINDS)))
        one.finish()
        found[kind] = asdict(one.tally)
        sys.stdout.write(f"{kind}: {one.tally}\n")
        sys.stdout.flush()
        summary = {"seconds": time.monotonic() - began, "load": os.getloadavg(), "kinds": found}
        file = ROOT / ".benchmarks" / "soak-network.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(summary, indent=1) + "\n")
    assert [line for one in found.values() for line in one["wrong"]] == []
