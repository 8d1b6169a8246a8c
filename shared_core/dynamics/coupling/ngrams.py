"""Which word sequences the texts of a bank share, and who shares them.

Does: the n-grams of at least two documents with their posting lists, and the distinct sets of documents that
some n-gram picks out.

Does not know: keys and values, embeddings, what is suspicious.

Source: none, ours [O]. Time and memory are linear in the number of tokens but for one sort per length. An
n-gram is the pair of its first and its last n - 1 words, each by the number of that shorter n-gram: both are
shared where it is, so that nothing else is looked at, and a pair of numbers is a code without collisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.coupling.tokens import number_tokens, starts

if TYPE_CHECKING:
    from shared_core.types import Array, BoolArray

_ROLL = np.uint64(6364136223846793005)
"""Odd, so that multiplication by it, modulo 2^64, is one to one."""
_WORD_SEED, _DOCUMENT_SEED = 1, 2


class SharedNgrams:
    """The word n-grams that at least two documents share.

    Args:
        texts: N documents.
        largest: Longest n-gram.
        token_limit: Tokens of a document that count.
    """

    def __init__(self, texts: Sequence[str], largest: int = 3, token_limit: int = 1000) -> None:
        self.tokens = number_tokens(texts, token_limit)
        self.count = len(self.tokens)
        owner = self.tokens.owner
        self._gram_at = np.full((largest, len(owner)), -1, np.int32)
        self._opens = np.zeros((largest, len(owner)), np.bool_)
        frequency, postings = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for extra in range(largest):
            new_frequency, new_postings = self._index(extra, owner, sum(map(len, frequency)))
            frequency.append(new_frequency)
            postings.append(new_postings)
        self.frequency: Array = np.concatenate(frequency)
        """(G,) in how many documents each n-gram stands."""
        self.length: Array = np.repeat(np.arange(largest + 1, dtype=np.int8), list(map(len, frequency)))
        """(G,) its number of words."""
        self._postings = np.concatenate(postings)
        self._file()

    def _index(self, extra: int, owner: Array, known: int) -> tuple[Array, Array]:
        """Number the n-grams of ``extra`` + 1 words from ``known`` on; return frequencies and postings."""
        positions, codes = self._occurrences(extra, owner)
        order, new_gram = _grouped(codes)
        positions = positions[order]
        documents = owner[positions]
        new_posting = new_gram | _changes(documents)
        gram_of = np.cumsum(new_gram, dtype=np.int32) - 1
        posted = gram_of[new_posting]
        frequency = np.bincount(posted, minlength=int(new_gram.sum()))
        shared = frequency >= 2
        self._gram_at[extra, positions] = _renamed(shared, known)[gram_of]
        self._opens[extra, positions] = new_posting
        return frequency[shared], documents[new_posting][shared[posted]]

    def _occurrences(self, extra: int, owner: Array) -> tuple[Array, Array]:
        """Return position, ascending, and code of the n-grams of this length that may stand in two documents.

        Each that does is there. Of the others most are not: a part of them, or the n-grams in their place of
        a hash table, stand in one document only.
        """
        if not extra:
            words = self.tokens.words
            positions = np.flatnonzero(_in_two(words, owner, len(self.tokens.vocabulary)))
            return positions, words[positions].astype(np.uint64) * _ROLL
        shorter = self._gram_at[extra - 1]
        whole = (shorter[:-1] >= 0) & (shorter[1:] >= 0) & (owner[:-1] == owner[1:])
        positions = np.flatnonzero(whole)
        codes = shorter[positions].astype(np.uint64) << np.uint64(32)
        codes |= shorter[positions + 1].astype(np.uint64)
        codes *= _ROLL
        bits = max(1, len(codes).bit_length())
        several = _in_two((codes >> np.uint64(64 - bits)).astype(np.int64), owner[positions], 1 << bits)
        return positions[several], codes[several]

    def _file(self) -> None:
        """Set what follows from frequencies and postings."""
        self._posting_start = starts(self.frequency)
        self._set_code = _sums(_random_codes(self.count, _DOCUMENT_SEED)[self._postings], self._posting_start)

    def take(self, rows: Array) -> SharedNgrams:
        """Return the same of some documents alone, numbered anew; sorts nothing.

        Args:
            rows: (M,) distinct documents, ascending.
        """
        if len(rows) == self.count:
            return self
        kept = np.zeros(self.count, np.bool_)
        kept[rows] = True
        stays, tokens_stay = kept[self._postings], np.repeat(kept, self.tokens.sizes)
        frequency = _sums(stays.astype(np.int64), self._posting_start)
        shared = frequency >= 2
        stays &= np.repeat(shared, self.frequency)
        part = copy(self)
        part.tokens = self.tokens.take(rows, tokens_stay)
        part.count = len(rows)
        part.frequency, part.length = frequency[shared], self.length[shared]
        part._postings = (np.cumsum(kept, dtype=np.int32) - 1)[self._postings[stays]]
        part._gram_at = np.append(_renamed(shared), np.int32(-1))[self._gram_at[:, tokens_stay]]
        part._opens = self._opens[:, tokens_stay]
        part._file()
        return part

    def documents(self, gram: int) -> Array:
        """Return the documents that hold an n-gram, ascending."""
        found: Array = self._postings[self._posting_start[gram] : self._posting_start[gram + 1]]
        return found

    def grams_of(self, documents: Array) -> Array:
        """Return the shared n-grams of some documents, once for each document that holds them."""
        positions = self.tokens.positions(documents)
        grams = self._gram_at[:, positions]
        return grams[self._opens[:, positions] & (grams >= 0)]

    def text(self, gram: int) -> tuple[str, ...]:
        """Return an n-gram's words."""
        document, length = int(self.documents(gram)[0]), int(self.length[gram])
        here = slice(self.tokens.start[document], self.tokens.start[document + 1])
        begin = int(np.flatnonzero(self._gram_at[length - 1, here] == gram)[0])
        return tuple(self.tokens[document][begin : begin + length])

    def member_sets(self, smallest: int, largest: int, fewest: int = 1) -> list[Array]:
        """Return, per distinct set of documents, the n-grams it shares; the sets that share most come first.

        Sets are compared by the sum of random 64-bit codes of their documents, so that a sort finds equals.

        Args:
            smallest: Documents of a set, at least.
            largest: And at most.
            fewest: N-grams that it shares, at least.
        """
        fitting = np.flatnonzero((self.frequency >= smallest) & (self.frequency <= largest))
        if not len(fitting):
            return []
        order = fitting[np.argsort(self._set_code[fitting], kind="stable")]
        begins = np.append(np.flatnonzero(_changes(self._set_code[order])), len(order))
        sizes = np.diff(begins)
        chosen = np.flatnonzero(sizes >= fewest)
        chosen = chosen[np.argsort(-sizes[chosen], kind="stable")]
        bounds = zip(begins[chosen].tolist(), begins[chosen + 1].tolist(), strict=True)
        return [order[begin:end] for begin, end in bounds]

    def share(self, marked: BoolArray) -> Array:
        """Return per n-gram which share of its documents is marked.

        Args:
            marked: (N,).
        """
        return _sums(marked[self._postings].astype(np.int64), self._posting_start) / self.frequency

    def coverage(self, documents: Array, grams: Array) -> list[BoolArray]:
        """Return for each of some documents which of its tokens belong to one of these n-grams."""
        positions = self.tokens.positions(documents)
        marked = np.isin(self._gram_at[:, positions], grams)
        covered = np.zeros(len(positions), np.bool_)
        # no n-gram goes beyond its document, so that documents can stand side by side
        for extra, begins in enumerate(marked):
            for shift in range(min(extra + 1, len(covered))):
                covered[shift:] |= begins[: len(covered) - shift]
        return np.split(covered, np.cumsum(self.tokens.sizes[documents])[:-1])

    def prefix_codes(self) -> tuple[Array, Array, Array]:
        """Return a code per prefix of each document (in one row), its document, and a code per document.

        A prefix that is another document as a whole has that document's code.
        """
        start, owner, words = self.tokens.start, self.tokens.owner, self.tokens.words
        place = np.arange(len(owner)) - start[owner]
        with np.errstate(over="ignore"):
            rolled = np.multiply.accumulate(
                np.full(int(self.tokens.sizes.max(initial=0)) + 1, _ROLL, np.uint64)
            )
            total = np.zeros(len(owner) + 1, np.uint64)
            np.cumsum(
                _random_codes(len(self.tokens.vocabulary), _WORD_SEED)[words] * rolled[place], out=total[1:]
            )
            prefixes = total[1:] - total[start[owner]]
            wholes = total[start[1:]] - total[start[:-1]]
        return prefixes, owner, wholes


