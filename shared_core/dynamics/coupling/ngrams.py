"""Which word sequences the texts of a bank share, and who shares them.

Does: tokens, the n-grams of at least two documents with their posting lists, and the distinct sets of
documents that some n-gram picks out.

Does not know: keys and values, embeddings, what is suspicious.

Source: none, ours [O]. Time and memory are linear in the number of tokens but for one sort, whatever the
text: the pattern cannot backtrack, and a text counts with its first ``token_limit`` tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array, BoolArray

_TOKEN = re.compile(r"[^\W_]{1,64}|[^\w\s]|_")
_SHORT = 65_536
"""Letters up to which a text is taken apart at once, faster than token by token."""
_ROLL = np.uint64(6364136223846793005)
_WORD_SEED, _DOCUMENT_SEED = 1, 2


def tokenize(text: str, limit: int) -> list[str]:
    """Return the first ``limit`` tokens: lower-cased words (in pieces of 64 letters) and single symbols."""
    text = text.lower()
    if len(text) <= _SHORT:
        return _TOKEN.findall(text)[:limit]
    return [match.group() for match in islice(_TOKEN.finditer(text), limit)]


class SharedNgrams:
    """The word n-grams that at least two documents share.

    Args:
        texts: N documents.
        largest: Longest n-gram.
        token_limit: Tokens of a document that count.
    """

    def __init__(self, texts: Sequence[str], largest: int = 3, token_limit: int = 1000) -> None:
        self.tokens = [tokenize(text, token_limit) for text in texts]
        self.count = len(self.tokens)
        sizes = np.array([len(tokens) for tokens in self.tokens], np.int64)
        self._start = _starts(sizes)
        owner = np.repeat(np.arange(self.count), sizes)
        self.words, vocabulary = _word_ids(self.tokens)
        self._index(*_occurrences(self.words, owner, vocabulary, largest), owner, largest)

    def _index(self, codes: Array, positions: Array, lengths: Array, owner: Array, largest: int) -> None:
        """Sort all occurrences by n-gram and keep the n-grams of two documents."""
        # positions ascend within a length, and a code stands for one length: stable is by position, too
        order = np.argsort(codes, kind="stable")
        codes, positions, lengths = codes[order], positions[order], lengths[order]
        documents = owner[positions]
        new_gram = _changes(codes)
        new_posting = new_gram | _changes(documents)
        gram_of = np.cumsum(new_gram) - 1
        frequency = np.bincount(gram_of[new_posting], minlength=int(new_gram.sum()))
        shared = frequency >= 2
        self.frequency: Array = frequency[shared]
        """(G,) in how many documents each n-gram stands."""
        self.length: Array = lengths[new_gram][shared]
        """(G,) its number of words."""
        self._postings = documents[new_posting][shared[gram_of[new_posting]]]
        self._gram_at = np.full((largest, len(owner)), -1, np.int32)
        self._gram_at[lengths - 1, positions] = _renamed(shared)[gram_of]
        self._opens = np.zeros((largest, len(owner)), np.bool_)
        self._opens[lengths - 1, positions] = new_posting
        self._file()

    def _file(self) -> None:
        """Set what follows from frequencies, postings and the n-gram at each token."""
        self._posting_start = _starts(self.frequency)
        self._set_code = _sums(_random_codes(self.count, _DOCUMENT_SEED)[self._postings], self._posting_start)
        self._first = np.zeros(len(self.frequency), np.int64)
        for grams in self._gram_at:
            backwards = np.flatnonzero(grams >= 0)[::-1]
            self._first[grams[backwards]] = backwards
        once = (self._opens & (self._gram_at >= 0)).T
        self._of_document = self._gram_at.T[once]
        self._document_start = _starts(once.sum(axis=1))[self._start]

    def take(self, rows: Array) -> SharedNgrams:
        """Return the same of some documents alone, numbered anew; sorts nothing.

        Args:
            rows: (M,) distinct documents, ascending.
        """
        if len(rows) == self.count:
            return self
        kept = np.zeros(self.count, np.bool_)
        kept[rows] = True
        stays, tokens_stay = kept[self._postings], np.repeat(kept, np.diff(self._start))
        frequency = _sums(stays.astype(np.int64), self._posting_start)
        shared = frequency >= 2
        stays &= np.repeat(shared, self.frequency)
        part = copy(self)
        part.tokens = [self.tokens[row] for row in rows.tolist()]
        part.count = len(rows)
        part._start = _starts(np.diff(self._start)[rows])
        part.words = self.words[tokens_stay]
        part.frequency, part.length = frequency[shared], self.length[shared]
        part._postings = (np.cumsum(kept) - 1)[self._postings[stays]]
        part._gram_at = np.append(_renamed(shared), np.int32(-1))[self._gram_at[:, tokens_stay]]
        part._opens = self._opens[:, tokens_stay]
        part._file()
        return part

    def documents(self, gram: int) -> Array:
        """Return the documents that hold an n-gram, ascending."""
        found: Array = self._postings[self._posting_start[gram] : self._posting_start[gram + 1]]
        return found

    def grams_of(self, document: int) -> Array:
        """Return the shared n-grams of a document, each once."""
        found: Array = self._of_document[self._document_start[document] : self._document_start[document + 1]]
        return found

    def text(self, gram: int) -> tuple[str, ...]:
        """Return an n-gram's words."""
        position = int(self._first[gram])
        document = int(np.searchsorted(self._start, position, side="right")) - 1
        begin = position - int(self._start[document])
        return tuple(self.tokens[document][begin : begin + int(self.length[gram])])

    def member_sets(self, smallest: int, largest: int) -> list[Array]:
        """Return, per distinct set of ``smallest`` to ``largest`` documents, the n-grams it shares.

        Sets are compared by the sum of random 64-bit codes of their documents, so that a sort finds equals.
        """
        fitting = np.flatnonzero((self.frequency >= smallest) & (self.frequency <= largest))
        if not len(fitting):
            return []
        order = fitting[np.argsort(self._set_code[fitting], kind="stable")]
        borders = np.flatnonzero(_changes(self._set_code[order]))[1:]
        return list(np.split(order, borders))

    def marker(self, grams: Array) -> BoolArray:
        """Return a table for ``coverage`` that marks these n-grams."""
        marked = np.zeros(len(self.frequency) + 1, np.bool_)
        marked[grams] = True
        return marked

    def coverage(self, document: int, marked: BoolArray) -> BoolArray:
        """Return which tokens of a document belong to a marked n-gram, see ``marker``."""
        here = slice(self._start[document], self._start[document + 1])
        covered = np.zeros(len(self.tokens[document]), np.bool_)
        for extra, grams in enumerate(self._gram_at[:, here]):
            begins = marked[grams]
            for shift in range(min(extra + 1, len(covered))):
                covered[shift:] |= begins[: len(covered) - shift]
        return covered

    def prefix_codes(self) -> tuple[Array, Array, Array]:
        """Return a code per prefix of each document (in one row), its document, and a code per document.

        A prefix that is another document as a whole has that document's code.
        """
        sizes = np.diff(self._start)
        owner = np.repeat(np.arange(self.count), sizes)
        place = np.arange(len(owner)) - self._start[owner]
        with np.errstate(over="ignore"):
            vocabulary = int(self.words.max()) + 1 if len(self.words) else 0
            rolled = np.multiply.accumulate(np.full(int(sizes.max(initial=0)) + 1, _ROLL, np.uint64))
            terms = _random_codes(vocabulary, _WORD_SEED)[self.words] * rolled[place]
            total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
            prefixes = total[1:] - total[self._start[owner]]
            wholes = total[self._start[1:]] - total[self._start[:-1]]
        return prefixes, owner, wholes


