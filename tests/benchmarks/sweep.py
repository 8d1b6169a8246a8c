"""What a forgetting sweep costs beyond reading the bank, size by size, each in a process of its own.

Run by ``make bench-sweep``; prints and writes JSON. Per memory: nanoseconds by the clock and of CPU, the
least of a few tries; what else the machine does disturbs the clock more than the CPU: compare within a run.
An iteration's cost is the difference between a long and a short sweep, which leaves the reading out. Peak
memory is that of the process after the scalar sweeps, the bank of random vectors included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from shared_core import ForgettingConfig, MemoryBank
from shared_core.dynamics import SweepState, forgetting_sweep, measure
from shared_core.dynamics.blocks import Workers, blocks
from shared_core.dynamics.running_moments import Moments

DIMENSION = 384
SHORT, LONG = 2, 12
TRIES = 4
BATCH = 5_000


def unit_vectors(rows: int) -> np.ndarray:
    """Return random unit vectors, (rows, d) float32, without a copy of them."""
    rng = np.random.default_rng(0)
    matrix = np.empty((rows, DIMENSION), np.float32)
    for start in range(0, rows, BATCH):
        block = rng.standard_normal((min(BATCH, rows - start), DIMENSION), dtype=np.float32)
        matrix[start : start + BATCH] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return matrix


def least(action: Callable[[], Any], tries: int = TRIES) -> np.ndarray:
    """Return seconds by the clock and of CPU, (2,), the least of a few tries."""
    took = []
    for _ in range(tries):
        began, used = time.perf_counter(), cpu_seconds()
        action()
        took.append((time.perf_counter() - began, cpu_seconds() - used))
    return np.min(took, axis=0)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it started and that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure_size(rows: int) -> dict[str, Any]:
    """Return nanoseconds per memory, (clock, CPU), of each part of a sweep."""
    matrix = unit_vectors(rows)
    state = SweepState(np.ones(rows), np.zeros(rows), np.ones(rows))
    rng = np.random.Generator(np.random.SFC64(0))
    found: dict[str, Any] = {"rows": rows}

    def ns(action: Callable[[], Any], tries: int = TRIES) -> np.ndarray:
        return 1e9 * least(action, tries) / rows

    def sweeping(threads: int, probe: Any, iterations: int, arrays: Any = None) -> Callable[[], Any]:
        config = ForgettingConfig(probe=probe, iterations=iterations)
        return lambda: forgetting_sweep(matrix, state, config, rng, threads=threads, arrays=arrays)

    def iteration(threads: int, arrays: Any = None) -> np.ndarray:
        long, short = (ns(sweeping(threads, "scalar", count, arrays)) for count in (LONG, SHORT))
        return (long - short) / (LONG - SHORT)

    def reading(workers: Workers) -> dict[str, np.ndarray]:
        parts = blocks(rows, BATCH)
        return {
            "read": ns(lambda: workers.map(lambda _, part: matrix[part].max(), parts)),
            "prep": ns(lambda: measure(matrix, workers=workers)),
            "prep, sum known": ns(lambda: measure(matrix, norms=norms, total=total, workers=workers)),
        }

    norms, total = np.ones(rows), Moments.of(matrix).total
    for threads in (1, 2):
        with Workers(threads) as workers:
            took = reading(workers)
        took["iteration"] = iteration(threads)
        found[f"{threads} threads"] = took
    found["peak MB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if find_spec("torch") is not None:
        import torch

        from shared_core.device.torch_arrays import TorchArrays

        torch.set_num_threads(1)
        found["1 threads"]["iteration, torch on the CPU"] = iteration(1, TorchArrays("cpu"))
    found["1 threads"]["iteration, literal"] = ns(sweeping(1, "full", 1), tries=1)
    for name in ("1 threads", "2 threads"):
        found[name] = {key: np.round(value, 1).tolist() for key, value in found[name].items()}
    return found


def measure_stored(rows: int, folder: Path) -> Iterator[tuple[str, list[float]]]:
    """Yield seconds, (clock, CPU), of sweeps of a stored bank; nothing is written but the cache."""
    with MemoryBank.open(folder, "bench", create=True) as bank:
        matrix = unit_vectors(rows)
        for start in range(0, rows, BATCH):
            part = range(start, min(start + BATCH, rows))
            bank.add([f"memory {i}" for i in part], ids=[f"m{i}" for i in part], embeddings=matrix[part])
        config = ForgettingConfig.preset("paper")
        sweep = lambda: bank.sweep(config, dry_run=True)  # noqa: E731
        yield "first", least(sweep, 1).tolist()
        yield "again", least(sweep).tolist()
        bank.add(["one more"], ids=["more"], embeddings=matrix[:1])
        yield "after one more", least(sweep, 1).tolist()


def main() -> None:
    """Measure, print and write; with ``--size`` or ``--stored`` one record of this process, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--stored-rows", type=int, nargs="*", default=[10_000])
    parser.add_argument("--out", type=Path, default=Path(".benchmarks/sweep.json"))
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--stored", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.size:
        print(json.dumps(measure_size(given.size)))  # noqa: T201
        return
    if given.stored:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({"stored": given.stored, **dict(measure_stored(given.stored, Path(folder)))}))  # noqa: T201
        return
    records = []
    for option, sizes in (("--size", given.rows), ("--stored", given.stored_rows)):
        for rows in sizes:
            command = [sys.executable, "-m", "tests.benchmarks.sweep", option, str(rows)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            records.append({"load average": os.getloadavg(), **json.loads(done.stdout)})
            print(json.dumps(records[-1], indent=1), flush=True)  # noqa: T201
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps(records, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
