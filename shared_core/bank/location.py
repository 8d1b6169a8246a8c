"""Where a bank's state is kept when nobody says so, and under which name a tenant's is."""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import URL

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.types import Where

STATE_URL_VARIABLE = "DREAM_STATE_URL"


def scope_of(where: Where | None) -> str:
    """Return a tenant's filter as canonical JSON, "" for the whole collection.

    Raises:
        ConfigError: It holds what is no plain value.
    """
    try:
        return json.dumps(where, sort_keys=True) if where else ""
    except TypeError as error:
        raise ConfigError(f"where={where!r} is not a filter of plain values: {error}") from None


def default_state_url(content: ChromaContent) -> str | URL:
    """Return DREAM_STATE_URL, else a SQLite file beside the embedded collection.

    Raises:
        StateError: Neither: the collection is on a server.
    """
    if given := os.environ.get(STATE_URL_VARIABLE):
        return given
    if content.is_in_memory():
        file = Path(_memory_state_folder().name) / f"{content.key}.sqlite3"
        return URL.create("sqlite", database=str(file))
    return content.default_state_url()


@cache
def _memory_state_folder() -> tempfile.TemporaryDirectory[str]:
    # in-memory collections are shared within a process, so their state must be; both die with it
    return tempfile.TemporaryDirectory(prefix="dream-")
