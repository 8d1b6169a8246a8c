"""Names in text: runs of capitalised words, and the rule that says which of them are names.

Names have inner "of", "of the", "de", "&" and the like. A capital that only opens a sentence proves nothing,
so a single such word is a name only if it is an acronym or has capitals inside, labels a turn, is the speaker
or a known name, is capitalised elsewhere in the text within a sentence, or is followed by a word that only
persons do ("said", "lives") or by "and" with another capital. Greetings, weekdays and months alone are no
names, nor are words of a run that is all in capitals. Words of scripts without capitals are never names.
Ours [O].
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from shared_core.language.tokens import without_possessive
from shared_core.language.vocabulary import (
    NEVER_NAMES,
    OPENERS,
    PERSON_VERBS,
    ROLES,
    TITLES,
    WEAK_WORDS,
    WEEKDAYS,
)

# one word; inner full stops are those of "U.S." and the final one of "Dr."
_WORD = re.compile(r"[^\W_](?:[\w&+#]|['’.\-](?=\w))*")
_TOKEN = re.compile(r"[^\W_](?:[\w&+#]|['’.\-](?=\w))*|[.!?…:]+|\n|[^\w\s]")
_ENDS = frozenset(".!?…:\n")
_SPEAKER = re.compile(
    r"^[^\S\n]*([^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30}){0,2}):(?=\s)", re.MULTILINE
)
_JOINERS = frozenset(
    {"of", "de", "la", "le", "van", "von", "der", "den", "da", "di", "del", "du", "bin", "al", "&"}
)
_LEADING = frozenset({"the", "a", "an"}) | TITLES
PAIRED = "and Name"
_NO_NAME = ("ing", "ed", "ly", "tion", "ness", "ment")
_COMMON = OPENERS | WEAK_WORDS
_NEVER_LAST = NEVER_NAMES - WEEKDAYS.keys()  # as in "Black Friday"
_MAX_NAME_WORDS = 6
_MAX_NAME_WORD = 40
_SHOUTING = 3
_ACRONYM = 6


class Candidate(NamedTuple):
    """A run of capitalised words."""

    text: str
    norm: str
    opens: bool
    """It begins a sentence, so its first capital proves nothing."""
    first: str
    """The first word, case-folded."""
    strong: bool
    """The first word is an acronym, has capitals inside, or labels a turn."""
    after: str
    """The word that follows, case-folded; PAIRED for "and" before another capital."""


class _Token(NamedTuple):
    start: int
    end: int
    text: str
    capital: bool
    opens: bool


def normalise_name(name: str) -> str:
    """Return a name's one form: case-folded, no possessive ending, title or outer punctuation."""
    found = [without_possessive(word.casefold().replace("’", "'")) for word in _WORD.findall(name)]
    while len(found) > 1 and found[0].rstrip(".") in _LEADING:
        del found[0]
    return " ".join(word.rstrip(".'") for word in found)


def find_names(
    text: str, *, known: Collection[str] = (), blocked: Iterable[tuple[int, int]] = ()
) -> list[Candidate]:
    """Return the names of a text in order.

    Args:
        text: Any text.
        known: Names that count also where they only open a sentence.
        blocked: Spans in which no name is looked for, such as dates and links.
    """
    candidates = list(name_candidates(text, blocked))
    proven = {norm for name in known if (norm := normalise_name(name))}
    proven |= {part for norm in proven for part in norm.split()}
    proven |= {part for candidate in candidates if not candidate.opens for part in candidate.norm.split()}
    return [name for candidate in candidates if (name := _accepted(candidate, proven))]


def name_candidates(text: str, blocked: Iterable[tuple[int, int]] = ()) -> Iterator[Candidate]:
    """Yield every run of capitalised words that may be a name, outside the blocked spans."""
    labels = {match.start(1) for match in _SPEAKER.finditer(text) if match[1].casefold() not in ROLES}
    tokens = _tokens(text, sorted(blocked))
    at = 0
    while at < len(tokens):
        if not tokens[at].capital:
            at += 1
            continue
        stop = _run_end(tokens, at, text)
        yield from _candidate(text, tokens, at, stop, labels)
        at = stop


def _tokens(text: str, blocked: list[tuple[int, int]]) -> list[_Token]:
    tokens: list[_Token] = []
    opens, skip = True, 0
    for match in _TOKEN.finditer(text):
        word = match.group()
        start, end = match.span()
        while skip < len(blocked) and blocked[skip][1] <= start:
            skip += 1
        if word[0] in _ENDS:
            abbreviated = word == "." and tokens and tokens[-1].text.casefold() in TITLES
            opens = opens if abbreviated else True
            if not abbreviated:
                tokens.append(_Token(start, end, word, False, False))
            continue
        is_word = word[0].isalnum()
        hidden = skip < len(blocked) and blocked[skip][0] < end
        capital = is_word and not hidden and (word[0].isupper() or word[0].istitle() or _camel(word))
        tokens.append(_Token(start, end, word, capital, opens))
        # an opening quote, dash or emoji leaves the sentence unopened
        opens = opens and not is_word
    return _hushed(tokens)


