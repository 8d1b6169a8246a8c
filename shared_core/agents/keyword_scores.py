"""BM25 over a snapshot of texts and a few supposed ones, in arrays: what a repair changes is computed anew.

The formula, its constants, the rounding of lengths and the words are those of ``Bm25Index``, whose order
this gives; but texts come and go without a trace, and no list of all hits is made. Scores agree to the last
bit but one of single precision.

Source: none, ours [O]; BM25 as in tantivy.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from shared_core.retrieval.bm25 import MAX_QUERY_TERMS, Analyser

if TYPE_CHECKING:
    from shared_core.types import Array, FloatArray

K1, B = 1.2, 0.75


class KeywordScores:
    """Scores of N texts and of M more behind them.

    Args:
        texts: The N, which stay.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._analyse = Analyser()
        self._numbers: dict[str, int] = {}
        terms, frequency, distinct, lengths = array("i"), array("f"), array("i"), array("i")
        for text in texts:
            count = Counter(self._analyse(text))
            terms.extend(self._numbers.setdefault(term, len(self._numbers)) for term in count)
            frequency.extend(count.values())
            distinct.append(len(count))
            lengths.append(count.total())
        held = np.array(terms, np.int32)
        order = np.argsort(held, kind="stable")
        self._rows = np.repeat(np.arange(len(texts), dtype=np.int32), np.array(distinct, np.int64))[order]
        self._frequency = np.array(frequency, np.float32)[order]
        self._starts = np.searchsorted(held[order], np.arange(len(self._numbers) + 1))
        self._lengths = np.array(lengths, np.int64)
        self._more: list[Counter[str]] = []
        self._queries: dict[str, list[str]] = {}
        self._settle()

    def add(self, texts: Sequence[str]) -> None:
        """Add texts behind those that are there."""
        self._more += [Counter(self._analyse(text)) for text in texts]
        self._settle()

    def drop(self, count: int) -> None:
        """Take back the last texts that were added."""
        del self._more[len(self._more) - count :]
        self._settle()

    def scores(self, query: str) -> FloatArray:
        """Return the BM25 score of each text, shape (N + M,); 0 where it shares no term with the query."""
        size = len(self._lengths)
        found = np.zeros(size + len(self._more))
        for term in self._terms(query):
            number = self._numbers.get(term, -1)
            at = slice(*self._starts[number : number + 2]) if number >= 0 else slice(0)
            rows, times = self._rows[at], self._frequency[at]
            holders = [row for row, count in enumerate(self._more, start=size) if term in count]
            weight = np.float32(self._idf(len(rows) + len(holders))) * np.float32(1 + K1)
            found[rows] += weight * (times / (times + self._damping[rows]))
            for row in holders:
                said = np.float32(self._more[row - size][term])
                found[row] += weight * (said / (said + self._damping[row]))
        # single precision hides in which order the terms were added
        return found.astype(np.float32)

    def _terms(self, query: str) -> list[str]:
        if (known := self._queries.get(query)) is None:
            known = list(islice(dict.fromkeys(self._analyse(query)), MAX_QUERY_TERMS))
            self._queries[query] = known
        return known

    def _idf(self, holders: int) -> float:
        size = len(self._lengths) + len(self._more)
        return math.log(1 + (size - holders + 0.5) / (holders + 0.5))

    def _settle(self) -> None:
        """Compute what depends on all texts: K1 (1 - B + B length / mean), shape (N + M,)."""
        added = np.array([count.total() for count in self._more], np.int64)
        lengths = np.concatenate([self._lengths, added])
        mean = np.float32(lengths.sum()) / np.float32(max(1, len(lengths)))
        share = _rounded(lengths).astype(np.float32) / max(mean, np.float32(1e-9))
        self._damping = np.float32(K1) * (np.float32(1 - B) + np.float32(B) * share)


def _rounded(lengths: Array) -> Array:
    """Return lengths as a byte can say them: exact below 40, then with four binary digits."""
    rest = np.arange(232)
    digits, shift = rest & 7, rest // 8 - 1
    beyond = 24 + np.where(shift < 0, digits, (digits | 8) << np.maximum(shift, 0))
    table = np.concatenate([np.arange(24), beyond])
    rounded: Array = table[np.searchsorted(table, lengths, side="right") - 1]
    return rounded
