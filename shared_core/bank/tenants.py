"""Whose a memory is, where one collection holds the memories of several: told by metadata fields.

Tells owners apart, remembers which fields tell them, and says which metadata a derived memory takes from what
it quotes. An equality filter on such a field lets a derived memory through exactly where it lets all its
sources through. Reads only.

Source: none, ours [O].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from shared_core.bank.derived import OWN_FIELDS
from shared_core.bank.journal import newest_config
from shared_core.bank.schema import reading
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank.state import BankState
    from shared_core.types import Metadata

Owner = tuple[str, ...]
"""The values of the tenant keys, each as JSON, so that 1, 1.0, "1" and true differ; null for none."""
NOBODY = json.dumps(None)
"""Stands in an owner where a memory lacks a field."""
FIELD = "tenant_keys"
_NOT_THEIRS = (OWN_FIELDS, "_", "chroma:")
"""Beginnings of fields that belong to us, to a framework or to Chroma, and say nothing about the memory."""


def checked_tenant_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """Return names of metadata fields as a tuple.

    Raises:
        ConfigError: It is no list of different names.
    """
    named = () if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable) else tuple(keys)
    good = all(isinstance(key, str) and key for key in named) and len(set(named)) == len(named)
    if not good or (not named and keys not in ((), [])):
        raise ConfigError(
            f"{FIELD}={keys!r} must be a list of metadata fields, each once, such as ['tenant']"
        )
    return named


def known_tenant_keys(state: BankState, given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the tenant keys that are given, else those of the newest dream that named some, undone or not.

    A job that does not know them must not join what they keep apart.
    """
    if given is not None:
        return tuple(given)
    scopes = {"", state.scope}
    with reading(state.engine) as connection:
        config = newest_config(connection, state.bank_id, scopes, ["cycle"], f'"{FIELD}": ["')
    return () if config is None else checked_tenant_keys(config[FIELD])


def owner_of(metadata: Metadata, keys: Sequence[str]) -> Owner:
    """Return whose a memory is; () where nothing tells owners apart."""
    return tuple(json.dumps(metadata.get(key)) for key in keys)


def owner_fields(owner: Owner, keys: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of an owner, without the fields that are missing."""
    fields = {key: json.loads(value) for key, value in zip(keys, owner, strict=True)}
    return {key: value for key, value in fields.items() if value is not None}


def inherited(
    sources: Sequence[Metadata], tenant_keys: Sequence[str] = (), value_key: str | None = None
) -> dict[str, Any]:
    """Return the metadata that a derived memory takes from what it quotes: what all of them have alike.

    Args:
        sources: Metadata of the sources, at least one.
        tenant_keys: Taken in any case, whoever else uses them.
        value_key: Of the bank; a value belongs to its own memory.
    """
    first, *others = sources
    return {
        key: value
        for key, value in first.items()
        if (key in tenant_keys or not (key == value_key or key.startswith(_NOT_THEIRS)))
        and all(owner_of(other, [key]) == owner_of(first, [key]) for other in others)
    }
