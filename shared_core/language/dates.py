"""Dates in text: absolute ones, and relative ones resolved against the day on which the text was said.

Reads English prose and ISO 8601. What a relative date means is defined in ``calendar_rules``. Whatever is
ambiguous is left alone rather than guessed, because a derived memory must not state a date that nobody meant:
"5/8/2023" (either order), "on Friday", "in May" (past or next), "a few weeks ago", "over ten years ago",
"the last week" (a duration), "the day before the exam".

We find dates with our own patterns: dateutil's parser gives no spans and dateparser takes milliseconds per
text and reads words such as "may" and "on" as dates; the arithmetic is dateutil's. Ours throughout [O].

A relative mention followed by a bracket as ``annotate`` writes it, "last Friday [2023-05-05]", already says
what it means: the bracket counts, not the day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial

from shared_core.language.calendar_rules import (
    Granularity,
    Period,
    Unit,
    day_period,
    month_near,
    month_of,
    nearest_year,
    shifted,
    week_of,
    weekday_near,
    weekend_of,
    year_of,
)
from shared_core.language.vocabulary import DETERMINERS, MONTHS, NUMERALS, ROUNDERS, WEEKDAYS


@dataclass(frozen=True)
class DateMention:
    """One date in a text, ``text == source[span[0]:span[1]]``."""

    span: tuple[int, int]
    text: str
    granularity: Granularity
    start: date
    end: date
    """The last day, included; equal to start for a day."""
    relative: bool
    """Its meaning depends on the day it was said, so the text alone does not state it."""

    @property
    def iso(self) -> str:
        """ISO 8601: "2023-05-05", "2023-05", "2023", or "2023-05-01/2023-05-07" for weeks and weekends."""
        full = self.start.isoformat()
        width = {"day": 10, "month": 7, "year": 4}.get(self.granularity)
        return full[:width] if width else f"{full}/{self.end.isoformat()}"


def resolve_dates(text: str, day: date | None) -> list[DateMention]:
    """Return the dates of a text in order, without overlap.

    Args:
        text: Any text.
        day: When it was said; None leaves out what only the day could resolve.
    """
    if isinstance(day, date):
        day = date(day.year, day.month, day.day)
    mentions = []
    for phrase in _phrases(text):
        if (period := _resolved(phrase, day)) is not None:
            span = (phrase.start, phrase.end)
            mentions.append(DateMention(span, text[slice(*span)], *period, phrase.relative))
    return mentions


def annotate(text: str, day: date) -> str:
    """Return the text verbatim with each relative date's meaning in brackets after it.

    "We met last Friday." said on 8 May 2023 gives "We met last Friday [2023-05-05].". Absolute dates and
    mentions that already carry a bracket stay as they are, so annotating twice changes nothing.
    """
    pieces, at = [], 0
    for mention in resolve_dates(text, day):
        end = mention.span[1]
        if possessive := _POSSESSIVE.match(text, end):
            end = possessive.end()
        if not mention.relative or _BRACKET.match(text, end):
            continue
        pieces += [text[at:end], f" [{mention.iso}]"]
        at = end
    return "".join([*pieces, text[at:]])


def relative_spans(text: str) -> list[tuple[int, int]]:
    """Return where a text names a date that only the day it was said would resolve, brackets aside."""
    return [(phrase.start, phrase.end) for phrase in _phrases(text) if phrase.relative and not phrase.stated]


def covered_spans(text: str, mentions: Sequence[DateMention]) -> list[tuple[int, int]]:
    """Return where a text's dates stand, each with the bracket that says what it means."""
    brackets = [_bracket_after(text, one.span[1]) if one.relative else None for one in mentions]
    return [
        (one.span[0], bracket.end() if bracket else one.span[1])
        for one, bracket in zip(mentions, brackets, strict=True)
    ]


_Meaning = Callable[[date], Period | None]