def runs(tokens: list[str], covered: BoolArray) -> list[list[str]]:
    """Return the uninterrupted stretches of covered tokens, in order."""
    edges = np.diff(np.concatenate([[False], covered, [False]]).astype(np.int8))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [tokens[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]


def longest_run(tokens: list[str], covered: BoolArray) -> str:
    """Return the longest stretch of covered tokens, joined; "" where none is covered."""
    stretches = runs(tokens, covered)
    widest = int(np.argmax([len(stretch) for stretch in stretches])) if stretches else 0
    return " ".join(stretches[widest]) if stretches else ""


def _word_ids(tokens: Sequence[Sequence[str]]) -> tuple[Array, int]:
    names: dict[str, int] = {}
    total = sum(map(len, tokens))
    flat = (names.setdefault(word, len(names)) for words in tokens for word in words)
    return np.fromiter(flat, np.int64, total), len(names)


def _occurrences(words: Array, owner: Array, vocabulary: int, largest: int) -> tuple[Array, Array, Array]:
    """Return code, position and length of the n-grams that may stand in two documents.

    Each that does is there. Of the others most are not: their words, or the n-grams in their place of a hash
    table, stand in one document only.
    """
    word_codes = _random_codes(vocabulary, _WORD_SEED)[words]
    rolling, common = word_codes, _in_two(words, owner, vocabulary)
    codes, positions, lengths = [], [], []
    with np.errstate(over="ignore"):
        for length in range(1, largest + 1):
            if length > 1:
                rolling = rolling[:-1] * _ROLL + word_codes[length - 1 :]
                common = common[:-1] & common[1:] & (owner[: len(rolling)] == owner[length - 1 :])
                common[common] = _in_two(*_places(rolling[common], owner[: len(rolling)][common]))
            found = np.flatnonzero(common)
            codes.append(rolling[found] + np.uint64(length))
            positions.append(found)
            lengths.append(np.full(len(found), length, np.int64))
    return np.concatenate(codes), np.concatenate(positions), np.concatenate(lengths)


def _places(codes: Array, owner: Array) -> tuple[Array, Array, int]:
    """Return the arguments of ``_in_two`` for codes, hashed to a table of at least twice as many places."""
    bits = max(1, 2 * len(codes)).bit_length()
    return (codes >> np.uint64(64 - bits)).astype(np.int64), owner, 1 << bits


def _in_two(ids: Array, owner: Array, count: int) -> BoolArray:
    """Return for each occurrence whether its id, below ``count``, has several owners; owners ascend."""
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    # of several values for one place the last is kept
    first[ids[::-1]], last[ids] = owner[::-1], owner
    several: BoolArray = (first != last)[ids]
    return several


def _starts(sizes: Array) -> Array:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _renamed(kept: BoolArray) -> Array:
    """Return the new number of each n-gram, -1 of one that is not kept."""
    return np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)


def _random_codes(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(1, 2**63, size=count, dtype=np.uint64)


def _sums(values: Array, starts: Array) -> Array:
    """Return the sum of each stretch, modulo 2^64; no stretch is empty."""
    with np.errstate(over="ignore"):
        return np.asarray(np.add.reduceat(values, starts[:-1])) if len(values) else values


def _changes(values: Array) -> BoolArray:
    """Mark where a value differs from the one before it; the first always does."""
    changed = np.ones(len(values), np.bool_)
    changed[1:] = values[1:] != values[:-1]
    return changed
