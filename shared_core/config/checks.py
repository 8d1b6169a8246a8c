"""Checks of single options: what is outside its range is refused with its name and value."""

from __future__ import annotations

import sys

from shared_core.errors import ConfigError


def checked_range(name: str, value: object, low: float, high: float = 1e300) -> None:
    """Refuse what is no finite number from ``low`` to ``high``.

    Raises:
        ConfigError: It is none.
    """
    if not (isinstance(value, (int, float)) and low <= value <= high):
        raise ConfigError(f"{name}={value!r} is outside [{low:g}, {high:g}]")


def checked_whole(name: str, value: object, least: int = 1) -> None:
    """Refuse what is no whole number of at least ``least``.

    Raises:
        ConfigError: It is none; booleans are none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}={value!r} must be a whole number, {least} or more")


def checked_positive(name: str, value: float) -> None:
    """Refuse what is no finite number above 0.

    Raises:
        ConfigError: It is none.
    """
    if not (isinstance(value, (int, float)) and 0 < value <= sys.float_info.max):
        raise ConfigError(f"{name}={value!r} must be a finite number above 0")


def checked_choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse what is not one of some strings.

    Raises:
        ConfigError: It is none of them.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(map(str, allowed))}")
