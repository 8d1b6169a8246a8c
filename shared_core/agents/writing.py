"""Writing a cycle: its run in the journal, and each repair under it, whether dreamt, approved or associated.

Decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.repairing import apply_repair

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from shared_core.bank.lock import BankLock
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.bank.repairing import Repair


def begin_cycle(bank: MemoryBank, lock: BankLock, config: Mapping[str, Any]) -> str:
    """Journal that a cycle begins, and return its run id; its report is amended at its end."""
    with bank.state.transaction("cycle", lock=lock) as run:
        run.config = dict(config)
        run.report = {"state": "running, or ended without a report"}
    return run.run_id


def write_repair(
    bank: MemoryBank, repair: Repair, lock: BankLock, parent: str, tenant_keys: Sequence[str] = ()
) -> str:
    """Apply a repair of a cycle, make what it derives long-term entries, and return its run id.

    Raises:
        InvalidMemoryError, MemoryNotFoundError, BankLockedError: As ``apply_repair``.
    """

    def place(connection: Connection) -> None:
        if repair.memories:
            made = {memory.id: "" for memory in repair.memories}
            ConversationMemory(bank).place(made, "ltsm", connection=connection)

    return apply_repair(bank, repair, lock=lock, parent=parent, within=place, tenant_keys=tenant_keys).run_id
