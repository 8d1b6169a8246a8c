"""Blocks of a bank, and threads that work on them.

Does: cuts a bank into blocks whose temporaries stay in cache, and runs a function over them in several
threads (numpy lets go of the interpreter while it computes and draws). Blocks have a fixed size and results
come in their order, so no result depends on the number of threads.

Does not know: what is computed.

Source: none, ours [O].
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

import numpy as np

from shared_core.errors import ConfigError

BLOCK = 16_384
"""Memories at once: 128 KB per column in double precision. A seed's random stream depends on it."""
_RUNS_PER_THREAD = 4
"""So that a thread which the machine holds up is not waited for with half of the work."""

_KEPT_BYTES = 1 << 22

T = TypeVar("T")


def blocks(count: int, step: int = BLOCK) -> list[slice]:
    """Return the slices that cut ``count`` rows into blocks of ``step``, the last one shorter."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def available_threads() -> int:
    """Return how many threads to use: the processors of this process, or fewer if OMP_NUM_THREADS says so."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(count, int(asked)) if asked.isdigit() and int(asked) else count


class Workers:
    """Threads for one sweep; a context manager, which ends them.

    Args:
        threads: How many, 1 or more; None for ``available_threads``.

    Raises:
        ConfigError: ``threads`` is below 1.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = available_threads() if threads is None else threads
        if self.threads < 1:
            raise ConfigError(f"threads={threads!r} must be 1 or more")
        self._pool: ThreadPoolExecutor | None = None

    def map(self, task: Callable[[int, slice], T], parts: Sequence[slice]) -> list[T]:
        """Return ``task(number, part)`` of each part, in order; the tasks run in several threads."""
        if self.threads == 1 or len(parts) < 2:
            return [task(number, part) for number, part in enumerate(parts)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="sweep")

        def run(numbers: slice) -> list[T]:
            return [task(number, parts[number]) for number in range(numbers.start, numbers.stop)]

        runs = blocks(len(parts), max(1, len(parts) // (_RUNS_PER_THREAD * self.threads)))
        return list(chain.from_iterable(self._pool.map(run, runs)))

    def __enter__(self) -> Workers:
        # glibc returns the pages of every freed temporary until a mapping larger than those was freed once,
        # and keeps them from then on: with this an iteration in a fresh process took 33 % less CPU at 10,000
        # memories and 15 % less at 100,000
        np.empty(_KEPT_BYTES, np.uint8)
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


SERIAL = Workers(threads=1)
"""Everything in the calling thread."""
