"""How a page's text is read back: "(8 May 2023) Ada: ..." as who said what, and who spoke around it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array

_DATED = re.compile(r"\A\([^()\n]{1,40}\) ")


def line_of(text: str, speaker: str | None) -> tuple[str | None, str]:
    """Return the speaker and what was said, without the date before it.

    Args:
        text: Of a page, as stored.
        speaker: Who said it; None where the text names its speakers itself.
    """
    said = _DATED.sub("", text, count=1)
    prefix = f"{speaker}: "
    if speaker is not None and said.startswith(prefix):
        return speaker, said[len(prefix) :]
    return (speaker, said) if speaker is None else (speaker, text)


def spoken_line(text: str, speaker: str | None) -> str:
    """Return a page as "speaker: what was said", without the date; arguments as for ``line_of``."""
    who, said = line_of(text, speaker)
    return f"{who}: {said}" if who else said


def neighbours_in_session(session: Array, members: Mapping[int, Array], row: int, width: int) -> Array:
    """Return the rows from ``width`` before to ``width`` after a row in its session, itself included.

    Args:
        session: (N,) number of each row's session, negative where unknown.
        members: Rows of each session, in order.
        row: The row.
        width: How many to either side.
    """
    rows = members.get(int(session[row]))
    if rows is None:
        return np.zeros(0, np.int64)
    at = int(np.searchsorted(rows, row))
    return rows[max(0, at - width) : at + width + 1]
