"""Makes the repairs that a dry run of the cycle proposed and that somebody approved meanwhile.

They are written as they were proposed, whatever came into the bank since; one whose memories were rewritten,
forgotten or flagged since is left out. Decides nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shared_core.agents.writing import begin_cycle, write_repair
from shared_core.bank.repairing import Repair, remove_unborn
from shared_core.bank.tenants import FIELD, known_tenant_keys
from shared_core.errors import InvalidMemoryError, MemoryNotFoundError

if TYPE_CHECKING:
    from shared_core.agents.cycle_report import KeptRepair
    from shared_core.bank import MemoryBank
    from shared_core.bank.lock import BankLock

logger = logging.getLogger(__name__)


def texts_of(bank: MemoryBank, repair: Repair) -> dict[str, str]:
    """Return the texts that a repair reads, by id, as they are now; for ``make_approved``."""
    quoted = {source for memory in repair.memories for source in memory.sources}
    read = quoted | set(repair.weights) | {key.memory_id for key in repair.keys}
    return {memory_id: record.text for memory_id, record in bank.content.get(sorted(read)).items()}


def make_approved(
    bank: MemoryBank,
    proposals: Sequence[tuple[KeptRepair, Mapping[str, str]]],
    *,
    stop: Callable[[], bool] | None = None,
    on_repair: Callable[[dict[str, Any]], None] | None = None,
    tenant_keys: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Write approved repairs as one cycle, which one ``undo`` takes back.

    Args:
        bank: The bank.
        proposals: What was proposed, with ``texts_of`` it then.
        stop: Asked between repairs; True ends it there, and what was made stays.
        on_repair: Told of each repair that was made, as plain JSON.
        tenant_keys: As in ``DreamConfig``.

    Returns:
        ``{"run_id", "dry_run": False, "repairs": [...], "left": {id: why}, "stopped_by", "seconds"}``.

    Raises:
        BankLockedError: Another dreamer is at work; nothing was written.
    """
    began = time.perf_counter()
    made: list[dict[str, Any]] = []
    report: dict[str, Any] = {"dry_run": False, "repairs": made, "left": {}, "stopped_by": "approved"}
    with bank.state.lock("cycle", wait=0.0) as lock:
        remove_unborn(bank, lock)
        approved = [kept.proposal.id for kept, _texts in proposals]
        keys = known_tenant_keys(bank.state, tenant_keys)
        config = {"approved": approved, FIELD: list(keys)}
        run_id = report["run_id"] = begin_cycle(bank, lock, config)
        for kept, texts in proposals:
            if stop is not None and stop():
                report["stopped_by"] = "cancelled"
                break
            try:
                repair_id = _make(bank, kept.repair, texts, lock, run_id, keys)
            except (InvalidMemoryError, MemoryNotFoundError) as error:
                logger.info("an approved repair was not made: %s", error)
                report["left"][kept.proposal.id] = str(error)
                continue
            made.append({"run_id": repair_id, "round": kept.round, **kept.proposal.to_dict()})
            if on_repair is not None:
                on_repair(made[-1])
        report["seconds"] = time.perf_counter() - began
        bank.state.amend_report(run_id, {**report, "repairs": [one["run_id"] for one in made]})
    return report


def _make(
    bank: MemoryBank,
    repair: Repair,
    texts: Mapping[str, str],
    lock: BankLock,
    parent: str,
    tenant_keys: Sequence[str],
) -> str:
    for memory_id, text in texts_of(bank, repair).items():
        if text != texts.get(memory_id):
            raise InvalidMemoryError(f"memory {memory_id!r} was rewritten since the repair was proposed")
    return write_repair(bank, repair, lock, parent, tenant_keys)
