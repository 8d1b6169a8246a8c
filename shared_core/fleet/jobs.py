"""One bank or tenant that is to dream, and lists of them in JSON lines.

A job names a bank; it opens nothing. Its ``id`` is the same in every run, whatever the password.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared_core.bank.location import STATE_URL_VARIABLE
from shared_core.errors import ConfigError
from shared_core.types import Where

FIELDS = ("path", "url", "collection", "state", "where")
SERVERS = ("http://", "https://")
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")


@dataclass(frozen=True, kw_only=True)
class FleetJob:
    """A bank, or one tenant of it.

    Raises:
        ConfigError: A field is no text, or the filter is empty or not of plain values.
    """

    location: str
    """Directory of an embedded Chroma, made absolute; or URL of a Chroma server."""
    collection: str
    state: str | None = field(default=None, repr=False)
    """SQLAlchemy URL; None as for ``MemoryBank.open``."""
    where: Where | None = None
    """Metadata filter of one tenant; None for the whole collection."""

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("location", "collection", "state"):
            value = getattr(self, name)
            if (value is None and name == "state") or (isinstance(value, str) and value):
                continue
            raise ConfigError(f"{name}={value!r} must be text, and not empty")
        if self.location == ":memory:":
            raise ConfigError("a bank in memory is seen by one process only: a fleet needs a path or a URL")
        if self.is_on_server and "@" in urlsplit(self.location).netloc:
            raise ConfigError("a Chroma URL bears no user and no password: leave out what stands before @")
        if self.where is not None and not (isinstance(self.where, dict) and self.where):
            raise ConfigError(f"where={self.where!r} must be a filter such as {{'user': 'ada'}}")
        if not self.is_on_server:
            object.__setattr__(self, "location", str(Path(self.location).resolve()))
        _ = self.id  # a filter that is no JSON is refused now

    @property
    def is_on_server(self) -> bool:
        """Tell whether several processes may write to it at once."""
        return self.location.startswith(SERVERS)

    @property
    def lane(self) -> str | None:
        """Jobs of one lane never run at the same time: an embedded Chroma bears one writer process."""
        return None if self.is_on_server else self.location

    @cached_property
    def id(self) -> str:
        """A digest of what is named.

        Raises:
            ConfigError: The filter holds what is no plain value.
        """
        state = _PASSWORD.sub(r"\1@", self.state).partition("?")[0] if self.state else None
        try:
            text = json.dumps(
                [self.location, self.collection, state, self.where], sort_keys=True, allow_nan=False
            )
        except (TypeError, ValueError) as error:
            raise ConfigError(f"where={self.where!r} is not a filter of plain values: {error}") from None
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the state's URL: it may hold a password."""
        where = None if self.where is None else dict(self.where)
        return {"location": self.location, "collection": self.collection, "where": where}


def read_jobs(path: str | Path, *, state: str | None = None) -> list[FleetJob]:
    """Read jobs, one JSON object a line: ``{"path" or "url", "collection", "state"?, "where"?}``.

    Args:
        path: The file; relative paths in it are relative to the working directory.
        state: SQLAlchemy URL for lines that name none.

    Raises:
        ConfigError: No such file, or a line that is no job; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the jobs in {path}: {error}") from None
    jobs: list[FleetJob] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            jobs.append(_parsed(line, state))
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
    return jobs


def distinct(jobs: Iterable[FleetJob]) -> list[FleetJob]:
    """Return the jobs.

    Raises:
        ConfigError: There is none, or two name the same bank.
    """
    found: dict[str, FleetJob] = {}
    for job in jobs:
        if job.id in found:
            raise ConfigError(f"{job} is listed twice: a bank dreams once per run")
        found[job.id] = job
    if not found:
        raise ConfigError("there is no bank to dream: the list is empty")
    return list(found.values())


def require_states(jobs: Iterable[FleetJob]) -> None:
    """Refuse banks on a server whose weights have no place: each would fail, at every try.

    Raises:
        ConfigError: A job on a server names no state, and the environment has no DREAM_STATE_URL.
    """
    if os.environ.get(STATE_URL_VARIABLE):
        return
    for job in jobs:
        if job.is_on_server and job.state is None:
            raise ConfigError(
                f"{job.collection!r} at {job.location} is on a Chroma server, which keeps no weights: "
                f'name a state (--state, or "state" in its line), or set {STATE_URL_VARIABLE}'
            )


def _parsed(line: str, state: str | None) -> FleetJob:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{line[:60]!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{line[:60]!r} is no JSON object")
    if unknown := sorted(set(value) - set(FIELDS)):
        raise ConfigError(f"{unknown[0]!r} is not one of {', '.join(FIELDS)}")
    if ("path" in value) == ("url" in value):
        raise ConfigError("a bank has either a path or a url")
    place: Any = value.get("path", value.get("url"))
    collection: Any = value.get("collection")
    if isinstance(place, str) and place.startswith(SERVERS) != ("url" in value):
        raise ConfigError(f"{place!r} is {'a path, not a url' if 'url' in value else 'a url, not a path'}")
    return FleetJob(
        location=place,
        collection=collection,
        state=value.get("state") or state,
        where=value.get("where"),
    )
