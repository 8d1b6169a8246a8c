"""Checks of what a search is asked: its text, vector and filters, before anything is read.

Knows nothing of banks. A bad argument is refused with what to give instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shared_core.errors import ConfigError, InvalidMemoryError
from shared_core.types import FloatArray, Where

LARGEST = 1e18
"""Of a query vector's numbers: the squares of larger ones leave the range of float32."""
SHOWN = 60
"""Characters of a senseless vector that a message quotes."""


def checked_text(query: object) -> str:
    """Return a query's text.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(query, str):
        raise ConfigError(f"a query is text, not {query!r}")
    return query


def checked_filter(name: str, given: object) -> Where | None:
    """Return a Chroma filter, or None.

    Raises:
        ConfigError: It is no mapping.
    """
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(
            f"{name}={given!r} is not a Chroma filter: give a mapping such as {{'user': 'ada'}}"
        )
    return given


def checked_vector(vector: object) -> FloatArray:
    """Return a query vector, shape (d,), float64.

    Raises:
        InvalidMemoryError: It is not of shape (d,), holds NaN or infinity, or is too large.
    """
    try:
        given = np.asarray(vector)
        # numpy would drop an imaginary part, and read numbers out of strings
        array = np.asarray(given, float) if given.dtype.kind in "fiub" else np.empty(0)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 1 or not array.size or not np.all(np.isfinite(array)):
        raise InvalidMemoryError(
            f"a query vector needs shape (d,) and finite numbers, not {_shortened(repr(vector))}"
        )
    if float(np.abs(array).max()) > LARGEST:
        raise InvalidMemoryError(
            f"a query vector with {np.abs(array).max():g} in it is too large for 32-bit embeddings: scale it"
        )
    return array


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
