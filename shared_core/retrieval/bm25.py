"""Keyword search: an in-memory BM25 index on tantivy, incremental, for any text a user may hold.

The sparse arm of design section 2; knows ids and texts, nothing of weights, embeddings or stores. BM25 is
tantivy's: idf = ln(1 + (N - n + 0.5) / (n + 0.5)), k1 = 1.2, b = 0.75, document lengths exact up to 40
tokens and rounded to a byte beyond. Ours [O]:

- Text is NFKC-normalised and case-folded, then cut into words (letters, marks, digits, underscore; the
  first 64 characters count), symbols such as emoji one by one, and, for scripts written without spaces
  and Hangul, every character and every pair of neighbours. Lone surrogates become "?", a separator.
- A query is analysed by the same code and becomes an OR of term queries, so no query syntax exists.
  Each distinct term counts once, and only the first 1024 count.
- Ties go by id; which segment holds a document, and when it was written, does not show.
- Removed documents stay in N and n until they are a quarter of the index, when it is rebuilt, or ``compact``.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import tantivy

from shared_core.errors import ConfigError, InvalidMemoryError
from shared_core.types import Array, FloatArray

MAX_QUERY_TERMS = 1024
_MAX_WORD = 64
_COMMON = 64
"""Documents from which a term's list is worth keeping."""
_POSTINGS_HELD = 4_000_000
"""Entries of such lists, of 8 bytes each, that are kept until the next writing."""
_HEAP_BYTES = 15_000_000  # tantivy's least for one thread
_REBUILD_LEAST = 64
_NO_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}\x{30FC}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = rf"[[\p{{L}}\p{{N}}_]--[{_NO_SPACES}]][[\p{{L}}\p{{M}}\p{{N}}_]--[{_NO_SPACES}]]*|\p{{So}}"
# Canonical ordering is quadratic in a run of combining marks, so no piece given to it is long.
_PIECE = re.compile(r"\S{1,256}")


class ScoredRows(NamedTuple):
    """BM25 of every document, by the index's own numbers."""

    scores: FloatArray
    """Shape (n,), float32; 0 where there is no word in common."""
    alphabetical: Array
    """Place of each row among all ids, ascending, shape (n,)."""
    names: dict[int, str]
    """Id of each row; grows, and is another one once rows mean something else."""


class _Snapshot:
    """What one search sees: a searcher and the ids of its rows."""

    def __init__(self, searcher: Any, names: dict[int, str], schema: Any) -> None:
        self.searcher = searcher
        self.names = names
        self._schema = schema
        self._lock = threading.Lock()
        self._postings: dict[str, tuple[Array, FloatArray]] = {}
        self._held = 0

    @cached_property
    def alphabetical(self) -> Array:
        """Place of each row among all ids, ascending."""
        # a writer may let the shared dict grow meanwhile
        names = dict(self.names)
        order = np.empty(max(names, default=-1) + 1, np.int64)
        order[sorted(names, key=names.__getitem__)] = np.arange(len(names))
        return order

    def word(self, term: str) -> Any:
        """Return the query for one term."""
        return tantivy.Query.term_query(self._schema, "body", term, "freq")

    def postings(self, term: str) -> tuple[Array, FloatArray]:
        """Return the rows that hold a term and what it adds to each score; of common terms both are kept."""
        with self._lock:
            if (known := self._postings.pop(term, None)) is not None:
                # the longest unused one goes first
                self._postings[term] = known
                return known
        hits = self.searcher.search(
            self.word(term), max(1, self.searcher.doc_freq("body", term)), count=False
        ).hits
        scores = np.array(list(map(itemgetter(0), hits)), np.float32)
        addresses = list(map(itemgetter(1), hits))
        rows = np.array(self.searcher.fast_field_values("row", addresses) if hits else [], np.int32)
        if len(rows) >= _COMMON:
            self._keep(term, (rows, scores))
        return rows, scores

    def _keep(self, term: str, found: tuple[Array, FloatArray]) -> None:
        with self._lock:
            if term not in self._postings:
                self._postings[term] = found
                self._held += len(found[0])
            while self._held > _POSTINGS_HELD:
                gone = self._postings.pop(next(iter(self._postings)))
                self._held -= len(gone[0])


class RankedRows(NamedTuple):
    """Documents by the index's own numbers, best first."""

    rows: Array
    """Shape (n,)."""
    scores: FloatArray
    """BM25, shape (n,)."""
    names: dict[int, str]
    """Id of each row; grows, and is another one once rows mean something else."""


