"""What the three agents of a dream say to each other, and the protocols that each implementation satisfies.

All three are pure: they read a snapshot of the memory graph and what retrieval returned, and propose. Only
the cycle writes.

Source: MemDream section 3.2 (probes with verbatim answers, the 2 x 2 taxonomy) [S]; the rank-based F1 of a
probe is ours [O], since no reader answers here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.repairing import Repair

QueryType = Literal["fact", "who", "when", "number", "name", "bridge"]
Weakness = Literal["isolated", "redundant", "stale"]
Category = Literal["buried", "scattered", "redundant", "noisy"]
RepairOperation = Literal["extract", "synthesize", "merge", "prune"]

OPERATION_OF: Mapping[Category, RepairOperation] = {
    "buried": "extract",
    "scattered": "synthesize",
    "redundant": "merge",
    "noisy": "prune",
}
"""Section 3.2, Analyst: one repair for each cell of the taxonomy [S]."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A weak memory to ask about."""

    row: int
    """In the graph."""
    partner: int | None
    """Its bridge partner (Eq. 4), if it has one."""
    weakness: Weakness
    """Which term of Eq. 3 weighs most."""
    score: float
    """phi(v)."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A question that the memory should be able to answer."""

    query: str
    expected_answer: str
    """A verbatim slice of a target's text."""
    targets: tuple[str, ...]
    """Ids of the memories that should be retrieved, at least one."""
    query_type: QueryType
    weakness: Weakness

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "targets": list(self.targets)}


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """What a probe retrieved."""

    ids: tuple[str, ...]
    """Best first, at most k."""
    f1: float
    """In [0, 1]: of the ranking, cut at the last target that it holds."""
    recall: float
    """Share of the targets found; a derived memory counts for what it quotes."""
    confidence: float
    """Score of the best, in [0, 1] of what is possible."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "ids": list(self.ids)}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why a probe failed, and what would help."""

    probe: Probe
    category: Category
    targets: tuple[str, ...]
    """Ids of the memories to repair."""
    confidence: float
    """In [0, 1]."""
    rationale: str
    """For people; quotes no memory."""

    @property
    def operation(self) -> RepairOperation:
        """The repair that the category asks for."""
        return OPERATION_OF[self.category]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "category": self.category,
            "operation": self.operation,
            "targets": list(self.targets),
            "confidence": self.confidence,
            "rationale": self.rationale,
        }


class Search(Protocol):
    """Retrieval over the snapshot."""

    def retrieve(self, query: str, k: int) -> list[int]:
        """Return at most k rows of the graph, best first."""
        ...


class Dreamer(Protocol):
    """Asks about weak memories."""

    def probe(self, graph: MemoryGraph, targets: Sequence[Target], *, seed: int) -> list[Probe]:
        """Return probes, the same ones under the same seed; every answer is a slice of a target's text."""
        ...


class Analyst(Protocol):
    """Says why probes failed."""

    def diagnose(self, graph: MemoryGraph, failures: Sequence[tuple[Probe, Retrieval]]) -> list[Diagnosis]:
        """Return diagnoses, worst first; what cannot be explained is left out."""
        ...


class Consolidator(Protocol):
    """Turns a diagnosis into a repair."""

    def propose(self, graph: MemoryGraph, diagnosis: Diagnosis) -> Repair | None:
        """Return a repair, not applied; None where nothing can be done without losing or inventing."""
        ...
