"""When a bank dreams: triggers, and a background worker that never stands in a caller's way."""

from shared_core.scheduling.job import BankDream
from shared_core.scheduling.requests import DreamKind, DreamRequest
from shared_core.scheduling.reviewed import APPROVED, ReviewedDream
from shared_core.scheduling.scheduler import DreamScheduler
from shared_core.scheduling.scheduler_config import SchedulerConfig
from shared_core.scheduling.status import SchedulerStatus
from shared_core.scheduling.triggers import TriggerConfig, due

__all__ = [
    "APPROVED",
    "BankDream",
    "DreamKind",
    "DreamRequest",
    "DreamScheduler",
    "ReviewedDream",
    "SchedulerConfig",
    "SchedulerStatus",
    "TriggerConfig",
    "due",
]
