"""Five hundred banks on a real local Ray, to the end: stopped, with a worker killed, and resumed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.bank.chroma_client import opened_client
from shared_core.bank.derived import is_derived
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import FleetError
from shared_core.fleet import DreamFleet, FleetConfig, FleetJob, FleetReport
from tests.fleet.parts import PAGES, made_banks
from tests.fleet.processes import DREAMING, Costs, workers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="RAY IS MISSING: install the extra `ray`"
    ),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
BANKS = int(os.environ.get("DREAM_TEST_BANKS", "500"))
KILL_AT, STOP_AT = BANKS // 5, BANKS // 2


def copies(folder: Path, embedder: SentenceTransformerEmbedder) -> list[FleetJob]:
    [first] = made_banks(folder / "made", 1, embedder)
    jobs = []
    for number in range(BANKS):
        place = folder / f"{number:03d}"
        shutil.copytree(first.location, place)
        jobs.append(FleetJob(location=str(place), collection="talks"))
    return jobs


def run(fleet: DreamFleet, **options: Any) -> FleetReport:
    try:
        return fleet.run(**options)
    except FleetError as error:
        if "cannot be reached or started" not in str(error):
            raise
        pytest.skip(f"RAY DID NOT START, at load {os.getloadavg()[0]:.0f}: {error}")


def test_five_hundred_banks(tmp_path: Path, embedder: SentenceTransformerEmbedder) -> None:
    """MiniLM, the default options of a dream, two workers; prints what a bank costs: read with -s."""
    jobs, out, costs = copies(tmp_path, embedder), tmp_path / "fleet.jsonl", Costs()
    killed: list[int] = []
    finished = 0

    def watch(_stage: str, done: int, _total: int) -> None:
        nonlocal finished
        finished = done
        costs.look()

    def stop() -> bool:
        """Asked all the time: kills a worker in mid-dream on the way."""
        if finished >= KILL_AT and not killed and (dreaming := workers(DREAMING)):
            time.sleep(0.3)
            os.kill(dreaming[0], signal.SIGKILL)
            killed.append(dreaming[0])
        return finished >= STOP_AT

    began, clock = time.time(), time.monotonic()
    first = run(DreamFleet(jobs, FleetConfig(), workers=2, out=out), progress=watch, stop=stop)
    start = min(outcome.at - outcome.seconds for outcome in first.outcomes) - began
    assert (first.lost_workers, len(killed)) == (1, 1)
    assert first.counts["done"] in {STOP_AT, STOP_AT + 1}
    assert first.counts["left"] == BANKS - first.counts["done"]

    second = run(DreamFleet(jobs, FleetConfig(), workers=2, out=out), progress=watch)
    seconds = time.monotonic() - clock
    assert second.counts == {
        "done": first.counts["left"], "skipped": first.counts["done"], "failed": 0, "locked": 0, "left": 0
    }  # fmt: skip
    assert second.lost_workers == 0
    report(second, costs, seconds, start)

    known = {outcome.id: outcome.run_id for outcome in first.outcomes}
    assert all(known.get(one.id, one.run_id) == one.run_id for one in second.outcomes)
    # what a killed dream had repaired already stays, and need not be repaired again
    assert all(outcome.repairs > 0 for outcome in second.outcomes if outcome.attempts == 1)
    assert sum(outcome.attempts > 1 for outcome in second.outcomes) <= 1
    whole(jobs, second)
    third = run(DreamFleet(jobs, FleetConfig(), workers=2, out=out))
    assert (third.counts["skipped"], third.counts["done"]) == (BANKS, 0)
    shutil.rmtree(tmp_path)


def whole(jobs: list[FleetJob], report: FleetReport) -> None:
    """Check that every bank has its memories, and the dream that was reported; a second only where killed."""
    twice = 0
    for job, outcome in zip(jobs, report.outcomes, strict=True):
        # or 500 indexes stay open
        with opened_client(job.location) as client, MemoryBank.open(client, job.collection) as bank:
            cycles = [one.run_id for one in bank.runs() if one.kind == "cycle" and one.status == "applied"]
            assert cycles[0] == outcome.run_id
            assert len(cycles) <= outcome.attempts
            twice += len(cycles) > 1
            originals = [memory for memory in bank if not is_derived(memory.id)]
            assert (len(originals), sum(one.state.deleted for one in originals)) == (PAGES, 0)
    assert twice <= 1


def report(last: FleetReport, costs: Costs, seconds: float, start: float) -> None:
    each = sorted(outcome.seconds for outcome in last.outcomes)
    processor = sum(costs.worker_seconds.values()) / BANKS
    memory = max(costs.worker_bytes.values()) / 2**20
    sys.stdout.write(
        f"\n{BANKS} banks of {PAGES}, 2 workers, two runs: {seconds:.1f} s, {seconds / BANKS:.3f} s each at "
        f"load {os.getloadavg()[1]:.1f}\n"
        f"in a worker: {each[BANKS // 2]:.3f} s in the median, {each[int(BANKS * 0.95)]:.3f} s at 95 %, "
        f"{each[-1]:.3f} s at most; {processor:.3f} s of one core each, loading included\n"
        f"from the command to the first dream: {start:.1f} s\n"
        f"workers' most memory: {memory:.0f} MiB each (largest); Ray's own {costs.own_processes} processes: "
        f"{costs.own_bytes / 2**20:.0f} MiB\n"
    )
