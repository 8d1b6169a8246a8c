"""Pages of a memory graph as a prompt shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shared_core.agents.prompts import ShownPage

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph

MOST_PAGES = 8
"""Pages that one prompt shows [O]."""
BRIEF_PAGES = 5
"""The same for a model that was trained on its task: prompts are read in half the time [O]."""


def shown_pages(graph: MemoryGraph, rows: Iterable[int]) -> list[ShownPage]:
    """Return pages as a prompt shows them, with date and speaker, as they are stored."""
    return [ShownPage(graph.ids[row], graph.texts[row]) for row in rows]
