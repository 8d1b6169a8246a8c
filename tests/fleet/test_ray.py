"""A fleet on a real local Ray: parallel dreams, killed workers, held banks, tenants of a server."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.embedding import SentenceTransformerEmbedder, WordLlamaEmbedder
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
def test_tenants_of_a_server_dream_at_the_same_time(chroma_server: str, tmp_path: Path, words: Any) -> None:
    state = f"sqlite:///{tmp_path / 'state.sqlite3'}"
    name = f"fleet-ray-{tmp_path.name}"
    for tenant in ("ada", "bob", "cem", "dot"):
        fill(chroma_server, name, words, tenant=tenant, state=state)
    jobs, without = jobs_of_tenants(chroma_server, name, "user", state=state)
    assert (len(jobs), without) == (4, 0)
    report = DreamFleet(jobs, config(), workers=2).run()
    assert report.counts["done"] == 4, report.outcomes
    assert [outcome.memories for outcome in report.outcomes] == [PAGES] * 4
    assert [[run.run_id for run in cycles(job)] for job in jobs] == [[one.run_id] for one in report.outcomes]


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


@pytest.mark.slow
def test_five_hundred_banks(tmp_path: Path, embedder: SentenceTransformerEmbedder) -> None:
    """MiniLM, the default options of a dream, two workers; prints what a bank costs."""
    from shared_core.fleet import FleetConfig

    [first] = made_banks(tmp_path / "made", 1, embedder)
    jobs = []
    for number in range(500):
        place = tmp_path / f"{number:03d}"
        shutil.copytree(first.location, place)
        jobs.append(FleetJob(location=str(place), collection="talks"))
    out = tmp_path / "fleet.jsonl"
    began = time.monotonic()
    report = DreamFleet(jobs, FleetConfig(), workers=2, out=out).run()
    seconds = time.monotonic() - began
    per_bank = sorted(outcome.seconds for outcome in report.outcomes)
    # read with -s
    sys.stdout.write(
        f"\n500 banks of {PAGES}: {seconds:.1f} s, {seconds / 500:.3f} s each; in a worker "
        f"{per_bank[250]:.3f} s in the median, {per_bank[-1]:.3f} s at most\n"
    )
    assert report.counts == {"done": 500, "skipped": 0, "failed": 0, "locked": 0, "left": 0}
    assert all(outcome.repairs > 0 for outcome in report.outcomes)
    assert DreamFleet(jobs, FleetConfig(), workers=2, out=out).run().counts["skipped"] == 500