def runs(tokens: list[str], covered: BoolArray) -> list[list[str]]:
    """Return the uninterrupted stretches of covered tokens, in order."""
    edges = np.diff(np.concatenate([[False], covered, [False]]).astype(np.int8))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [tokens[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def longest_run(tokens: list[str], covered: BoolArray) -> str:
    """Return the longest stretch of covered tokens, joined; "" where none is covered."""
    stretches = runs(tokens, covered)
    widest = int(np.argmax([len(stretch) for stretch in stretches])) if stretches else 0
    return " ".join(stretches[widest]) if stretches else ""


def _grouped(codes: Array) -> tuple[Array, BoolArray]:
    """Return an order that puts equal codes together, first come first, and marks where it goes to another.

    A sort of numbers is several times as fast as one of places, so that the place stands in the low bits of
    what is sorted, in the room of the code's own.
    """
    bits = np.uint64(max(1, len(codes)).bit_length())
    packed = (codes >> bits << bits) | np.arange(len(codes), dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    same_head = ~_changes(packed >> bits)
    new = _changes(codes[order])
    if (new & same_head).any():
        # codes that differ in their low bits only, which stand mixed: few
        heads = np.cumsum(~same_head) - 1
        mixed = np.flatnonzero(np.isin(heads, heads[new & same_head]))
        order[mixed] = order[mixed][np.argsort(codes[order[mixed]], kind="stable")]
        new = _changes(codes[order])
    return order, new


def _in_two(ids: Array, owner: Array, count: int) -> BoolArray:
    """Return for each occurrence whether its id, below ``count``, has several owners."""
    one, several = np.zeros(count, np.int32), np.zeros(count, np.bool_)
    one[ids] = owner
    several[ids[one[ids] != owner]] = True
    found: BoolArray = several[ids]
    return found


def _renamed(kept: BoolArray, known: int = 0) -> Array:
    """Return the new number of each n-gram, from ``known`` on, -1 of one that is not kept."""
    return np.where(kept, np.cumsum(kept) + (known - 1), -1).astype(np.int32)


def _random_codes(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(1, 2**63, size=count, dtype=np.uint64)


def _sums(values: Array, begins: Array) -> Array:
    """Return the sum of each stretch, modulo 2^64; no stretch is empty."""
    with np.errstate(over="ignore"):
        return np.asarray(np.add.reduceat(values, begins[:-1])) if len(values) else values


def _changes(values: Array) -> BoolArray:
    """Mark where a value differs from the one before it; the first always does."""
    changed = np.ones(len(values), np.bool_)
    changed[1:] = values[1:] != values[:-1]
    return changed
