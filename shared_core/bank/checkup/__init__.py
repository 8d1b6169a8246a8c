"""Looks at a bank without opening it: nothing is created, upgraded, locked, recovered or written."""

from shared_core.bank.checkup.bank import Examined, examine

__all__ = ["Examined", "examine"]
