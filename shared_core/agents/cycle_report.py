"""What a dream cycle tells: events while it runs, proposals to be approved, and the report at its end.

Plain data; decides nothing. Texts of memories stand in it as they are: whoever shows them escapes them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from shared_core.agents.protocol import Diagnosis
    from shared_core.bank.repairing import Repair

logger = logging.getLogger(__name__)

EventKind = Literal["start", "round", "repair", "rejected", "end"]
StoppedBy = Literal["converged", "rounds", "repairs", "seconds", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class DreamEvent:
    """One step of a running cycle."""

    kind: EventKind
    round: int
    """From 1; 0 before the first."""
    data: Mapping[str, Any]
    """Plain JSON values."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


OnEvent = Callable[[DreamEvent], None]


def tell(on_event: OnEvent | None, kind: EventKind, number: int, data: Mapping[str, Any]) -> None:
    """Tell an observer of a step, in round ``number``; its failures are not the dream's."""
    if on_event is None:
        return
    try:
        on_event(DreamEvent(kind=kind, round=number, data=data))
    except Exception:
        logger.exception("an observer of the dream failed")


@dataclass(frozen=True, kw_only=True)
class ProposedRepair:
    """A repair that verification found good, before it is written."""

    id: str
    """A digest of what it changes: the same memories under the same options propose the same ids."""
    operation: str
    reason: str
    targets: tuple[str, ...] = field(repr=False)
    """Ids of the memories that it quotes or reweights."""
    text: str | None = field(repr=False)
    """Of the derived memory; None where it only reweights, or writes keys and edges."""
    weights: Mapping[str, float] = field(repr=False)
    """New w by id."""
    keys: int
    edges: int
    query: str | None = field(repr=False)
    """The probe that failed; None for a repair of many memories at once."""
    f1_before: float
    f1_after: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "targets": list(self.targets)}


Approve = Callable[[ProposedRepair], bool]


@dataclass(frozen=True, kw_only=True)
class KeptRepair:
    """A repair that was made."""

    run_id: str | None
    """For ``undo``; None in a dry run."""
    round: int
    proposal: ProposedRepair
    repair: Repair = field(repr=False)
    """Itself, so that what a dry run proposed can be made; no part of ``to_dict``."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, flat."""
        return {"run_id": self.run_id, "round": self.round, **self.proposal.to_dict()}


@dataclass(kw_only=True)
class RoundReport:
    """One round: what was asked, what failed, what was repaired and why the rest was not."""

    number: int
    pages: int
    """In the round's partition."""
    targets: int
    probes: int
    failures: int
    """Probes whose memories were not ranked first."""
    f1_before: float
    """Mean over the round's probes."""
    f1_after: float = 0.0
    diagnoses: dict[str, int] = field(default_factory=dict)
    """By category."""
    kept: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    """By reason."""
    seconds: float = 0.0
    tenant: dict[str, Any] = field(default_factory=dict)
    """Metadata of whose memories they were; empty where ``tenant_keys`` name none, or they have none."""


@dataclass(frozen=True, kw_only=True)
class CycleReport:
    """What one cycle did, or would do."""

    run_id: str | None
    """For ``undo``, which takes every repair back; None in a dry run."""
    dry_run: bool
    memories: int
    """In the bank when the cycle began."""
    usable: int
    """Of them neither derived, suspect nor forgotten: these are asked about and quoted."""
    tenants: int
    """Owners that ``tenant_keys`` tell apart; 1 where they name none."""
    dreamt: int
    """Of them, those whose memories were asked about before the time was up."""
    rounds: list[RoundReport]
    repairs: list[KeptRepair]
    f1_before: float
    """Mean over all probes of the cycle, before any repair."""
    f1_after: float
    stopped_by: StoppedBy
    agents: dict[str, Any]
    """What was asked of a chat model, and every fallback by reason; empty for rules."""
    seconds: float
    config: dict[str, Any]

    def __repr__(self) -> str:
        f1 = f"f1_before={self.f1_before:.3f}, f1_after={self.f1_after:.3f}"
        return (
            f"CycleReport(run_id={self.run_id!r}, dry_run={self.dry_run}, memories={self.memories}, "
            f"usable={self.usable}, rounds={len(self.rounds)}, repairs={len(self.repairs)}, {f1}, "
            f"stopped_by={self.stopped_by!r}, seconds={self.seconds:.1f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **values,
            "rounds": [asdict(one) for one in self.rounds],
            "repairs": [one.to_dict() for one in self.repairs],
        }


def proposed(repair: Repair, diagnosis: Diagnosis | None, before: float, after: float) -> ProposedRepair:
    """Return a repair as it is shown to whoever approves it."""
    quoted = {source for memory in repair.memories for source in memory.sources}
    named = quoted | set(repair.weights) | {key.memory_id for key in repair.keys}
    return ProposedRepair(
        id=digest(repair),
        operation=repair.operation,
        reason=repair.reason,
        targets=tuple(sorted(named)),
        text=repair.memories[0].text if repair.memories else None,
        weights=dict(repair.weights),
        keys=len(repair.keys),
        edges=len(repair.edges),
        query=diagnosis.probe.query if diagnosis else None,
        f1_before=before,
        f1_after=after,
    )


def digest(repair: Repair) -> str:
    """Return a digest of what a repair changes, without the random ids of its derived memories."""
    new = {memory.id for memory in repair.memories}
    content = [
        repair.operation,
        [[memory.text, sorted(memory.sources)] for memory in repair.memories],
        sorted((memory_id, round(weight, 9)) for memory_id, weight in repair.weights.items()),
        sorted(
            [*sorted("" if end in new else end for end in (edge.source, edge.target)), edge.kind]
            for edge in repair.edges
        ),
        sorted([key.memory_id, key.kind, key.text] for key in repair.keys),
    ]
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()[:16]
