"""What a dream does by default: a forgetting sweep, a dream cycle, or one after the other.

Knows nothing of threads, triggers and retries; the same object runs from cron, a server's background run or
the scheduler.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from shared_core.agents import DreamCycle
from shared_core.config import ForgettingConfig

if TYPE_CHECKING:
    from shared_core.agents.cycle_report import Approve, DreamEvent
    from shared_core.bank import MemoryBank
    from shared_core.scheduling.requests import DreamRequest


class BankDream:
    """The default dream of a bank.

    Args:
        bank: With an embedder.
        sweep: Settings of the forgetting sweep; default: preset ``hardened``.
        cycle: The ``DreamCycle`` to run; default: one of rule-based agents.
        approve: Asked before a repair is written, on the worker's thread; False leaves it. Default: all
            are written.
    """

    def __init__(
        self,
        bank: MemoryBank,
        *,
        sweep: ForgettingConfig | None = None,
        cycle: DreamCycle | None = None,
        approve: Approve | None = None,
    ) -> None:
        self._bank = bank
        self._sweep_config = sweep or ForgettingConfig.preset("hardened")
        self._cycle_agents = cycle
        self._approve = approve

    def __call__(self, request: DreamRequest) -> dict[str, Any]:
        """Run what the request asks for, except the parts that an earlier try finished.

        A sweep that is told to stop writes nothing; a cycle keeps the repairs made so far.

        Returns:
            ``{"kind", "sweep": report or None, "cycle": report or None, "stopped_by": None or "cancelled"}``.

        Raises:
            BankLockedError: Another dreamer is at work.
            DreamError: What a sweep or a cycle raises.
        """
        stopped = False
        for part in ("sweep", "cycle") if request.kind == "both" else (request.kind,):
            stopped = stopped or request.should_stop()
            if stopped or part in request.done:
                continue
            try:
                report = self._sweep(request) if part == "sweep" else self._cycle(request)
            except _StoppedError:
                stopped = True
                continue
            stopped = report.get("stopped_by") == "cancelled"
            request.done[part] = report
            request.emit("part", {"part": part, "report": report})
        return {
            "kind": request.kind,
            "sweep": request.done.get("sweep"),
            "cycle": request.done.get("cycle"),
            "stopped_by": "cancelled" if stopped else None,
        }

    def _sweep(self, request: DreamRequest) -> dict[str, Any]:
        def progress(_stage: str, _done: int, _total: int) -> None:
            # before the sweep's one transaction, so leaving here leaves the bank as it was
            if request.should_stop():
                raise _StoppedError

        return self._bank.sweep(self._sweep_config, progress=progress).to_dict()

    def _cycle(self, request: DreamRequest) -> dict[str, Any]:
        cycle = self._cycle_agents or DreamCycle(self._bank)
        report = cycle.run(stop=request.should_stop, on_event=partial(tell, request), approve=self._approve)
        return report.to_dict()


def tell(request: DreamRequest, event: DreamEvent) -> None:
    """Pass on what a cycle tells, but its beginning and end, which are the request's own."""
    if event.kind not in {"start", "end"}:
        request.emit(event.kind, {"round": event.round, "data": dict(event.data)})


class _StoppedError(Exception):
    """Leaves a sweep that was told to stop."""
