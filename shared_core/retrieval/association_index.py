"""Ranks the pages of a conversation by everything they are found by; arrays and words, no storage.

One ranking per family of keys, fused by reciprocal rank: the page (meaning, words), the turns around it
(the mean of their embeddings, their words), and what a dream wrote: sentences, scenes, bridges. With r_f(m)
the rank of a memory in family f, among those that f ranks, from 1:

    fused(m) = (1 + b [m's speaker is the only one that the query names]) * sum over f of 1 / (k + r_f(m))
    score = x + a A x,  x(m) = w(m) fused(m),  A(m, n) = near(m, n) / sum over n' linked with m of near(m, n')

near is the cosine of the embeddings less their mean, or 0 where that is negative.

Source: MemDream Eq. 1 fuses two rankings times w [S]; further families, k = 20, the speaker's bonus and the
step over bridges are ours [O], see docs/results.md.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.geometry import unit_rows
from shared_core.language import content_words, words
from shared_core.language.pages import neighbours_in_session, spoken_line
from shared_core.retrieval.word_family import WordFamily

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.keys import RetrievalKey
    from shared_core.config import AssociativeConfig
    from shared_core.types import Array, BoolArray, FloatArray

_UNKNOWN = -2.0
"""Below every cosine."""
DECIMALS = 6
"""Of a cosine, that tell two memories apart."""
WINDOW = "window"
"""The plain turns around a page, which stemmed scenes replace."""


class AssociationIndex:
    """Everything that the N memories of a graph are found by; never changes, see ``updated``.

    Args:
        graph: The memories.
        keys: What a dream wrote about them.
        config: Constants of the ranking.
    """

    def __init__(self, graph: MemoryGraph, keys: Sequence[RetrievalKey], config: AssociativeConfig) -> None:
        self.graph = graph
        self.keys = keys
        self.config = config
        self._words: dict[str, WordFamily] = {}
        self._means: dict[int, FloatArray] = {}
        self._stemmed: dict[str, str] = {}
        self._read_keys()
        self._file_rows({}, None)
        self._bridges = self._normalised_bridges()

    def updated(
        self, graph: MemoryGraph, keys: Sequence[RetrievalKey], *, reread: bool = False
    ) -> AssociationIndex:
        """Return the index of a later reading of the same bank; only what differs is built.

        Args:
            graph: Parts that did not change are the same objects.
            keys: The same object where they are the same keys.
            reread: A memory that is in both graphs may have another text, embedding or place.
        """
        new = copy.copy(self)
        new.graph, new.keys = graph, keys
        # readings share the objects that did not change
        moved = graph.ids is not self.graph.ids
        if keys is not self.keys:
            new._read_keys()
        if moved or keys is not self.keys:
            new._file_rows(self._words, None if reread else self)
        if moved or graph.explicit is not self.graph.explicit:
            new._bridges = new._normalised_bridges()
        return new

    def score(
        self, query: str, vector: FloatArray, allowed: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the fused score before weighting, and cos(q, v), each of shape (N,).

        Args:
            query: Its words count, and the speaker it names.
            vector: Its embedding, shape (d,).
            allowed: (N,) which memories are ranked; the others score 0. Default: all.
        """
        unit = unit_rows(vector[None].astype(np.float32))[0]
        cosine = (self.graph.unit @ unit).astype(float)
        total = self._by_order(cosine, allowed)
        for mean in self._means.values():
            total += self._by_order((mean @ unit).astype(float), allowed)
        if len(self._sentence_rows):
            best = np.full(len(cosine), _UNKNOWN)
            np.maximum.at(best, self._sentence_rows, (self._sentences @ unit).astype(float))
            total += self._by_order(best, allowed)
        stemmed = " ".join(content_words(query, stem=True))
        for name, family in self._words.items():
            asked = stemmed if name.startswith("scene") else query
            total += self._reciprocal(family.ranking(asked, self.graph.row_of), allowed)
        total *= 1.0 + self.config.speaker_bonus * self._speaks(query)
        return total, cosine

    def weighted(
        self, query: str, vector: FloatArray, min_weight: float, allowed: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the score that memories are ranked by, and cos(q, v), each of shape (N,).

        Args:
            query: As for ``score``.
            vector: As for ``score``.
            min_weight: Memories below it score 0 and pass nothing on.
            allowed: As for ``score``.
        """
        fused, cosine = self.score(query, vector, allowed)
        return self.weigh(fused, min_weight, allowed), cosine

    def weigh(self, fused: FloatArray, min_weight: float, allowed: BoolArray | None = None) -> FloatArray:
        """Return the score that memories are ranked by, from what ``score`` gives, shape (N,)."""
        weight = self.graph.weights
        alive = weight >= min_weight if allowed is None else (weight >= min_weight) & allowed
        found: FloatArray = np.where(alive, self.spread(np.where(alive, fused * weight, 0.0)), 0.0)
        return found

    def spread(self, weighted: FloatArray) -> FloatArray:
        """Return scores after one step over the bridges: s + a w A s, shape (N,).

        A memory gets of its neighbours what its own weight lets it have: nothing leads to a forgotten one.
        """
        rows, columns, shares = self._bridges
        found: FloatArray = weighted.copy()
        np.add.at(
            found, rows, self.config.bridge_share * self.graph.weights[rows] * shares * weighted[columns]
        )
        return found

    # ---- ranking

    def _by_order(self, similarity: FloatArray, allowed: BoolArray | None) -> FloatArray:
        # a matrix product gives equal rows other last bits by their place, and equals go by their rows
        order = np.argsort(-np.round(similarity, DECIMALS), kind="stable")
        return self._reciprocal(order[similarity[order] > _UNKNOWN], allowed)

    def _reciprocal(self, ranking: Array, allowed: BoolArray | None) -> FloatArray:
        ranked = ranking if allowed is None else ranking[allowed[ranking]]
        found = np.zeros(len(self.graph))
        found[ranked] = 1.0 / (self.config.rrf_k + np.arange(1.0, len(ranked) + 1))
        return found

    def _speaks(self, query: str) -> FloatArray:
        said = set(words(query))
        named = {name for called, name in self._speakers if called <= said}
        if len(named) != 1 or len(self._speakers) < 2:
            return np.zeros(len(self.graph))
        return np.array([speaker in named for speaker in self.graph.speakers], float)

    # ---- filing

    def _read_keys(self) -> None:
        """Sort the keys by kind; which memories are in the graph does not matter here."""
        known, self._stemmed = self._stemmed, {}
        self._scenes: dict[str, dict[str, str]] = defaultdict(dict)
        ids, vectors = [], []
        for key in self.keys:
            if key.kind != "sentence":
                stemmed = known.get(key.text) or " ".join(content_words(key.text, stem=True))
                self._scenes[key.kind][key.memory_id] = self._stemmed[key.text] = stemmed
            elif key.embedding is not None:
                ids.append(key.memory_id)
                vectors.append(key.embedding)
        self._sentence_ids = ids
        self._all_sentences = (
            unit_rows(np.asarray(vectors, np.float32)) if ids else np.zeros((0, 0), np.float32)
        )

    def _file_rows(self, held: Mapping[str, WordFamily], old: AssociationIndex | None) -> None:
        """File the memories under their words, the turns around them and their keys.

        Args:
            held: Families to go on from, whatever their texts.
            old: Index of the same texts and embeddings for other memories of the bank, if there is one.
        """
        graph = self.graph
        old = old if old is not None and len(old.graph) else None
        old_rows, fresh = self._compared(old)
        texts: dict[str, dict[str, str]] = {"page": dict(zip(graph.ids, graph.texts, strict=True))}
        scenes = {
            kind: {i: text for i, text in found.items() if i in graph.row_of}
            for kind, found in sorted(self._scenes.items())
        }
        if graph.in_session and not scenes.get("scene1"):
            # stemmed scenes replace the plain window, and have no say beside it
            texts[WINDOW] = self._windows(old, fresh)
        texts |= {kind: found for kind, found in scenes.items() if found}
        self._words = {
            name: held[name].updated(found) if name in held else WordFamily(found)
            for name, found in texts.items()
        }
        widths = [width for width, used in ((1, graph.in_session), (2, "scene2" in texts)) if used]
        self._means = {width: self._mean(width, old, old_rows, fresh) for width in widths}
        rows = np.array([graph.row_of.get(i, -1) for i in self._sentence_ids], np.int64)
        # a copy of all of them is made only where some are left out
        inside = rows >= 0
        self._sentence_rows = rows[inside]
        self._sentences = self._all_sentences if inside.all() else self._all_sentences[inside]
        names = {name.casefold(): name for name in graph.speakers if name}
        self._speakers = [(set(words(folded)), name) for folded, name in names.items()]

    def _compared(self, old: AssociationIndex | None) -> tuple[Array, Array]:
        """Return each memory's old row, -1 where it is new, and the rows whose neighbours may be others."""
        graph = self.graph
        if old is None:
            return np.full(len(graph), -1), np.arange(len(graph))
        row_of = old.graph.row_of
        old_rows = np.array([row_of.get(memory_id, -1) for memory_id in graph.ids], np.int64)
        stirred = set(_session_names(graph, np.flatnonzero(old_rows < 0)))
        gone = np.setdiff1d(np.arange(len(old.graph)), old_rows)
        stirred |= set(_session_names(old.graph, gone))
        numbers = [number for number, name in enumerate(graph.sessions) if name in stirred]
        return old_rows, np.flatnonzero((old_rows < 0) | np.isin(graph.session, numbers))

    def _windows(self, old: AssociationIndex | None, fresh: Array) -> dict[str, str]:
        graph = self.graph
        known = old._words[WINDOW].texts if old is not None and WINDOW in old._words else None
        rows = range(len(graph)) if known is None else fresh.tolist()
        texts = {} if known is None else {i: known.get(i, "") for i in graph.ids}
        for row in rows:
            near = neighbours_in_session(graph.session, graph.in_session, row, 1)
            lines = [spoken_line(graph.texts[other], graph.speakers[other]) for other in near.tolist()]
            texts[graph.ids[row]] = "\n".join(lines)
        return texts

    def _mean(self, width: int, old: AssociationIndex | None, old_rows: Array, fresh: Array) -> FloatArray:
        graph = self.graph
        known = old._means.get(width) if old is not None else None
        rows = np.arange(len(graph)) if known is None else fresh
        around = (neighbours_in_session(graph.session, graph.in_session, row, width) for row in rows.tolist())
        means = [
            graph.unit[near].mean(axis=0) if len(near) else graph.unit[row]
            for row, near in zip(rows.tolist(), around, strict=True)
        ]
        if known is None:
            return unit_rows(np.asarray(means, np.float32))
        found: FloatArray = known[old_rows]
        if means:
            found[rows] = unit_rows(np.asarray(means, np.float32))
        return found

    def _normalised_bridges(self) -> tuple[Array, Array, FloatArray]:
        pairs = [
            (row, other) for row, others in sorted(self.graph.explicit.items()) for other in sorted(others)
        ]
        if not pairs:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        rows, columns = np.array(pairs, np.int64).T
        centred = self.graph.unit - self.graph.unit.mean(axis=0)
        unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)
        near = np.maximum(0.0, np.einsum("ij,ij->i", unit[rows], unit[columns]))
        sums = np.bincount(rows, weights=near, minlength=len(self.graph))
        return rows, columns, near / np.maximum(sums[rows], 1e-9)


def _session_names(graph: MemoryGraph, rows: Array) -> list[str]:
    return [graph.sessions[number] for number in graph.session[rows].tolist() if number >= 0]
