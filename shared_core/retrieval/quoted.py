"""What a derived memory quotes, line by line, so that nobody is shown twice what one page says.

A line of a derived memory is made of whole sentences of one of its sources. Compares sentences as they are
written, white space aside.

Source: none, ours [O].
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from shared_core.language import split_sentences
from shared_core.language.pages import line_of

Source = TypeVar("Source", bound=Hashable)


def lines_by_source(
    text: str, sources: Mapping[Source, tuple[str | None, str]]
) -> list[tuple[Source | None, str]]:
    """Return what each source is quoted with, without dates and speakers, in the order of the text.

    Args:
        text: Of the derived memory.
        sources: Speaker of each, and what was said.

    Returns:
        Source and quote; None and the line itself where no source says it.
    """
    found: list[tuple[Source | None, str]] = []
    for line in filter(str.strip, text.splitlines()):
        piece = _attributed(line, sources) or (None, line)
        if found and piece[0] is not None and found[-1][0] == piece[0]:
            piece = piece[0], f"{found.pop()[1]}\n{piece[1]}"
        found.append(piece)
    return found


def says(whole: str, part: str) -> bool:
    """Tell whether a text holds every sentence of another."""
    shown = _plain(whole)
    return all(_plain(sentence) in shown for sentence in split_sentences(part))


def _attributed(line: str, sources: Mapping[Source, tuple[str | None, str]]) -> tuple[Source, str] | None:
    for source, (speaker, said) in sources.items():
        _, quote = line_of(line, speaker)
        if says(said, quote):
            return source, quote
    return None


def _plain(text: str) -> str:
    return " ".join(text.split())
