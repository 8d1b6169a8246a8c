"""What the last searches returned with which scores, so that feedback can share its credit by them.

A memory's metadata are the user's, or whoever wrote the memory's: no score is taken from there, or a memory
could give itself all the credit of a task. Knows ids and scores only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from shared_core.errors import ConfigError

REMEMBERED_RUNS = 1_000


class GivenScores:
    """The last runs of one retriever; safe for threads.

    Args:
        capacity: How many runs are remembered.
    """

    def __init__(self, capacity: int = REMEMBERED_RUNS) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, dict[str, float]] = OrderedDict()

    def remember(self, scores: Mapping[str, float], run_id: str | None = None) -> None:
        """Keep what a run returned, and let go of the oldest run; a run without an id is found by its ids."""
        key = run_id or uuid4().hex
        with self._lock:
            self._runs[key] = dict(scores)
            self._runs.move_to_end(key)
            while len(self._runs) > self._capacity:
                self._runs.popitem(last=False)

    def of_memory(self, memory_id: str, shown: Any = None) -> float | None:
        """Return a score that we gave a memory, None where no remembered run returned it.

        Args:
            memory_id: The memory.
            shown: A score that only tells which one is meant, where there are several; else the last one is.
        """
        with self._lock:
            given = [scores[memory_id] for scores in reversed(self._runs.values()) if memory_id in scores]
        return next((score for score in given if score == shown), given[0] if given else None)

    def of_run(self, run_id: str) -> dict[str, float] | None:
        """Return the ids and scores of a run, None where it is not remembered."""
        with self._lock:
            found = self._runs.get(run_id)
            return None if found is None else dict(found)


def shared_credit(
    found: Mapping[str, float | None], what: str = "documents"
) -> tuple[list[str], list[float]]:
    """Return ids and scores for feedback; where one score is unknown, all share the credit equally.

    Args:
        found: Score of each memory that was retrieved for a task.
        what: How the adapter calls them, for the message.

    Raises:
        ConfigError: There are none.
    """
    if not found:
        raise ConfigError(f"feedback got no {what}: the search found none, so nothing can be credited")
    known = [score for score in found.values() if score is not None]
    return list(found), known if len(known) == len(found) else [0.0] * len(found)
