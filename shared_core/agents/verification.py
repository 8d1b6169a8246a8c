"""Tries a repair on the probes of a cycle before it is written: it must help one and harm none.

Source: MemDream section 3.2 and appendix L: repairs are verified by asking again [S]; that no other probe
may get worse is ours [O].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.agents.probe_index import ProbeIndex
    from shared_core.agents.protocol import Probe, Retrieval
    from shared_core.bank.repairing import Repair
    from shared_core.types import FloatArray

TOLERANCE = 1e-9
NO_GAIN, HARM = "does not help its probe", "makes another probe worse"
LATE = "the time was up before every probe had been asked again"


@dataclass(frozen=True)
class Trial:
    """What a repair would do to the probes."""

    before: float
    """F1 of its own probe."""
    after: float
    refused: str | None
    """Why it is not kept; None if it is good."""
    outcomes: dict[Probe, Retrieval]
    """Of the probes that were asked again, with the repair."""
    weights: FloatArray
    """Of the index before it, shape (N,)."""


class Verifier:
    """All probes that a cycle has asked, with what they retrieve now.

    Args:
        index: What they search.
        k: How many memories a probe retrieves.
        late: Tells, between two probes, whether to give up; what is not verified is not kept.
    """

    def __init__(self, index: ProbeIndex, k: int, late: Callable[[], bool] | None = None) -> None:
        self.index = index
        self.k = k
        self._late = late
        self.now: dict[Probe, Retrieval] = {}
        self.first: dict[Probe, float] = {}
        """F1 of each probe when it was first asked."""

    def ask(self, probes: Sequence[Probe]) -> list[Retrieval]:
        """Ask new probes, and remember what they retrieve."""
        self.index.learn([probe.query for probe in probes])
        found = []
        for probe in probes:
            outcome = self.now.get(probe) or self.index.ask(probe, self.k)
            self.now[probe] = outcome
            self.first.setdefault(probe, outcome.f1)
            found.append(outcome)
        return found

    def mean_f1(self, probes: Sequence[Probe]) -> float:
        """Return the mean F1 of some probes as the memory is now; 1 where nothing was asked."""
        return float(np.mean([self.now[probe].f1 for probe in probes])) if probes else 1.0

    def attempt(self, repair: Repair, vectors: FloatArray, probe: Probe) -> Trial:
        """Suppose a repair and ask every probe again; a refused one is taken back at once.

        Args:
            repair: The repair.
            vectors: Embeddings of its derived memories, shape (M, d).
            probe: The one that it is made for.
        """
        weights = self.index.weights.copy()
        self.index.suppose(repair, vectors)
        before, own = self.now[probe].f1, self.index.ask(probe, self.k)
        refused, outcomes = None, {probe: own}
        if own.f1 <= before + TOLERANCE:
            refused = NO_GAIN
        else:
            refused = self._others(self._open(repair, probe, weights), vectors, outcomes)
        if refused is not None:
            self.index.forget(repair, weights)
        return Trial(before, own.f1, refused, outcomes, weights)

    def _open(self, repair: Repair, probe: Probe, weights: FloatArray) -> list[Probe]:
        """Return the other probes that may now retrieve something else.

        Where memories that a probe does not retrieve lose weight, the rest keeps its order: ranks do not
        depend on weights.
        """
        others = [one for one in self.now if one != probe]
        if repair.memories or bool((self.index.weights > weights).any()):
            return others
        return [one for one in others if not repair.weights.keys().isdisjoint(self.now[one].ids)]

    def _others(
        self, others: list[Probe], vectors: FloatArray, outcomes: dict[Probe, Retrieval]
    ) -> str | None:
        """Ask other probes and return why a repair is refused, None if none got worse.

        Those nearest to what is new come first, and those that found nothing last: they cannot get worse.
        """
        near = self.index.nearness([one.query for one in others], vectors)
        lost = np.array([self.now[one].f1 <= 0.0 for one in others], bool)
        for at in np.lexsort((-near, lost)).tolist():
            if self._late is not None and self._late():
                return LATE
            outcomes[others[at]] = self.index.ask(others[at], self.k)
            if outcomes[others[at]].f1 < self.now[others[at]].f1 - TOLERANCE:
                return HARM
        return None

    def take_back(self, repair: Repair, trial: Trial) -> None:
        """Forget a repair that was good and is not written after all."""
        self.index.forget(repair, trial.weights)

    def accept(self, trial: Trial) -> None:
        """Take up the outcomes of a repair that was written."""
        self.now.update(trial.outcomes)