@dataclass(frozen=True)
class _Phrase:
    start: int
    end: int
    relative: bool
    meaning: _Meaning
    stated: Period | None = None
    """What a bracket after it says."""


def _resolved(phrase: _Phrase, day: date | None) -> Period | None:
    if phrase.stated:
        return phrase.stated
    if phrase.relative and day is None:
        return None
    try:
        return phrase.meaning(day or date.min)
    except (ValueError, OverflowError):
        return None


_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_WEEKDAY = "|".join(WEEKDAYS)
_UNITS: dict[str, Unit] = {
    "day": "day",
    "night": "day",
    "week": "week",
    "weekend": "weekend",
    "month": "month",
    "year": "year",
}
_PERIOD = "day|weekend|week|month|year"
_NUMBER = rf"\d{{1,3}}|an?|{'|'.join(NUMERALS)}"
_DAYPART = r"(?:\s(?:morning|afternoon|evening|night)\b)?"
_I = re.IGNORECASE

# a cheap look before the patterns: most texts have no date
_HINT = re.compile(
    rf"\d{{4}}|\d(?:st|nd|rd|th)?\s?(?:of\s)?(?:{_MONTH})\b|\b(?:{_MONTH}|{_WEEKDAY}|to(?:day|night|morrow)|yesterday|"
    r"ago|weeks?|weekends?|months?|years?|days?|night|morning|afternoon|evening)\b",
    _I,
)
_ISO_DAY = r"\d{4}-\d{2}-\d{2}"
_ISO = re.compile(rf"(?<![\w/.-])({_ISO_DAY})(?:/({_ISO_DAY}))?(?![\w/-])|(?<![\w/.-])({_ISO_DAY})(?=T\d\d:)")
_SLASHED = re.compile(
    r"(?<![\w/.-])(?:(\d{4})/(\d{1,2})/(\d{1,2})|(\d{1,2})([/.])(\d{1,2})\5(\d{4}))(?![\w/-]|\.\d)"
)
_DAY_MONTH = re.compile(
    rf"(?<![\w.,/-])(?:the\s)?(\d{{1,2}})(?:st|nd|rd|th)?\s?(?:of\s)?({_MONTH})\b\.?(?:,?\s?(\d{{4}})(?!\d))?",
    _I,
)
_MONTH_DAY = re.compile(
    rf"\b({_MONTH})\b\.?\s(?:the\s)?(\d{{1,2}})(?:st|nd|rd|th)?(?![\w:/]|[.,]\d)(?:,?\s(\d{{4}})(?!\d))?", _I
)
_MONTH_YEAR = re.compile(rf"\b({_MONTH})\b\.?,?\s(?:of\s)?(1\d{{3}}|20\d\d)(?![\d-])", _I)
_YEAR = re.compile(
    r"\b(?:in|since|during|until|early|late|mid|year|(?:spring|summer|autumn|fall|winter|start|beginning|middle|end)"
    r"\sof)[\s-]((?:19|20)\d\d)(?![\w-]|[.,:/]\d)",
    _I,
)
_BRACKET = re.compile(rf"\s\[({_ISO_DAY}(?:/{_ISO_DAY})?|\d{{4}}-\d{{2}}|\d{{4}})\]")
_LONE_BRACKET = re.compile(r"\[(\d{4}(?:-\d{2})?)\]")
# months only where they are capitalised
_VERBS = frozenset({"may", "march", "mar"})
_POSSESSIVE = re.compile(r"['’]s\b")

