"""A fleet on a real local Ray: parallel dreams, killed workers, held banks, tenants of a server."""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.embedding import WordLlamaEmbedder
from shared_core.errors import FleetError
from shared_core.fleet import DreamFleet, FleetJob, jobs_of_tenants
from shared_core.fleet.ray_pool import connected
from tests.fleet.parts import KILL, PAGES, Deadly, broken, config, fill, made_banks

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="RAY IS MISSING: install the extra `ray` to test the fleet",
)


@pytest.fixture(scope="module")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that workers look into for an order to kill themselves."""
    folder = tmp_path_factory.mktemp("orders")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(KILL, str(folder))
        yield folder


@pytest.fixture(scope="module")
def cluster(orders: Path) -> Iterator[Any]:
    """One Ray for all tests, started as a fleet starts it; it leaves neither files nor environment behind."""
    before, folders = dict(os.environ), set(Path(tempfile.gettempdir()).glob("dream-ray-*"))
    with ExitStack() as stack:
        try:
            ray = stack.enter_context(connected("local", 2))
        except FleetError as error:
            # a machine that is too busy, or that forbids what Ray needs, says nothing about the fleet
            pytest.skip(f"RAY DID NOT START, at load {os.getloadavg()[0]:.0f}: {error}")
        yield ray
        assert set(Path(tempfile.gettempdir()).glob("dream-ray-*")) > folders
    assert not ray.is_initialized()
    assert set(Path(tempfile.gettempdir()).glob("dream-ray-*")) <= folders
    assert {name for name in set(os.environ) - set(before) if name.startswith("RAY_AUTH")} == set()
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in set(os.environ) - set(before)


def cycles(job: FleetJob) -> list[Any]:
    with MemoryBank.open(job.location, job.collection, where=job.where, state_url=job.state) as bank:
        return [run for run in bank.runs() if run.kind == "cycle"]


@pytest.mark.usefixtures("cluster")
def test_twelve_banks_in_two_workers(tmp_path: Path, words: Any, orders: Path) -> None:
    jobs = made_banks(tmp_path, 12, words)
    out = tmp_path / "fleet.jsonl"
    seen: list[int] = []
    with MemoryBank.open(jobs[3].location, "talks") as held, held.state.lock("sweep"):
        report = DreamFleet(jobs, config(embedder=Deadly, lock_wait=1.0), workers=2, out=out).run(
            progress=lambda _, done, __: seen.append(done)
        )
    assert report.counts == {"done": 11, "skipped": 0, "failed": 0, "locked": 1, "left": 0}
    assert report.outcomes[3].status == "locked"
    assert seen == list(range(13))
    assert all(outcome.repairs > 0 and outcome.attempts == 1 for outcome in report.outcomes[:3])
    assert len((orders / "made").read_text().split()) == 2  # one embedder per worker, not per bank
    assert [[run.run_id for run in cycles(job)] for job in jobs] == [
        [outcome.run_id] if outcome.run_id else [] for outcome in report.outcomes
    ]

    again = DreamFleet(jobs, config(), workers=2, out=out).run()
    assert again.counts == {"done": 1, "skipped": 11, "failed": 0, "locked": 0, "left": 0}
    assert all(len(cycles(job)) == 1 for job in jobs)


@pytest.mark.usefixtures("cluster")
def test_a_worker_killed_in_mid_dream_loses_nothing(tmp_path: Path, words: Any, orders: Path) -> None:
    jobs = made_banks(tmp_path, 3, words)
    (orders / "kill-1").touch()
    report = DreamFleet(jobs, config(embedder=Deadly), workers=1, retries=1).run()
    assert report.counts == {"done": 3, "skipped": 0, "failed": 0, "locked": 0, "left": 0}
    assert report.lost_workers == 1
    assert sorted(outcome.attempts for outcome in report.outcomes) == [1, 1, 2]
    [struck] = [job for job, one in zip(jobs, report.outcomes, strict=True) if one.attempts == 2]

    with MemoryBank.open(struck.location, "talks") as bank:
        runs = bank.runs()
        last, killed = (run for run in runs if run.kind == "cycle")
        # what the killed dream had written is whole, journalled and undone like any other repair
        assert any(run.parent == killed.run_id for run in runs)
        for run in (last, killed):
            bank.undo(run.run_id)
        status = bank.status()
        assert (status.derived, status.keys, status.edges) == (0, 0, 0)
        memories = [memory for memory in bank if not memory.state.deleted]
        assert (len(memories), {memory.state.weight for memory in memories}) == (PAGES, {1.0})


@pytest.mark.usefixtures("cluster")
def test_tenants_of_a_server_with_postgresql_dream_at_the_same_time(
    chroma_server: str, postgres_url: str, tmp_path: Path, words: Any
) -> None:
    name, out = f"fleet-ray-{uuid.uuid4().hex[:8]}", tmp_path / "fleet.jsonl"
    tenants = ("ada", "bob", "cem", "dot", "eve", "fay")
    for tenant in tenants:
        fill(chroma_server, name, words, tenant=tenant, state=postgres_url)
    jobs, without = jobs_of_tenants(chroma_server, name, "user", state=postgres_url)
    assert ([job.where for job in jobs], without) == ([{"user": tenant} for tenant in tenants], 0)
    with (
        MemoryBank.open(chroma_server, name, where={"user": "eve"}, state_url=postgres_url) as held,
        held.state.lock("sweep"),
    ):
        report = DreamFleet(jobs, config(lock_wait=0.5), workers=2, out=out).run()
    assert report.counts == {"done": 5, "skipped": 0, "failed": 0, "locked": 1, "left": 0}, report.outcomes
    report = DreamFleet(jobs, config(), workers=2, out=out).run()
    assert report.counts == {"done": 1, "skipped": 5, "failed": 0, "locked": 0, "left": 0}
    assert [outcome.memories for outcome in report.outcomes] == [PAGES] * 6
    assert all(outcome.repairs > 0 and outcome.attempts == 1 for outcome in report.outcomes)
    assert "postgresql" not in out.read_text()

    # each tenant has its own dream and no other's, and takes it back without touching the others
    assert [[run.run_id for run in cycles(job)] for job in jobs] == [[one.run_id] for one in report.outcomes]
    with MemoryBank.open(chroma_server, name, state_url=postgres_url) as whole:
        before = {memory.id: memory for memory in whole if memory.metadata["user"] != "bob"}
        with MemoryBank.open(chroma_server, name, where=jobs[1].where, state_url=postgres_url) as bob:
            bob.undo(str(report.outcomes[1].run_id))
            assert bob.status().derived == 0
        assert {memory.id: memory for memory in whole if memory.metadata["user"] != "bob"} == before


@pytest.mark.usefixtures("cluster")
def test_stopping_and_what_cannot_start(tmp_path: Path, words: Any) -> None:
    jobs = made_banks(tmp_path, 4, words)
    finished: list[int] = []
    report = DreamFleet(jobs, config(), workers=2).run(
        progress=lambda _, done, __: finished.append(done), stop=lambda: bool(finished and finished[-1])
    )
    assert report.counts["done"] in {1, 2}
    assert report.left == 4 - report.counts["done"]
    assert sum(len(cycles(job)) for job in jobs) == report.counts["done"]
    with pytest.raises(
        FleetError, match="a worker cannot make the embedder: OSError: the model's file is gone"
    ):
        DreamFleet(jobs, config(embedder=broken), workers=1).run()


@pytest.mark.usefixtures("cluster")
def test_what_a_worker_cannot_import_is_named(
    tmp_path: Path, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = made_banks(tmp_path, 1, words)
    module = tmp_path / "fleet_gone_module.py"
    module.write_text("def embedder():\n    raise RuntimeError\n")
    monkeypatch.syspath_prepend(tmp_path)
    gone = importlib.import_module(module.stem)
    module.unlink()
    with pytest.raises(
        FleetError,
        match=r"3 workers in a row died .*ModuleNotFoundError: No module named 'fleet_gone_module'",
    ):
        DreamFleet(jobs, config(embedder=gone.embedder), workers=1).run()
    assert cycles(jobs[0]) == []
