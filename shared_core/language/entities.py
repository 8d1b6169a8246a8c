"""What a text is about: names, handles, links, numbers, money, quoted things, dates, and weak concepts.

Rules only: no model, no dictionary of names, one pass per kind, linear in the text's length on any input.
Every extractor satisfies one protocol, so that spaCy or a language model can take the rules' place. [O]
throughout: MemDream gives nodes an entity set and never says how it is found (section 3).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from shared_core.language.dates import covered_spans, resolve_dates
from shared_core.language.names import find_names, normalise_name
from shared_core.language.numbers import NumberMention, find_numbers
from shared_core.language.tokens import content_words
from shared_core.language.vocabulary import MONTHS, WEAK_WORDS, WEEKDAYS

EntityKind = Literal["name", "handle", "link", "number", "money", "quote", "date", "concept"]


class Entity(NamedTuple):
    """One thing that a text mentions; two mentions are the same thing when kind and norm agree."""

    kind: EntityKind
    text: str
    """As written."""
    norm: str
    """Case-folded, in one form: "caroline", "usd 1000", "2 week", "2023-05-08", "dog" for "Dogs"."""


@runtime_checkable
class EntityExtractor(Protocol):
    """Finds the entities of a text; satisfied by the rules, by SpacyExtractor, and by your own."""

    def __call__(self, text: str, *, speaker: str | None = None) -> frozenset[Entity]:
        """Return the entities of what the speaker, if known, said."""
        ...


@dataclass(frozen=True, kw_only=True)
class RuleExtractor:
    """The rules with options of their own; satisfies EntityExtractor."""

    day: date | None = None
    """When the text was said: relative dates are then resolved, and left out otherwise."""
    concepts: bool = False
    """Also give content words that are likely nouns, as weak entities."""
    known_names: Collection[str] = field(default_factory=frozenset)
    """Names that count also where they only open a sentence."""

    def __call__(self, text: str, *, speaker: str | None = None) -> frozenset[Entity]:
        """Return the entities of a text."""
        return extract_entities(
            text, speaker=speaker, day=self.day, concepts=self.concepts, known_names=self.known_names
        )


def extract_entities(
    text: str,
    *,
    speaker: str | None = None,
    day: date | None = None,
    concepts: bool = False,
    known_names: Collection[str] = (),
) -> frozenset[Entity]:
    """Return the entities of a text, one per kind and norm, written as at the first mention.

    Args:
        text: Any text; lines may begin with "Name: ".
        speaker: Who said it; becomes a name.
        day: When it was said, for relative dates.
        concepts: Also give likely nouns.
        known_names: Names that count also where they only open a sentence.
    """
    dates = resolve_dates(text, day)
    links = list(_links(text))
    found: list[Entity] = []
    if speaker and (norm := normalise_name(speaker)):
        found.append(Entity("name", speaker.strip(), norm))
    found.extend(entity for _, _, entity in links)
    found.extend(Entity("date", mention.text, mention.iso) for mention in dates)
    found.extend(quoted(text))
    spans = covered_spans(text, dates) + [(start, end) for start, end, _ in links]
    found.extend(
        Entity(number.kind, text[number.start : number.end], number.norm)
        for number in outside(find_numbers(text), spans)
        if not number.spelled or number.norm != number.value
    )
    known = (*known_names, speaker or "")
    found.extend(
        Entity("name", name.text, name.norm) for name in find_names(text, known=known, blocked=spans)
    )
    if concepts:
        found.extend(_concepts(text, found))
    unique = {(entity.kind, entity.norm): entity for entity in reversed(found)}
    return frozenset(unique.values())


def fold_plural(word: str) -> str:
    """Return the singular of a regular English plural: "parties", "boxes" and "dogs" lose their ending."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is", "'s")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "xes", "sses", "zzes")):
        return word[:-2]
    return word[:-1]


_LINK = re.compile(
    r"\bhttps?://[^\s<>\"']{1,2000}|\bwww\.[^\s<>\"']{1,2000}|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.\w{2,24})+"
)
_HANDLE = re.compile(r"(?<![\w@./])[@#](?=\w{0,40}[^\W\d_])\w{2,40}")
_QUOTE = re.compile(
    r"\"([^\"\n]{2,120})\"|“([^”\n]{2,120})”|«([^»\n]{2,120})»|「([^」\n]{1,120})」|『([^』\n]{1,120})』|《([^》\n]{1,120})》"
    r"|(?<!\w)['‘]([A-Z0-9][^'‘’\n]{1,80})['’](?!\w)"
)
_SPACES = re.compile(r"\s+")


def outside(numbers: Iterable[NumberMention], spans: Iterable[tuple[int, int]]) -> Iterator[NumberMention]:
    """Yield the numbers that overlap none of the spans; numbers come in order."""
    blocked = sorted(spans)
    at = 0
    for number in numbers:
        while at < len(blocked) and blocked[at][1] <= number.start:
            at += 1
        if at == len(blocked) or blocked[at][0] >= number.end:
            yield number


def quoted(text: str) -> Iterator[Entity]:
    """Yield what stands in quotation marks, up to 120 characters."""
    for match in _QUOTE.finditer(text):
        inner = _SPACES.sub(" ", match[match.lastindex or 0]).strip(" ,.!?;:")
        if inner and not inner.isspace():
            yield Entity("quote", inner, inner.casefold().replace("’", "'"))


def links_and_handles(text: str) -> list[Entity]:
    """Return web addresses, e-mail addresses, @handles and #tags."""
    return [entity for _, _, entity in _links(text)]


def _links(text: str) -> Iterator[tuple[int, int, Entity]]:
    if "://" in text or "www." in text or "@" in text or "#" in text:
        for match in _LINK.finditer(text):
            written = match.group().rstrip(".,;:!?)]}")
            yield match.start(), match.start() + len(written), Entity("link", written, written.casefold())
        for match in _HANDLE.finditer(text):
            yield match.start(), match.end(), Entity("handle", match.group(), match.group().casefold())


def _concepts(text: str, found: Iterable[Entity]) -> Iterator[Entity]:
    taken = {part for entity in found if entity.kind in {"name", "date"} for part in entity.norm.split()}
    skip = taken | MONTHS.keys() | WEEKDAYS.keys()
    for word in content_words(text):
        if len(word) < 3 and word.isascii():
            continue
        norm = fold_plural(word)
        plain = word not in WEAK_WORDS and norm not in WEAK_WORDS and norm not in skip and word not in skip
        if plain and not word[0].isdigit() and not word.endswith("ly") and "'" not in word:
            yield Entity("concept", word, norm)
