"""Which metadata fields hold values and origins: as the bank was opened, else as an earlier sweep had it.

A sweep that sees no values cannot see what one with values flagged. A bank that is opened without the key, by
a job at night for one, must not set free what was forgotten for good reasons, so the journal remembers it.

Reads only. Source: none, ours [O].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared_core.bank.journal import newest_config
from shared_core.bank.schema import reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared_core.bank.memory_bank import MemoryBank


@dataclass(frozen=True, kw_only=True)
class KnownFields:
    """Names of metadata fields; None where nobody ever said one."""

    value_key: str | None
    origin_key: str | None
    saw_values: bool = False
    """An earlier sweep saw values, which holds those that it doubted until another does."""
    notes: Sequence[str] = field(default_factory=list)
    """What was taken from the journal."""

    def told(self, *, values: bool) -> dict[str, Any]:
        """Return what the journal keeps of a sweep."""
        return {"value_key": self.value_key, "origin_key": self.origin_key, "saw_values": values}


def known_fields(bank: MemoryBank) -> KnownFields:
    """Return the fields of a bank."""
    state = bank.state
    with reading(state.engine) as connection:
        scopes = {state.scope} - {""}
        found = newest_config(
            connection, state.bank_id, scopes, ["sweep"], '"saw_values": true', applied=True
        )
    earlier = found or {}
    named = {name: getattr(bank, name) or earlier.get(name) for name in ("value_key", "origin_key")}
    notes = [
        f"{name} {key!r} is that of an earlier sweep, for none was given"
        for name, key in named.items()
        if key is not None and getattr(bank, name) is None
    ]
    return KnownFields(**named, saw_values=bool(earlier), notes=notes)
