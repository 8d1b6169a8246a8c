"""How derived memories are told apart from the user's own: by id and by metadata under our prefix.

A derived memory is written to the collection first and becomes visible with the state row that its repair's
transaction writes; without one its weight is 0 (design 5).
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared_core.types import Metadata

PREFIX = "dream-derived/"
"""Of the id of every derived memory; the bank refuses it for others."""
OWN_FIELDS = "dream_"
"""Of every metadata field that is ours."""
KIND, SOURCES = "dream_kind", "dream_sources"
SUSPECT = 0.5
"""Suspicion from which a memory is never quoted by a derived one [O]."""


def derived_id() -> str:
    """Return a new id for a derived memory."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def is_derived(memory_id: str) -> bool:
    """Tell whether an id is that of a derived memory, visible or not."""
    return memory_id.startswith(PREFIX)


def provenance(kind: str, sources: tuple[str, ...]) -> dict[str, Any]:
    """Return the metadata that says what a derived memory is and which memories it quotes."""
    # a list would not be stored by older Chroma
    return {KIND: kind, SOURCES: json.dumps(list(sources))}


def sources_of(metadata: Metadata) -> tuple[str, ...]:
    """Return the ids that a derived memory quotes; none where the metadata is not ours."""
    try:
        found = json.loads(str(metadata.get(SOURCES, "[]")))
    except (ValueError, RecursionError):
        return ()
    return tuple(found) if isinstance(found, list) and all(map(_is_id, found)) else ()


def _is_id(value: object) -> bool:
    # JSON can spell lone surrogates, which no database takes
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