class Bm25Index:
    """Documents by id, searched by keywords.

    Many threads may search while one or more write: writes take one lock, and a search sees the index as
    it was before or after a write, never between. Every write is committed when its method returns.
    """

    def __init__(self) -> None:
        self._analyse = Analyser()
        self._lock = threading.Lock()
        self._schema = _schema()
        self._index = _empty_index(self._schema)
        self._rows: dict[str, int] = {}
        self._next_row = 0
        self._snapshot = _Snapshot(self._index.searcher(), {}, self._schema)

    def __len__(self) -> int:
        return int(self._snapshot.searcher.num_docs)

    @property
    def ids(self) -> set[str]:
        """The ids of all documents, as a copy."""
        with self._lock:
            return set(self._rows)

    def add(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        """Add documents.

        Raises:
            InvalidMemoryError: An id is already there or given twice, or the lists do not match.
        """
        self._write(ids, texts, may_exist=False)

    def replace(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        """Give documents a new text; ids that are not there yet are added.

        Raises:
            InvalidMemoryError: An id is given twice, or the lists do not match; nothing is replaced.
        """
        self._write(ids, texts, may_exist=True)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove documents; ids that are not there are passed over."""
        if isinstance(ids, str):
            raise InvalidMemoryError(f"ids={ids!r} is one string: give a list of ids")
        with self._lock:
            self._apply([key for key in dict.fromkeys(ids) if key in self._rows], {})

    def compact(self) -> None:
        """Let removed and replaced documents leave N and n now, rather than when they are a quarter."""
        with self._lock:
            if len(self._snapshot.names) > len(self._rows):
                self._rebuild()

    def search(self, query: str, n: int) -> tuple[list[str], FloatArray]:
        """Return the n best documents that share a term with the query, best first, ties by id.

        Args:
            query: Any text.
            n: How many at most.

        Returns:
            Ids, and their BM25 scores, shape (len(ids),).

        Raises:
            ConfigError: n is below 1.
        """
        rows, scores, names = self.search_rows(query, n)
        return [names[row] for row in rows.tolist()], scores

    def search_rows(self, query: str, n: int) -> RankedRows:
        """``search``, with the index's row numbers for ids, which arrays can use.

        Raises:
            ConfigError: n is below 1.
        """
        if n < 1:
            raise ConfigError(f"n={n!r} must be 1 or more")
        terms, snapshot = self._terms(query), self._snapshot
        if not terms:
            return RankedRows(np.empty(0, np.int64), np.empty(0), snapshot.names)
        words = [(tantivy.Occur.Should, snapshot.word(term)) for term in terms]
        any_word = tantivy.Query.boolean_query(words)
        limit = min(n, snapshot.searcher.num_docs) + 8
        while True:
            hits = snapshot.searcher.search(any_word, limit, count=False).hits
            # Which of several equal documents falls off at a limit is arbitrary, so go past them.
            if len(hits) < limit or hits[-1][0] < hits[n - 1][0]:
                break
            limit *= 4
        if not hits:
            return RankedRows(np.empty(0, np.int64), np.empty(0), snapshot.names)
        scores = np.array(list(map(itemgetter(0), hits)), np.float64)
        addresses = list(map(itemgetter(1), hits))
        rows = np.array(snapshot.searcher.fast_field_values("row", addresses), np.int64)
        best = np.lexsort((snapshot.alphabetical[rows], -scores))[:n]
        return RankedRows(rows[best], scores[best], snapshot.names)

    def scored(self, query: str) -> ScoredRows:
        """Return the BM25 of every document: arrays of what each term adds, which are kept for common terms.

        A sum of three terms and more may differ from that of ``search`` in the last place.
        """
        snapshot = self._snapshot
        scores = np.zeros(len(snapshot.alphabetical), np.float32)
        for term in self._terms(query):
            rows, added = snapshot.postings(term)
            # no row stands twice in a term's list
            scores[rows] += added
        return ScoredRows(scores, snapshot.alphabetical, snapshot.names)

    def _terms(self, query: str) -> list[str]:
        return list(islice(dict.fromkeys(self._analyse(query)), MAX_QUERY_TERMS))

    def _write(self, ids: Sequence[str], texts: Sequence[str], *, may_exist: bool) -> None:
        _check_documents(ids, texts)
        bodies = {key: " ".join(self._analyse(text)) for key, text in zip(ids, texts, strict=True)}
        with self._lock:
            known = [key for key in bodies if key in self._rows]
            if known and not may_exist:
                raise InvalidMemoryError(f"id {known[0]!r} is already indexed: use replace")
            self._apply(known, bodies)

    def _apply(self, gone: Sequence[str], bodies: dict[str, str]) -> None:
        if not gone and not bodies:
            return
        rows = {key: row for row, key in enumerate(bodies, start=self._next_row)}
        _commit(self._index, [self._rows[key] for key in gone], {rows[key]: bodies[key] for key in bodies})
        self._next_row += len(bodies)
        for key in gone:
            del self._rows[key]
        self._rows.update(rows)
        # Rows are never reused, so a search that runs on the old searcher may share the growing dict.
        names = self._snapshot.names
        names.update((row, key) for key, row in rows.items())
        self._snapshot = _Snapshot(self._index.searcher(), names, self._schema)
        if len(names) - len(self._rows) > max(_REBUILD_LEAST, len(self._rows) // 4):
            self._rebuild()

    def _rebuild(self) -> None:
        """Copy the live documents to a fresh index, so that removed ones leave the statistics."""
        names = {row: key for key, row in self._rows.items()}
        searcher = self._snapshot.searcher
        hits = searcher.search(tantivy.Query.all_query(), max(1, len(names)), count=False).hits
        places = [address for _, address in hits]
        rows = searcher.fast_field_values("row", places)
        bodies = {row: searcher.doc(place)["body"][0] for row, place in zip(rows, places, strict=True)}
        index = _empty_index(self._schema)
        _commit(index, [], dict(sorted(bodies.items())))
        self._index = index
        self._snapshot = _Snapshot(index.searcher(), names, self._schema)


def _schema() -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", stored=True, tokenizer_name="spaces", index_option="freq")
    # Signed: Python integers become signed terms, and deleting one from an unsigned field matches nothing.
    builder.add_integer_field("row", indexed=True, fast=True)
    return builder.build()


def _empty_index(schema: Any) -> Any:
    index = tantivy.Index(schema)
    index.register_tokenizer("spaces", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build())
    index.config_reader("manual")
    return index


def _commit(index: Any, gone: Iterable[int], bodies: dict[int, str]) -> None:
    # A writer per commit costs under a millisecond and leaves no threads behind; waiting for its merges
    # bounds their number and keeps scores independent of timing.
    writer = index.writer(_HEAP_BYTES, 1)
    try:
        for row in gone:
            writer.delete_documents_by_term("row", row)
        for row, body in bodies.items():
            document = tantivy.Document()
            document.add_text("body", body)
            document.add_integer("row", row)
            writer.add_document(document)
        writer.commit()
    finally:
        # Also gives back the writer's lock; what was not committed is dropped.
        writer.wait_merging_threads()
    index.reload()


class Analyser:
    """Turns any text into index terms, none of which contains a space."""

    def __init__(self) -> None:
        self._words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.regex(_WORD)).build()
        self._runs = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.regex(f"[{_NO_SPACES}]+")).build()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> Iterator[str]:
        """Yield the terms of a text, as often as they stand in it."""
        folded = _fold(text)
        # tantivy borrows an analyser mutably, so two threads must not be inside one.
        with self._lock:
            words = self._words.analyze(folded)
            runs = [] if folded.isascii() else self._runs.analyze(folded)
        yield from (word[:_MAX_WORD] for word in words)
        for run in runs:
            yield from run
            yield from (left + right for left, right in pairwise(run))


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return _PIECE.sub(_fold_piece, text.encode("utf-8", "replace").decode("utf-8"))


def _fold_piece(match: re.Match[str]) -> str:
    # Folding may decompose (Greek, Turkish), so it is normalised once more.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", match.group()).casefold())


def _check_documents(ids: Sequence[str], texts: Sequence[str]) -> None:
    if isinstance(ids, str) or isinstance(texts, str) or len(ids) != len(texts):
        raise InvalidMemoryError(f"{len(ids)} ids and {len(texts)} texts: give two lists of one length")
    for key, text in zip(ids, texts, strict=True):
        if not (isinstance(key, str) and isinstance(text, str)):
            raise InvalidMemoryError(f"id {key!r} has a text of type {type(text).__name__}: give two str")
    if len(set(ids)) != len(ids):
        raise InvalidMemoryError(f"id {Counter(ids).most_common(1)[0][0]!r} is given twice")
