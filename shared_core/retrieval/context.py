"""Renders ranked pages of conversations into a budget of tokens: what is put before a reader.

Grouped by session, oldest first: the session's date in a line of its own, then "speaker: text" lines in the
order they were said. Page texts are data and stay verbatim, but for the indent of their further lines. A
derived memory is shown as lines of the pages that it quotes, where they were said, so that nothing is said
twice: what is there already costs nothing, and a page that comes later replaces what was quoted of it.

Source: none, ours [O]; sessions and dates as in LoCoMo's prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.graph import NO_SESSION
from shared_core.config import checked_whole
from shared_core.language.pages import line_of
from shared_core.retrieval.quoted import lines_by_source, says

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph

INDENT = "\n  "
"""Before each further line of a page, so that no text can pass for a page or a date of its own."""


@dataclass
class _Session:
    header: str | None
    said: dict[int, str] = field(default_factory=dict)
    """By the row of the page."""


def render_context(
    graph: MemoryGraph, rows: Iterable[int], budget_tokens: int, count_tokens: Callable[[str], int]
) -> str:
    """Return the first pages that fit the budget, grouped by session.

    A page that does not fit is passed over, and a shorter one behind it may still fit. Empty where none does.

    Args:
        graph: The pages.
        rows: Their rows, best first.
        budget_tokens: Most tokens, counted line by line.
        count_tokens: From a text to its number of tokens.

    Raises:
        ConfigError: The budget is no whole number above 0.
    """
    checked_whole("budget_tokens", budget_tokens)
    groups: dict[tuple[int, date | None], _Session] = {}
    left = budget_tokens
    for place, said in (piece for row in rows for piece in _pieces(graph, row)):
        key = _group_of(graph, place)
        group = groups.get(key) or _Session(_header(graph, key))
        shown = group.said.get(place, "")
        if (joined := _joined(shown, said)) == shown:
            continue
        cost = count_tokens(f"{_line(graph, place, joined)}\n")
        if shown:
            cost -= count_tokens(f"{_line(graph, place, shown)}\n")
        if group.header is not None and key not in groups:
            cost += count_tokens(f"{group.header}\n")
        if cost > left:
            continue
        left -= cost
        group.said[place] = joined
        groups[key] = group
    return "\n".join(_ordered(graph, groups.values()))


def _pieces(graph: MemoryGraph, row: int) -> list[tuple[int, str]]:
    """Return what a memory says, each piece with the row of the page where it was said."""
    if row not in graph.sources:
        return [(row, line_of(graph.texts[row], graph.speakers[row])[1])]
    sources = {source: line_of(graph.texts[source], graph.speakers[source]) for source in graph.sources[row]}
    quoted = lines_by_source(graph.texts[row], sources)
    return [(row if source is None else source, quote) for source, quote in quoted]


def _joined(shown: str, said: str) -> str:
    """Return what a page is shown with once more of it comes up."""
    if not shown or says(said, shown):
        return said
    return shown if says(shown, said) else f"{shown}\n{said}"


def _group_of(graph: MemoryGraph, row: int) -> tuple[int, date | None]:
    session = int(graph.session[row])
    return (session, None) if session != NO_SESSION else (session, graph.day(row))


def _header(graph: MemoryGraph, key: tuple[int, date | None]) -> str | None:
    session, day = key
    if session != NO_SESSION:
        days = (graph.day(int(row)) for row in graph.in_session[session])
        day = next((day for day in days if day is not None), None)
    return None if day is None else f"({day.day} {day:%B} {day.year})"


def _line(graph: MemoryGraph, place: int, said: str) -> str:
    speaker = graph.speakers[place]
    return INDENT.join((f"{speaker}: {said}" if speaker else said).splitlines())


def _ordered(graph: MemoryGraph, groups: Iterable[_Session]) -> Iterable[str]:
    for group in sorted(groups, key=lambda group: _moment(graph, min(group.said))):
        if group.header is not None:
            yield group.header
        for row in sorted(group.said):
            yield _line(graph, row, group.said[row])


def _moment(graph: MemoryGraph, row: int) -> tuple[float, int]:
    time = float(graph.time[row])
    return (np.inf if np.isnan(time) else time, row)
