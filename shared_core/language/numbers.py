"""Numbers in text with their units: counts, measures, money, percentages, times of day, ordinals.

Finds digits of any script and English number words, and gives each one written form, so that "5 kilometers"
and "5km", "$1,000" and "1000 dollars", "two weeks" and "2 weeks" are equal. Knows nothing of dates; whoever
looks for both leaves out numbers that lie inside a date. Units are not converted into each other. Ours [O].
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Literal, NamedTuple

from shared_core.language.vocabulary import NUMERALS

MAX_DIGITS = 24
"""Longer digit strings are keys or junk, not quantities; they are passed over."""

_UNIT_FORMS = {
    "km": "km kilometer kilometers kilometre kilometres",
    "mile": "mile miles mi",
    "m": "m meter meters metre metres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "foot": "ft foot feet",
    "inch": "inch inches",
    "acre": "acre acres",
    "kg": "kg kgs kilo kilos kilogram kilograms",
    "g": "g gram grams",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs",
    "ounce": "oz ounce ounces",
    "liter": "l liter liters litre litres",
    "ml": "ml milliliter milliliters",
    "cup": "cup cups",
    "second": "sec secs seconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "day days",
    "night": "night nights",
    "week": "week weeks",
    "weekend": "weekend weekends",
    "month": "month months",
    "year": "year years yr yrs",
    "decade": "decade decades",
    "percent": "% percent",
    "degree": "° degree degrees °c °f",
    "calorie": "calorie calories kcal",
    "gb": "gb gigabyte gigabytes",
    "mb": "mb megabyte megabytes",
    "mph": "mph",
    "kmh": "km/h kph",
    "usd": "dollar dollars buck bucks usd",
    "eur": "euro euros eur",
    "gbp": "quid gbp",
    "cent": "cent cents",
    "jpy": "yen jpy",
    "inr": "rupee rupees inr",
}
_UNITS = {form: unit for unit, forms in _UNIT_FORMS.items() for form in forms.split()}
_MONEY_UNITS = frozenset({"usd", "eur", "gbp", "cent", "jpy", "inr"})
_SIGNS = {"$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "₹": "inr"}
_SCALES = {"hundred": 100, "thousand": 1_000, "k": 1_000, "million": 10**6, "m": 10**6, "billion": 10**9}

_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_DIGITS = re.compile(
    rf"""(?<![\w.])
    (?:(?P<clock>\d{{1,2}}:\d{{2}})(?![\d:])(?:\s?(?P<half>[ap])\.?m\b\.?)?
      |(?P<hour>\d{{1,2}})\s?(?P<half2>[ap])\.?m\b\.?
      |(?:(?:US)?(?P<sign>[$€£¥₹])\s?)?
       (?P<digits>\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d+)(?P<fraction>\.\d+)?
       (?P<more>(?:[/:]\d+)*)
       (?:\s?(?P<scale>hundred|thousand|million|billion|[kK](?!\w)|(?<=[\d])[mM](?!\w)))?
       (?:[\s-]?(?P<unit>{_UNIT})(?!\w)|(?P<tail>[^\W\d_]+\w*))?)""",
    re.VERBOSE | re.IGNORECASE,
)
_WORDS = re.compile(
    rf"""(?<![\w'’-])
    (?P<word>(?:{_TENS})[\s-](?:one|two|three|four|five|six|seven|eight|nine)\b|(?:{"|".join(NUMERALS)})\b|an?\b)
    (?:[\s-](?P<scale>hundred|thousand|million|billion)\b)?
    (?:[\s-](?P<unit>{_UNIT})(?!\w))?""",
    re.VERBOSE | re.IGNORECASE,
)


class NumberMention(NamedTuple):
    """One number in a text, ``text[start:end]``."""

    start: int
    end: int
    kind: Literal["number", "money"]
    norm: str
    """The value and the unit, as in "5 km", "usd 1000", "13:56", "3rd", "24/7"."""
    value: str
    """The bare value, "1000"; the whole norm where there is no plain value."""
    spelled: bool
    """Written in words."""


def find_numbers(text: str) -> list[NumberMention]:
    """Return the numbers of a text in order, without overlap.

    Number words count from two up, "one" and "a" only before a unit or scale ("an hour", "a hundred").
    """
    found = [mention for match in _DIGITS.finditer(text) for mention in _from_digits(match)]
    found.extend(mention for match in _WORDS.finditer(text) for mention in _from_words(match))
    found.sort()
    return [mention for i, mention in enumerate(found) if not i or mention.start >= found[i - 1].end]


def _from_digits(match: re.Match[str]) -> Iterator[NumberMention]:
    start, end = match.span()
    if end - start > MAX_DIGITS + 40:
        return
    if match["clock"] or match["hour"]:
        norm = _clock(match)
        if norm:
            yield NumberMention(start, end, "number", norm, norm, False)
        return
    if len(match["digits"]) + len(match["fraction"] or "") > MAX_DIGITS:
        return
    if match["tail"] or match["more"]:
        norm = _ascii(match.group().strip().casefold())
        yield NumberMention(start, end, "number", norm, norm, False)
        return
    scale, unit = match["scale"], _SIGNS.get(match["sign"] or "") or _unit(match)
    if scale in {"m", "M"} and not match["sign"]:
        # "$5m" are millions, "5m" are metres
        scale, unit = None, "m"
    value = _value(_ascii(match["digits"].replace(",", "") + (match["fraction"] or "")), scale)
    yield _mention(start, end, value, unit, spelled=False)


def _from_words(match: re.Match[str]) -> Iterator[NumberMention]:
    word = match["word"].casefold()
    unit = _unit(match)
    if word in {"a", "an"}:
        # "a day" and "an hour" are rarely a count; a scale always is
        if not match["scale"]:
            return
        number = 1
    else:
        number = sum(NUMERALS[part] for part in re.split(r"[\s-]", word))
    if number == 1 and not (unit or match["scale"]):
        return
    yield _mention(match.start(), match.end(), _value(str(number), match["scale"]), unit, spelled=True)


def _mention(start: int, end: int, value: str, unit: str | None, *, spelled: bool) -> NumberMention:
    if unit in _MONEY_UNITS:
        return NumberMention(start, end, "money", f"{unit} {value}", value, spelled)
    return NumberMention(start, end, "number", f"{value} {unit}" if unit else value, value, spelled)


def _unit(match: re.Match[str]) -> str | None:
    return _UNITS[match["unit"].casefold()] if match["unit"] else None


def _value(digits: str, scale: str | None) -> str:
    number = Decimal(digits) * _SCALES.get((scale or "").casefold(), 1)
    plain = f"{number:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _clock(match: re.Match[str]) -> str | None:
    hour, _, minute = _ascii(match["clock"] or f"{match['hour']}:00").partition(":")
    half = (match["half"] or match["half2"] or "").casefold()
    if int(minute) > 59 or int(hour) > (12 if half else 24):
        return None
    hours = int(hour) % 12 + (12 if half == "p" else 0) if half else int(hour)
    return f"{hours:02}:{minute}"


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