def _camel(word: str) -> bool:
    return len(word) > 2 and word[0].islower() and word[1].isupper() and word.isascii()


def _hushed(tokens: list[_Token]) -> list[_Token]:
    """Take the capitals from runs of words written all in capitals: they shout, they do not name."""
    at = 0
    while at < len(tokens):
        end = at
        while end < len(tokens) and tokens[end].text.isupper():
            end += 1
        if sum(len(token.text) > 1 for token in tokens[at:end]) >= _SHOUTING:
            tokens[at:end] = [token._replace(capital=False) for token in tokens[at:end]]
        at = max(end, at + 1)
    return tokens


def _run_end(tokens: list[_Token], at: int, text: str) -> int:
    """Return where the run of capitalised words that begins at ``at`` ends."""
    end = at + 1
    while end < len(tokens) and end - at < 2 * _MAX_NAME_WORDS:
        if _possessive(tokens[end - 1].text) or not _adjacent(tokens, end, text):
            break
        if tokens[end].capital:
            end += 1
            continue
        skip = _joiner(tokens, end, text)
        if not skip:
            break
        end += skip + 1
    return end


def _joiner(tokens: list[_Token], at: int, text: str) -> int:
    """Return how many joining words stand at ``at`` before a capitalised one; 0 if they join nothing."""
    if tokens[at].text not in _JOINERS:
        return 0
    count = 2 if tokens[at].text == "of" and at + 1 < len(tokens) and tokens[at + 1].text == "the" else 1
    end = at + count
    joined = end < len(tokens) and tokens[end].capital and tokens[end].text.casefold() not in NEVER_NAMES
    return count if joined and all(_adjacent(tokens, i, text) for i in range(at + 1, end + 1)) else 0


def _adjacent(tokens: list[_Token], at: int, text: str) -> bool:
    gap = text[tokens[at - 1].end : min(tokens[at].start, tokens[at - 1].end + 3)]
    return gap == " " or (gap == ". " and tokens[at - 1].text.casefold() in TITLES)


def _possessive(word: str) -> bool:
    return word.endswith(("'s", "’s"))


def _candidate(text: str, tokens: list[_Token], at: int, stop: int, labels: set[int]) -> Iterator[Candidate]:
    opens = tokens[at].opens
    while at < stop and _trimmable(tokens[at], opens, stop - at):
        at += 1
        # what follows a trimmed opener is capitalised by choice
        opens = False
    while stop > at and tokens[stop - 1].text.casefold() in _NEVER_LAST:
        stop -= 1
    run = tokens[at : min(stop, at + _MAX_NAME_WORDS)]
    if not run or any(len(token.text) > _MAX_NAME_WORD for token in run) or not _nameable(run[0].text):
        return
    written = text[run[0].start : run[-1].end]
    norm = normalise_name(written)
    if not norm or (len(run) == 1 and (norm in NEVER_NAMES or len(norm) < 2)):
        return
    first = run[0].text
    strong = run[0].start in labels or _strong(first)
    after = tokens[stop].text.casefold() if stop < len(tokens) else ""
    if after == "and" and stop + 1 < len(tokens) and tokens[stop + 1].capital:
        after = PAIRED
    if _possessive(written):
        written = written[:-2]
    yield Candidate(written, norm, opens, without_possessive(first.casefold()), strong, after)


def _trimmable(token: _Token, opens: bool, left: int) -> bool:
    folded = without_possessive(token.text.casefold().replace("’", "'"))
    if folded in TITLES:
        return left == 1
    return folded in NEVER_NAMES or ((opens or _emphasised(token.text)) and folded in _COMMON)


def _emphasised(word: str) -> bool:
    return len(word) > 1 and word.isupper()


def _nameable(word: str) -> bool:
    return not (word.isupper() and len(word) > _ACRONYM and word.isalpha())


def _strong(word: str) -> bool:
    bare = word.removesuffix("'s").removesuffix("’s").rstrip("s")
    return (len(bare) > 1 and bare.isupper()) or any(c.isupper() for c in bare[1:].replace("-", ""))


def _accepted(candidate: Candidate, proven: set[str]) -> Candidate | None:
    if not candidate.opens or candidate.strong or not proven.isdisjoint((candidate.norm, candidate.first)):
        return candidate
    if " " not in candidate.norm:
        personal = candidate.after in PERSON_VERBS or candidate.after == PAIRED
        return candidate if personal and not candidate.first.endswith(_NO_NAME) else None
    # of "Visiting Paris" only the second capital is sure
    return without_opener(candidate) if candidate.first.endswith(_NO_NAME) else candidate


def without_opener(candidate: Candidate) -> Candidate:
    """Return the candidate less its first word, for one of several words."""
    rest = candidate.text.split(maxsplit=1)[1]
    norm = normalise_name(rest)
    return candidate._replace(text=rest, norm=norm, opens=False, first=norm.partition(" ")[0])
