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
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.types import Array, BoolArray

_TOKEN = re.compile(r"[^\W_]{1,64}|[^\w\s]|_")
_ROLL = np.uint64(6364136223846793005)
_WORD_SEED, _DOCUMENT_SEED = 1, 2


def tokenize(text: str, limit: int) -> list[str]:
    """Return the first ``limit`` tokens: lower-cased words (in pieces of 64 letters) and single symbols."""
    return [match.group() for match in islice(_TOKEN.finditer(text.lower()), limit)]


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
        self._start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        owner = np.repeat(np.arange(self.count), sizes)
        self.words, vocabulary = _word_ids(self.tokens)
        self._index(*_occurrences(self.words, owner, vocabulary, largest), owner, largest)

    def _index(self, codes: Array, positions: Array, lengths: Array, owner: Array, largest: int) -> None:
        """Sort all occurrences by n-gram, keep the n-grams of two documents, and file them both ways."""
        order = np.lexsort((positions, codes))
        codes, positions, lengths = codes[order], positions[order], lengths[order]
        documents = owner[positions]
        new_gram = _changes(codes)
        new_posting = new_gram | _changes(documents)
        gram_of = np.cumsum(new_gram) - 1
        frequency = np.bincount(gram_of[new_posting], minlength=int(new_gram.sum()))
        shared = frequency >= 2
        new_name = np.where(shared, np.cumsum(shared) - 1, -1)
        self.frequency: Array = frequency[shared]
        """(G,) in how many documents each n-gram stands."""
        self.length: Array = lengths[new_gram][shared]
        """(G,) its number of words."""
        self._first = positions[new_gram][shared]
        self._postings = documents[new_posting][shared[gram_of[new_posting]]]
        self._posting_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.frequency)])
        self._set_code = _sums(_random_codes(self.count, _DOCUMENT_SEED)[self._postings], self._posting_start)
        by_document = np.argsort(self._postings, kind="stable")
        self._of_document = np.repeat(np.arange(len(self.frequency)), self.frequency)[by_document]
        self._document_start = np.searchsorted(self._postings[by_document], np.arange(self.count + 1))
        self._gram_at = np.full((largest, len(owner)), -1, np.int64)
        self._gram_at[lengths - 1, positions] = new_name[gram_of]

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
    """Return code, position and length of every n-gram whose words all stand in two documents."""
    common = _document_frequency(words, owner, vocabulary)[words] >= 2
    word_codes = _random_codes(vocabulary, _WORD_SEED)[words]
    rolling, inside = word_codes, np.ones(len(words), np.bool_)
    codes, positions, lengths = [], [], []
    with np.errstate(over="ignore"):
        for length in range(1, largest + 1):
            if length > 1:
                rolling = rolling[:-1] * _ROLL + word_codes[length - 1 :]
                inside = owner[: len(rolling)] == owner[length - 1 :]
            usable = inside.copy()
            for shift in range(length):
                usable &= common[shift : shift + len(rolling)]
            found = np.flatnonzero(usable)
            codes.append(rolling[found] + np.uint64(length))
            positions.append(found)
            lengths.append(np.full(len(found), length, np.int64))
    return np.concatenate(codes), np.concatenate(positions), np.concatenate(lengths)


def _document_frequency(words: Array, owner: Array, vocabulary: int) -> Array:
    if not len(words):
        return np.zeros(vocabulary, np.int64)
    documents = int(owner.max()) + 1
    return np.bincount(np.unique(words * documents + owner) // documents, minlength=vocabulary)


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
