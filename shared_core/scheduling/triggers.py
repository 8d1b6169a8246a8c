"""When a bank is due for a dream: new pages, low retrieval confidence, elapsed time.

Pure: knows no bank, no clock and no thread.

Source: MemDream section 3 (20 new pages, low confidence, elapsed time) [S]; the other thresholds [O].
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from shared_core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TriggerConfig:
    """Thresholds; None switches a trigger off.

    Raises:
        ConfigError: A threshold is not a positive number, or the window is no whole number above 0.
    """

    new_pages: int | None = 20
    """Pages since the last dream, by whatever process, from which one is due [S]."""
    min_confidence: float | None = 0.3
    """Mean confidence of the last retrievals below which a dream is due [O]."""
    max_seconds: float | None = 86_400.0
    """Time since the last dream, or where there was none since the first page, from which one is due [O]."""
    confidence_window: int = 3
    """How many retrievals since the last dream that mean is over; fewer fire nothing [O]."""

    def __post_init__(self) -> None:
        for name in ("new_pages", "min_confidence", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not _is_positive(value):
                raise ConfigError(f"{name}={value!r}: give a positive number, or None to switch it off")
        if not isinstance(self.confidence_window, int) or not _is_positive(self.confidence_window):
            raise ConfigError(f"confidence_window={self.confidence_window!r}: give a whole number above 0")


def due(
    config: TriggerConfig, *, new_pages: int, confidences: Sequence[float], seconds: float | None
) -> list[str]:
    """Return the names of the triggers that fire: "new_pages", "confidence", "elapsed".

    Args:
        config: The thresholds.
        new_pages: Pages since the last dream.
        confidences: Those of the retrievals since the last dream, oldest first.
        seconds: Time since the last dream; None where it is unknown, which fires nothing.
    """
    fired = []
    if config.new_pages is not None and new_pages >= config.new_pages:
        fired.append("new_pages")
    last = confidences[-config.confidence_window :]
    known = len(last) == config.confidence_window
    if config.min_confidence is not None and known and sum(last) / len(last) < config.min_confidence:
        fired.append("confidence")
    if config.max_seconds is not None and seconds is not None and seconds >= config.max_seconds:
        fired.append("elapsed")
    return fired


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