_FIXED: dict[str, tuple[Unit, int]] = {
    "today": ("day", 0),
    "tonight": ("day", 0),
    "this morning": ("day", 0),
    "this afternoon": ("day", 0),
    "this evening": ("day", 0),
    "tomorrow": ("day", 1),
    "yesterday": ("day", -1),
    "last night": ("day", -1),
    "the day before yesterday": ("day", -2),
    "day before yesterday": ("day", -2),
    "the day after tomorrow": ("day", 2),
    "day after tomorrow": ("day", 2),
    "the week before last": ("week", -2),
    "the weekend before last": ("weekend", -2),
    "the month before last": ("month", -2),
    "the year before last": ("year", -2),
}
_FIXED_FORMS = "|".join(sorted(_FIXED, key=len, reverse=True)).replace(" ", r"\s")
_FIXED_WORDS = re.compile(rf"\b({_FIXED_FORMS})\b{_DAYPART}", _I)
_SIDES = {"last": -1, "previous": -1, "this past": -1, "this": 0, "next": 1, "this coming": 1}
_SIDED = re.compile(
    rf"\b(last|previous|next|this(?:\s(?:past|coming))?)\s(weekend|week|month|year|{_WEEKDAY}|{_MONTH})\b{_DAYPART}"
    r"(?!\sof\b|\s\d|-)",
    _I,
)
_AGO = re.compile(
    rf"(?<![\w.,/-])({_NUMBER})\s({_PERIOD})s?\s(ago|from\snow|from\stoday)\b(?!\s(?:yesterday|last|{_WEEKDAY})\b)",
    _I,
)
_WORD_BEFORE = re.compile(r"\w+(?=[\s-]\Z)")
_BEFORE = re.compile(
    rf"\bthe\s({_PERIOD}|night|{_WEEKDAY})\s(?:before|prior)(?=[.,;!?]|\s*$|\s*\n|\s\[\d{{4}})", _I
)
_ANCHOR = re.compile(rf"\b(?:the\s)?({_PERIOD}|{_WEEKDAY})\s(before|after|of)\s\Z", _I)
_ANCHOR_REACH = 32


def _phrases(text: str) -> list[_Phrase]:
    if not _HINT.search(text):
        return []
    found = sorted(_candidates(text), key=lambda phrase: (phrase.start, -phrase.end))
    kept: list[_Phrase] = []
    covered = 0
    for phrase in found:
        if phrase.start >= covered:
            kept.append(_with_bracket(phrase, text))
            covered = phrase.end
            if kept[-1].stated and (bracket := _bracket_after(text, phrase.end)):
                covered = bracket.end()
    return kept


def _candidates(text: str) -> Iterator[_Phrase]:
    for phrase in _absolute(text):
        yield _anchored(phrase, text)
    for match in _FIXED_WORDS.finditer(text):
        unit, count = _FIXED[" ".join(match[1].casefold().split())]
        yield _said(match, partial(shifted, unit=unit, count=count))
    for match in _SIDED.finditer(text):
        if _word_before(match) in DETERMINERS or match[2] in _VERBS:
            continue
        yield _said(match, _sided(match[2].casefold(), _SIDES[" ".join(match[1].casefold().split())]))
    for match in _AGO.finditer(text):
        if _word_before(match) in ROUNDERS:
            continue
        sign = -1 if match[3].casefold() == "ago" else 1
        yield _said(match, partial(shifted, unit=_UNITS[match[2].casefold()], count=sign * _count(match[1])))
    for match in _BEFORE.finditer(text):
        yield _said(match, _sided(match[1].casefold(), -1))


def _said(match: re.Match[str], meaning: _Meaning) -> _Phrase:
    return _Phrase(match.start(), match.end(), True, meaning)


def _word_before(match: re.Match[str]) -> str:
    start = match.start()
    before = _WORD_BEFORE.search(match.string, max(0, start - 12), start)
    return before.group().casefold() if before else ""


def _count(word: str) -> int:
    word = word.casefold()
    return 1 if word in {"a", "an"} else NUMERALS[word] if word in NUMERALS else int(word)


def _sided(name: str, side: int) -> _Meaning:
    if name in WEEKDAYS:
        return partial(weekday_near, weekday=WEEKDAYS[name], side=side)
    if name in MONTHS:
        return partial(month_near, month=MONTHS[name], side=side)
    return partial(shifted, unit=_UNITS[name], count=side)


