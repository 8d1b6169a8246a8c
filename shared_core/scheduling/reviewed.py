"""A dream that asks before it repairs: it proposes in the background, and makes what was accepted later.

Knows no framework and no person: the caller takes the ``offer``, asks, and ``decide``s. A forgetting sweep is
not asked about: it changes weights only.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared_core.agents import DreamCycle
from shared_core.agents.approved import make_approved, texts_of
from shared_core.scheduling.job import BankDream, tell

if TYPE_CHECKING:
    from shared_core.agents import KeptRepair
    from shared_core.bank import MemoryBank
    from shared_core.config import ForgettingConfig
    from shared_core.scheduling.requests import DreamRequest

APPROVED = "approved"
"""Reason to request the dream that makes what was accepted; it proposes nothing new."""
MOST_HELD = 1_000
"""Proposals that are kept until somebody decides; the oldest go first."""
Held = tuple["KeptRepair", Mapping[str, str]]


class ReviewedDream:
    """A scheduler's ``dream`` that writes no repair unless its id was accepted.

    Accepted repairs are written as they were proposed. Those that another process proposed are looked for
    in a new cycle, and made if it proposes the same: as long as the bank has not changed, it does. What was
    turned down is not proposed again by this process.

    Args:
        bank: With an embedder.
        cycle: What proposes; default: a cycle of rule-based agents.
        sweep: Settings of the forgetting sweep; default: preset ``hardened``.
    """

    def __init__(
        self, bank: MemoryBank, *, cycle: DreamCycle | None = None, sweep: ForgettingConfig | None = None
    ) -> None:
        self._bank = bank
        self._given = cycle
        self._cycle = cycle or DreamCycle(bank)
        self._sweep_config = sweep
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}
        self._new: list[str] = []
        self._accepted: dict[str, Held | None] = {}
        self._settled: set[str] = set()

    def __eq__(self, other: object) -> bool:
        """Tell whether two of one bank do the same."""
        return isinstance(other, ReviewedDream) and (self._given, self._sweep_config) == (
            other._given,
            other._sweep_config,
        )

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, request: DreamRequest) -> dict[str, Any]:
        """Make what was accepted, then sweep and propose as the request asks; returns a ``BankDream`` report.

        Raises:
            BankLockedError: Another dreamer is at work; what was accepted stays so.
        """
        report: dict[str, Any] = {"kind": request.kind, "sweep": None, "cycle": None, "stopped_by": None}
        with self._lock:
            accepted = dict(self._accepted)
        if known := {key: held for key, held in accepted.items() if held is not None}:
            report["cycle"] = self._make(request, known)
            report["stopped_by"] = _cancelled(report["cycle"])
        if (unknown := accepted.keys() - known.keys()) and report["stopped_by"] is None:
            report["cycle"] = self._find(request, frozenset(unknown))
            report["stopped_by"] = _cancelled(report["cycle"])
        if request.kind != "cycle" and report["stopped_by"] is None:
            swept = BankDream(self._bank, sweep=self._sweep_config)(replace(request, kind="sweep"))
            report.update(sweep=swept["sweep"], stopped_by=swept["stopped_by"])
        if request.kind != "sweep" and request.reasons != [APPROVED] and report["stopped_by"] is None:
            proposed = self._propose(request)
            report["cycle"] = report["cycle"] or proposed
            report["stopped_by"] = _cancelled(proposed)
        return report

    def offer(self) -> list[dict[str, Any]]:
        """Return the proposals of the last dream, once, as plain JSON; the caller is to ask about them."""
        with self._lock:
            offered, self._new = self._new, []
            return [self._held[key][0].proposal.to_dict() for key in offered]

    def decide(self, offered: Collection[str], accepted: Collection[str]) -> None:
        """Take a decision about what was offered; request a dream for ``APPROVED`` to carry it out."""
        with self._lock:
            for key in offered:
                held = self._held.pop(key, None)
                if key in accepted and key not in self._settled:
                    self._accepted[key] = held
            self._settled.update(offered)
            self._new = [key for key in self._new if key in self._held]

    def _make(self, request: DreamRequest, accepted: Mapping[str, Held]) -> dict[str, Any]:
        report = make_approved(
            self._bank,
            list(accepted.values()),
            stop=request.should_stop,
            on_repair=lambda repair: request.emit("repair", {"round": repair["round"], "data": repair}),
            tenant_keys=self._cycle.config.tenant_keys,
        )
        if _cancelled(report) is None:
            self._finish(accepted)
        return report

    def _find(self, request: DreamRequest, accepted: frozenset[str]) -> dict[str, Any]:
        report = self._cycle.run(
            stop=request.should_stop,
            on_event=partial(tell, request),
            approve=lambda repair: repair.id in accepted,
        ).to_dict()
        if _cancelled(report) is None:
            self._finish(accepted)
        return report

    def _finish(self, accepted: Collection[str]) -> None:
        with self._lock:
            for key in accepted:
                self._accepted.pop(key, None)

    def _propose(self, request: DreamRequest) -> dict[str, Any]:
        report = self._cycle.run(dry_run=True, stop=request.should_stop)
        found = {kept.proposal.id: (kept, texts_of(self._bank, kept.repair)) for kept in report.repairs}
        with self._lock:
            self._new = [key for key in found if key not in self._settled]
            self._held.update({key: found[key] for key in self._new})
            while len(self._held) > MOST_HELD:
                self._held.pop(next(iter(self._held)))
            count = len(self._new)
        request.emit("proposed", {"proposed": count})
        return report.to_dict()


def _cancelled(report: Mapping[str, Any]) -> str | None:
    return "cancelled" if report.get("stopped_by") == "cancelled" else None
