"""Does a derived text say only what its sources say? The guard that no derived memory invents facts.

Design section 4 [O]: no number or date can be invented. Checked are names, numbers, money, dates, links,
handles and quotations. Plain words are not: a paraphrase passes, and so does a lie without any of these
("Ada hates dogs" from "Ada loves dogs"), a name in small letters, or facts of two sources wrongly combined.
A text that quotes its sources verbatim always passes.

- A name, handle, link or quotation must stand in one source, in any case. Words that open a sentence count
  as names here unless they are common or a source has a word of the same stem.
- A number must have a source's value and unit; without a unit, a source's value. "two" and "2" are equal.
- A date must hold a source's date within it: "May 2023" follows from "8 May 2023", not the other way round.
  A source's dates are those it names, its relative ones resolved against its day, and the day itself.
- A relative date of the derived text is resolved against the derived text's own day; without one it must
  carry a bracket (``annotate``) or stand in a source word for word. What stands in a source word for word
  still needs its bracket, if it has one, to be right.
- A weekday or month without a date must be named by a source or be that of a source's date.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import accumulate

from shared_core.language.dates import DateMention, covered_spans, relative_spans, resolve_dates
from shared_core.language.entities import Entity, links_and_handles, outside, quoted
from shared_core.language.names import Candidate, name_candidates, without_opener
from shared_core.language.numbers import NumberMention, find_numbers
from shared_core.language.tokens import stem_words, without_possessive, words
from shared_core.language.vocabulary import MONTHS, WEEKDAYS

_CALENDAR_WORD = re.compile(rf"\b({'|'.join([*MONTHS, *WEEKDAYS])})s?\b", re.IGNORECASE)
_AMBIGUOUS = frozenset({"may", "march", "mar", "jan", "dec", "sep", "jun", "august"})
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Source:
    """A text that a derived text may draw on."""

    text: str
    day: date | None = None
    """When it was said."""
    speaker: str | None = None


def unsupported(
    derived_text: str, sources: Iterable[Source | str], *, day: date | None = None
) -> list[Entity]:
    """Return what a derived text states and no source contains, in order of kind and place; empty is good.

    Args:
        derived_text: The text to check.
        sources: What it was made from; a plain string is a source without day and speaker.
        day: The derived text's own day, against which its relative dates are meant, if it has one.
    """
    evidence = _Evidence([Source(one) if isinstance(one, str) else one for one in sources])
    dates = resolve_dates(derived_text, day)
    relative = relative_spans(derived_text)
    spans = covered_spans(derived_text, dates) + relative
    found = [*_names(derived_text, spans, evidence)]
    found += [
        Entity(number.kind, derived_text[number.start : number.end], number.norm)
        for number in outside(find_numbers(derived_text), spans)
        if not evidence.has_number(number)
    ]
    found += _dates(derived_text, dates, relative, evidence)
    found += [
        entity
        for entity in (*links_and_handles(derived_text), *quoted(derived_text))
        if not evidence.has_text(entity.norm)
    ]
    return list(dict.fromkeys(found))


class _Evidence:
    """What the sources contain, indexed once."""

    def __init__(self, sources: list[Source]) -> None:
        spoken = [f"{source.speaker}: {source.text}" if source.speaker else source.text for source in sources]
        self._texts = [_flat(text) for text in spoken]
        split = [[without_possessive(word) for word in words(text)] for text in spoken]
        self._phrases = [f" {' '.join(found)} " for found in split]
        self._words = {word for found in split for word in found}
        self._stems: set[str] | None = None
        self._days = {source.day for source in sources if source.day}
        mentions = [resolve_dates(source.text, source.day) for source in sources]
        periods = {(one.start, one.end) for found in mentions for one in found}
        periods |= {(one, one) for one in self._days}
        self._starts = sorted(start for start, _ in periods)
        self._ends = _earliest_from(sorted(periods))
        self._years = {start.year for start, end in periods if start.year == end.year}
        self._months = {start.month for start, end in periods if _month(start) == _month(end)}
        self._weekdays = {start.weekday() for start, end in periods if start == end}
        numbers = [
            number
            for source, found in zip(sources, mentions, strict=True)
            for number in outside(find_numbers(source.text), [one.span for one in found if not one.relative])
        ]
        self._norms = {number.norm for number in numbers}
        self._values = {number.value for number in numbers}

    def has_text(self, folded: str) -> bool:
        flat = _flat(folded)
        return any(flat in text for text in self._texts)

    def has_phrase(self, norm: str) -> bool:
        phrase = f" {' '.join(without_possessive(word) for word in words(norm))} "
        return any(phrase in text for text in self._phrases)

    def has_word_like(self, word: str) -> bool:
        if word in self._words:
            return True
        if self._stems is None:
            self._stems = set(stem_words(self._words))
        return stem_words([word])[0] in self._stems

    def has_number(self, number: NumberMention) -> bool:
        if number.norm in self._norms or (number.norm == number.value and number.value in self._values):
            return True
        year = number.norm.isdigit() and len(number.norm) == 4
        return year and int(number.norm) in self._years

    def has_date(self, mention: DateMention) -> bool:
        at = bisect_left(self._starts, mention.start)
        return at < len(self._ends) and self._ends[at] <= mention.end

    def has_calendar_word(self, name: str) -> bool:
        if name in self._words or f"{name}s" in self._words:
            return True
        if name in WEEKDAYS:
            return WEEKDAYS[name] in self._weekdays
        return MONTHS[name] in self._months


def _earliest_from(periods: list[tuple[date, date]]) -> list[date]:
    """Return for each period the earliest end of it and those behind it."""
    return list(accumulate((end for _, end in reversed(periods)), min))[::-1]


def _month(day: date) -> tuple[int, int]:
    return day.year, day.month


def _flat(text: str) -> str:
    return _SPACES.sub(" ", text.casefold().replace("’", "'"))


def _names(text: str, spans: list[tuple[int, int]], evidence: _Evidence) -> Iterator[Entity]:
    for candidate in name_candidates(text, spans):
        if not _name_supported(candidate, evidence):
            yield Entity("name", candidate.text, candidate.norm)


def _name_supported(name: Candidate, evidence: _Evidence) -> bool:
    if evidence.has_phrase(name.norm):
        return True
    if not name.opens or not evidence.has_word_like(name.first):
        return False
    return " " not in name.text or _name_supported(without_opener(name), evidence)


def _dates(
    text: str, dates: list[DateMention], relative: list[tuple[int, int]], evidence: _Evidence
) -> Iterator[Entity]:
    resolved = {mention.span for mention in dates}
    for mention in dates:
        if not evidence.has_date(mention):
            yield Entity("date", mention.text, mention.iso)
    for start, end in relative:
        if (start, end) not in resolved and not evidence.has_text(text[start:end]):
            yield Entity("date", text[start:end], text[start:end].casefold())
    spans = sorted(resolved | set(relative))
    # how far the spans up to each reach
    starts, reach = [start for start, _ in spans], list(accumulate((end for _, end in spans), max))
    for match in _CALENDAR_WORD.finditer(text):
        name = match[1].casefold()
        before = bisect_right(starts, match.start())
        inside = before > 0 and match.start() < reach[before - 1]
        if inside or (name in _AMBIGUOUS and not _is_month(match)):
            continue
        if not evidence.has_calendar_word(name):
            yield Entity("date", match.group(), name)


def _is_month(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 12) : match.start()].rstrip()
    return match.group()[0].isupper() and bool(before) and before[-1] not in ".!?:\n\"'"