def _absolute(text: str) -> Iterator[_Phrase]:
    for match in _ISO.finditer(text):
        first, last = match[1] or match[3], match[2]
        yield _fixed(match, partial(_iso_period, f"{first}/{last}" if last else first))
    for match in _LONE_BRACKET.finditer(text):
        yield _fixed(match, partial(_iso_period, match[1]), group=1)
    for match in _SLASHED.finditer(text):
        yield _fixed(match, partial(_slashed, match))
    for match in _DAY_MONTH.finditer(text):
        yield from _named(match, match[2], match[1], match[3])
    for match in _MONTH_DAY.finditer(text):
        yield from _named(match, match[1], match[2], match[3])
    for match in _MONTH_YEAR.finditer(text):
        yield _fixed(match, partial(_month_year, match))
    for match in _YEAR.finditer(text):
        yield _fixed(match, partial(_year, match), group=1)


def _fixed(match: re.Match[str], meaning: Callable[[], Period | None], group: int = 0) -> _Phrase:
    return _Phrase(match.start(group), match.end(group), False, lambda _: meaning())


def _named(match: re.Match[str], name: str, number: str, year: str | None) -> Iterator[_Phrase]:
    if name in _VERBS and not year:
        return
    month = MONTHS[name.casefold()]
    if year:
        yield _fixed(match, lambda: day_period(date(int(year), month, int(number))))
    elif 1 <= int(number) <= 31:
        end = match.end() - (match.group().endswith("."))
        yield _Phrase(match.start(), end, True, lambda day: nearest_year(day, month, int(number)))


def _iso_period(written: str) -> Period | None:
    first, _, last = written.partition("/")
    if len(first) < 10:
        start = date.fromisoformat(f"{first}-01-01"[:10])
        return month_of(start) if len(first) == 7 else year_of(start)
    start, end = date.fromisoformat(first), date.fromisoformat(last or first)
    for known in (day_period(start), weekend_of(start), week_of(start)):
        if (known.start, known.end) == (start, end):
            return known
    return None


def _slashed(match: re.Match[str]) -> Period | None:
    if match[1]:
        return day_period(date(int(match[1]), int(match[2]), int(match[3])))
    first, second, year = int(match[4]), int(match[6]), int(match[7])
    # 08.05.2023 is written day first; with slashes only a number above twelve tells
    if match[5] == "." or first > 12:
        return day_period(date(year, second, first))
    return day_period(date(year, first, second)) if second > 12 or first == second else None


def _month_year(match: re.Match[str]) -> Period:
    return month_of(date(int(match[2]), MONTHS[match[1].casefold()], 1))


def _year(match: re.Match[str]) -> Period:
    return year_of(date(int(match[1]), 1, 1))


def _anchored(phrase: _Phrase, text: str) -> _Phrase:
    """Widen "9 June 2023" to "the week before 9 June 2023" where the text says so."""
    match = _ANCHOR.search(text, max(0, phrase.start - _ANCHOR_REACH), phrase.start)
    if not match or phrase.relative:
        return phrase
    name, side = match[1].casefold(), {"before": -1, "of": 0, "after": 1}[match[2].casefold()]

    def meaning(day: date) -> Period | None:
        anchor = phrase.meaning(day)
        if anchor is None or anchor.granularity != "day":
            return None
        return _sided(name, side)(anchor.start)

    return _Phrase(match.start(), phrase.end, False, meaning)


def _bracket_after(text: str, at: int) -> re.Match[str] | None:
    possessive = _POSSESSIVE.match(text, at)
    return _BRACKET.match(text, possessive.end() if possessive else at)


def _with_bracket(phrase: _Phrase, text: str) -> _Phrase:
    bracket = _bracket_after(text, phrase.end) if phrase.relative else None
    if not bracket:
        return phrase
    try:
        stated = _iso_period(bracket[1])
    except ValueError:
        return phrase
    return _Phrase(phrase.start, phrase.end, True, phrase.meaning, stated)
