"""The texts of a bank as numbers: one per token, and each distinct token once.

Does: tokens, their numbers, and back from a document's numbers to its tokens.

Does not know: n-grams, keys and values, what is suspicious.

Source: none, ours [O]. Time is linear in the text, whatever the text: the pattern cannot backtrack, and a
text counts with its first ``limit`` tokens. Words that come again, which most do, are taken apart once.
Memory is four bytes a token: a bank of a million memories has more of them than there is room for as strings.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, count, islice
from typing import TYPE_CHECKING, overload

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array

_TOKEN = re.compile(r"[^\W_]{1,64}|[^\w\s]|_")
_LONGEST = 64
"""Letters of a token, see ``_TOKEN``."""
_SHORT = 65_536
"""Letters up to which a text is taken apart at once, faster than token by token."""
_CHUNK = 8192
"""Texts that are held as strings at once."""


def tokenize(text: str, limit: int) -> list[str]:
    """Return the first ``limit`` tokens: lower-cased words (in pieces of 64 letters) and single symbols."""
    text = text.lower()
    if len(text) <= _SHORT:
        return _TOKEN.findall(text)[:limit]
    return [match.group() for match in islice(_TOKEN.finditer(text), limit)]


class Tokens(Sequence[list[str]]):
    """The tokens of N documents: ``tokens[document]`` is a list of strings, made when it is asked for.

    Args:
        words: (T,) number of each token, all documents one after the other.
        start: (N + 1,) where each document begins in ``words``.
        vocabulary: Token of each number.
    """

    def __init__(self, words: Array, start: Array, vocabulary: Sequence[str]) -> None:
        self.words = words
        self.start = start
        self.vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self.start) - 1

    @overload
    def __getitem__(self, document: int) -> list[str]: ...

    @overload
    def __getitem__(self, document: slice) -> list[list[str]]: ...

    def __getitem__(self, document: int | slice) -> list[str] | list[list[str]]:
        if isinstance(document, slice):
            return [self[row] for row in range(len(self))[document]]
        row = range(len(self))[document]
        numbers = self.words[self.start[row] : self.start[row + 1]].tolist()
        return [self.vocabulary[number] for number in numbers]

    @property
    def sizes(self) -> Array:
        """(N,) how many tokens each document has."""
        return np.diff(self.start)

    @property
    def owner(self) -> Array:
        """(T,) the document of each token."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.sizes)

    def positions(self, documents: Array) -> Array:
        """Return where the tokens of some documents stand in ``words``, one document after the other."""
        sizes = self.start[documents + 1] - self.start[documents]
        ends = np.cumsum(sizes)
        return np.repeat(self.start[documents] - (ends - sizes), sizes) + np.arange(sizes.sum())

    def take(self, documents: Array, stays: Array) -> Tokens:
        """Return those of some documents alone.

        Args:
            documents: (M,) ascending.
            stays: (T,) which tokens are theirs.
        """
        return Tokens(self.words[stays], starts(self.sizes[documents]), self.vocabulary)


def number_tokens(texts: Sequence[str], limit: int) -> Tokens:
    """Return the first ``limit`` tokens of each text as numbers, by the order in which they first come."""
    pieces: defaultdict[str, int] = defaultdict(count().__next__)
    numbered = []
    for begin in range(0, len(texts), _CHUNK):
        apart = [_pieces(text, limit) for text in texts[begin : begin + _CHUNK]]
        sizes = np.fromiter(map(len, apart), np.int64, len(apart))
        numbered.append((sizes, _numbers(pieces, chain.from_iterable(apart), int(sizes.sum()))))
    vocabulary: defaultdict[str, int] = defaultdict(count().__next__)
    lengths = np.fromiter(map(len, map(_of_piece, pieces)), np.int64, len(pieces))
    words = _numbers(vocabulary, chain.from_iterable(map(_of_piece, pieces)), int(lengths.sum()))
    found = [_expanded(number, sizes, words, starts(lengths), limit) for sizes, number in numbered]
    if not found:
        return Tokens(np.zeros(0, np.int32), np.zeros(1, np.int64), [])
    flat, counts = (np.concatenate(column) for column in zip(*found, strict=True))
    return Tokens(flat, starts(counts), list(vocabulary))


def starts(sizes: Array) -> Array:
    """Return where stretches of these sizes begin, one after the other, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _pieces(text: str, limit: int) -> list[str]:
    """Return stretches without blanks, each of at least one token, at most ``limit``."""
    text = text.lower()
    return text.split()[:limit] if len(text) <= _SHORT else tokenize(text, limit)


def _of_piece(piece: str) -> list[str]:
    """Return the tokens of a lower-cased stretch without blanks."""
    return [piece] if len(piece) <= _LONGEST and piece.isalnum() else _TOKEN.findall(piece)


def _numbers(known: defaultdict[str, int], names: Iterable[str], total: int) -> Array:
    return np.fromiter(map(known.__getitem__, names), np.int32, total)


def _expanded(pieces: Array, sizes: Array, words: Array, start: Array, limit: int) -> tuple[Array, Array]:
    """Return the words of a chunk's pieces, and how many of them each of its documents has."""
    lengths = start[pieces + 1] - start[pieces]
    ends = np.cumsum(lengths)
    total = int(lengths.sum())
    flat = words[np.repeat(start[pieces] - (ends - lengths), lengths) + np.arange(total)]
    counts = np.diff(np.concatenate([np.zeros(1, np.int64), ends])[starts(sizes)])
    if counts.max(initial=0) > limit:
        place = np.arange(total) - np.repeat(starts(counts)[:-1], counts)
        flat, counts = flat[place < limit], np.minimum(counts, limit)
    return flat, counts
