"""Options of a fleet: what each bank's dream is, and how long to insist [O]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from shared_core.agents import DreamConfig
from shared_core.bank.graph import GraphKeys
from shared_core.config import checked_range
from shared_core.embedding import packaged_embedder
from shared_core.errors import ConfigError
from shared_core.types import Embedder

MAX_BACKOFF = 30.0
"""Seconds."""


@dataclass(frozen=True, kw_only=True)
class FleetConfig:
    """Options of ``DreamFleet``; every bank dreams by rules, with the same options and the same embedder.

    Raises:
        ConfigError: A value is outside its range.
    """

    dream: DreamConfig = field(default_factory=DreamConfig)
    graph_keys: GraphKeys | None = None
    """Metadata fields that say where a memory belongs; None: those of our own pages."""
    embedder: Callable[[], Embedder] = packaged_embedder
    """Makes the embedder that the banks were filled with: a function that can be imported, or a ``partial``
    of one. Called once per worker."""
    lock_wait: float = 90.0
    """Seconds; so long a bank is tried again that another dreamer holds. A lock whose owner died on another
    host is free after 60."""
    backoff: float = 0.5
    """Seconds until a bank is tried again, doubled each time up to 30."""

    def __post_init__(self) -> None:
        """Check the options."""
        for name, least in (("lock_wait", 0.0), ("backoff", 0.0)):
            checked_range(name, getattr(self, name), least)
        if not callable(self.embedder):
            raise ConfigError(
                f"embedder={self.embedder!r} must be a function that makes one, such as packaged_embedder: "
                "each worker loads its own"
            )

    def delay(self, tries: int) -> float:
        """Return the seconds to wait after so many tries, from 1."""
        return float(min(self.backoff * 2.0 ** min(tries - 1, 30), MAX_BACKOFF))

    def to_dict(self) -> dict[str, Any]:
        """Return what decides about the dreams as plain JSON values."""
        return {"dream": self.dream.to_dict(), "graph_keys": asdict(self.graph_keys or GraphKeys())}
