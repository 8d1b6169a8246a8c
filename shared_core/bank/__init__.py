"""The memory bank: content in Chroma, state in SQL, every change journalled."""

from shared_core.bank.explaining import Explanation, TermExplanation
from shared_core.bank.feedback import give_feedback
from shared_core.bank.journal import Run
from shared_core.bank.memory_bank import MemoryBank
from shared_core.bank.state import BankState
from shared_core.bank.status import BankStatus
from shared_core.bank.sweeping import Suspect, SweepReport
from shared_core.bank.watch import CollectionChange, CollectionWatch

__all__ = [
    "BankState",
    "BankStatus",
    "CollectionChange",
    "CollectionWatch",
    "Explanation",
    "MemoryBank",
    "Run",
    "Suspect",
    "SweepReport",
    "TermExplanation",
    "give_feedback",
]
