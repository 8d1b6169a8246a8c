"""Sentences, words and content words of any text, and an estimate of its length in tokens.

Deterministic and linear in the text's length, on any string: other scripts, emoji, nulls, lone surrogates.
Knows no language beyond English stop words; text in other languages keeps all its words. Ours throughout [O].

Words are runs of letters, marks and digits, with inner apostrophes and hyphens ("don't", "part-time").
Scripts written without spaces give one word per pair of neighbouring characters.
Stemming is Snowball's English stemmer as tantivy ships it, loaded when first asked for.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from shared_core.language.vocabulary import ABBREVIATIONS, STOP_WORDS

MAX_WORD = 64
"""Longer words are junk or encoded data: they are no content words."""

_NO_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
_WORD = re.compile(r"\w+(?:['’\-]\w+)*")
_SPACELESS = re.compile(f"[{_NO_SPACES}]+")
# a full stop, or a line break; closing quotes and brackets stay with the sentence they close. Only from the
# beginning of a run: from each of its characters, a long run takes its length squared
_BREAK = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[」』”）]*|(?<![^\S\n])[^\S\n]*\n\s*")
_LAST_WORD = re.compile(r"[\w.]{1,12}$")
_PIECE = re.compile(r"[^\W\d_]+|\d+|\s+|.", re.DOTALL)
_LETTERS_PER_TOKEN = 6
_DIGITS_PER_TOKEN = 2


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the sentences as (start, end) character offsets, without surrounding whitespace.

    A sentence ends at ``.``, ``!`` or ``?`` before whitespace, or at a line break; not after an
    abbreviation or a single initial.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _BREAK.finditer(text):
        if match.group()[0] == "." and _is_abbreviation(text, start, match.start()):
            continue
        spans.extend(_trimmed(text, start, match.end()))
        start = match.end()
    spans.extend(_trimmed(text, start, len(text)))
    return spans


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each a verbatim slice of it."""
    return [text[start:end] for start, end in sentence_spans(text)]


def words(text: str) -> list[str]:
    """Return all words in order, case-folded, typographic apostrophes made straight."""
    return list(_words(text))


def content_words(text: str, *, stem: bool = False) -> list[str]:
    """Return the words that carry content, in order, case-folded.

    Stop words, possessive endings, single letters of alphabetic scripts and words of more than
    ``MAX_WORD`` characters are left out; numbers stay.

    Args:
        text: Any text.
        stem: Reduce each word to its Snowball stem ("parties" and "party" to "parti").
    """
    found = [bare for word in _words(text) if _has_content(bare := without_possessive(word))]
    return stem_words(found) if stem else found


def without_possessive(word: str) -> str:
    """Drop a possessive ending of a case-folded word: "caroline's" gives "caroline", "kids'" gives "kids"."""
    return word.removesuffix("'s").removesuffix("’s").rstrip("'’") if word not in STOP_WORDS else word


def stem_words(found: Iterable[str]) -> list[str]:
    """Return Snowball's English stem of each case-folded word."""
    return [_stem(word) for word in found]


def estimate_tokens(text: str) -> int:
    """Return roughly how many tokens a language model's tokenizer makes of a text.

    One per six letters of a word begun, per two digits begun, per punctuation mark or symbol, and per
    character of a script without spaces; spaces are free. Meant for budgets, where a fixed count that every
    method shares matters more than one model's exact one.
    """
    count = 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece.isspace():
            continue
        if piece.isdigit():
            count += -(-len(piece) // _DIGITS_PER_TOKEN)
        elif _SPACELESS.match(piece):
            count += len(piece)
        else:
            count += -(-len(piece) // _LETTERS_PER_TOKEN)
    return count


def _is_abbreviation(text: str, start: int, stop: int) -> bool:
    match = _LAST_WORD.search(text, max(start, stop - 12), stop)
    word = match.group() if match else ""
    return word.casefold() in ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I")


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    if left < len(piece):
        yield start + left, start + len(piece.rstrip())


def _words(text: str) -> Iterator[str]:
    folded = text.casefold().replace("’", "'")
    for match in _WORD.finditer(folded):
        word = match.group()
        if word.isascii() or not _SPACELESS.search(word):
            yield word
        else:
            yield from _spaceless(word)


def _spaceless(word: str) -> Iterator[str]:
    at = 0
    for match in _SPACELESS.finditer(word):
        if match.start() > at:
            yield word[at : match.start()]
        run = match.group()
        yield from (left + right for left, right in pairwise(run)) if len(run) > 1 else (run,)
        at = match.end()
    if at < len(word):
        yield word[at:]


def _has_content(word: str) -> bool:
    if word in STOP_WORDS or not 0 < len(word) <= MAX_WORD:
        return False
    return len(word) > 1 or word.isdigit() or not word.isascii()


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    # tantivy borrows an analyser mutably, so two threads must not be inside one
    with _STEMMER_LOCK:
        found = _stemmer().analyze(word)
    return found[0] if len(found) == 1 else word


_STEMMER_LOCK = threading.Lock()


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    return builder.filter(tantivy.Filter.stemmer("english")).build()
