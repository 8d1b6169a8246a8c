"""Ranks the pages of a conversation by everything they are found by; arrays and words, no storage.

One ranking per family of keys, fused by reciprocal rank: the page (meaning, words), the turns around it
(the mean of their embeddings, their words), and what a dream wrote: sentences, scenes, bridges.

Source: MemDream Eq. 1 fuses two rankings times w [S]; further families, k = 20, the speaker's bonus and the
step over bridges are ours [O], see docs/results.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.geometry import unit_rows
from shared_core.language import content_words, words
from shared_core.language.pages import neighbours_in_session, spoken_line
from shared_core.retrieval.bm25 import Bm25Index

if TYPE_CHECKING:
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.keys import RetrievalKey
    from shared_core.config import AssociativeConfig
    from shared_core.types import Array, FloatArray

_UNKNOWN = -2.0
"""Below every cosine."""


@dataclass(eq=False)
class AssociationIndex:
    """Everything that the N memories of a graph are found by.

    Args:
        graph: The memories.
        keys: What a dream wrote about them.
        config: Constants of the ranking.
    """

    graph: MemoryGraph
    keys: Sequence[RetrievalKey]
    config: AssociativeConfig
    _words: dict[str, Bm25Index] = field(init=False, default_factory=dict)
    _means: list[FloatArray] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._words["page"] = _index(self.graph.texts)
        around = self._around(1)
        if self.graph.in_session:
            self._means.append(self._mean(around))
            lines = [
                spoken_line(text, who)
                for text, who in zip(self.graph.texts, self.graph.speakers, strict=True)
            ]
            texts = ["\n".join(lines[near] for near in rows.tolist()) for rows in around]
            self._words["window"] = _index(texts)
        self._file_keys()
        self._bridges = self._normalised_bridges()
        names = {name.casefold(): name for name in self.graph.speakers if name}
        self._speakers = [(set(words(folded)), name) for folded, name in names.items()]

    def score(self, query: str, vector: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the fused score before weighting, and cos(q, v), each of shape (N,).

        Args:
            query: Its words count, and the speaker it names.
            vector: Its embedding, shape (d,).
        """
        unit = unit_rows(vector[None].astype(np.float32))[0]
        cosine = (self.graph.unit @ unit).astype(float)
        total = self._by_order(cosine)
        for mean in self._means:
            total += self._by_order((mean @ unit).astype(float))
        if len(self._sentence_rows):
            best = np.full(len(cosine), _UNKNOWN)
            np.maximum.at(best, self._sentence_rows, (self._sentences @ unit).astype(float))
            total += self._by_order(best)
        stemmed = " ".join(content_words(query, stem=True))
        for name, index in self._words.items():
            total += self._by_words(index, stemmed if name.startswith("scene") else query)
        total *= 1.0 + self.config.speaker_bonus * self._speaks(query)
        return total, cosine

    def spread(self, weighted: FloatArray) -> FloatArray:
        """Return scores after one step over the bridges: s + a A s, shape (N,)."""
        rows, columns, shares = self._bridges
        found: FloatArray = weighted.copy()
        np.add.at(found, rows, self.config.bridge_share * shares * weighted[columns])
        return found

    # ---- inner

    def _by_order(self, similarity: FloatArray) -> FloatArray:
        order = np.argsort(-similarity, kind="stable")
        order = order[similarity[order] > _UNKNOWN]
        found = np.zeros(len(similarity))
        found[order] = 1.0 / (self.config.rrf_k + np.arange(1.0, len(order) + 1))
        return found

    def _by_words(self, index: Bm25Index, query: str) -> FloatArray:
        ids, _ = index.search(query, max(1, len(self.graph)))
        found = np.zeros(len(self.graph))
        if ids:
            found[[int(row) for row in ids]] = 1.0 / (self.config.rrf_k + np.arange(1.0, len(ids) + 1))
        return found

    def _speaks(self, query: str) -> FloatArray:
        said = set(words(query))
        named = {name for called, name in self._speakers if called <= said}
        if len(named) != 1 or len(self._speakers) < 2:
            return np.zeros(len(self.graph))
        return np.array([speaker in named for speaker in self.graph.speakers], float)

    def _around(self, width: int) -> list[Array]:
        session, members = self.graph.session, self.graph.in_session
        return [neighbours_in_session(session, members, row, width) for row in range(len(self.graph))]

    def _mean(self, around: Sequence[Array]) -> FloatArray:
        means = [
            self.graph.unit[rows].mean(axis=0) if len(rows) else self.graph.unit[row]
            for row, rows in enumerate(around)
        ]
        return unit_rows(np.asarray(means, np.float32))

    def _file_keys(self) -> None:
        scenes: dict[str, dict[int, str]] = defaultdict(dict)
        rows, vectors = [], []
        for key in self.keys:
            row = self.graph.row_of.get(key.memory_id)
            if row is None:
                continue
            if key.kind == "sentence" and key.embedding is not None:
                rows.append(row)
                vectors.append(key.embedding)
            elif key.kind != "sentence":
                scenes[key.kind][row] = key.text
        self._sentence_rows = np.asarray(rows, np.int64)
        self._sentences = unit_rows(np.asarray(vectors, np.float32)) if rows else np.zeros((0, 0), np.float32)
        for kind, texts in sorted(scenes.items()):
            index = Bm25Index()
            stemmed = [" ".join(content_words(text, stem=True)) for text in texts.values()]
            index.add([str(row) for row in texts], stemmed)
            self._words[kind] = index
        if "scene1" in scenes:
            # stemmed scenes replace the plain window, and have no say beside it
            self._words.pop("window", None)
        if "scene2" in scenes:
            self._means.append(self._mean(self._around(2)))

    def _normalised_bridges(self) -> tuple[Array, Array, FloatArray]:
        pairs = [(row, other) for row, others in self.graph.explicit.items() for other in sorted(others)]
        if not pairs:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        rows, columns = np.array(pairs, np.int64).T
        centred = self.graph.unit - self.graph.unit.mean(axis=0)
        unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)
        near = np.maximum(0.0, np.einsum("ij,ij->i", unit[rows], unit[columns]))
        sums = np.bincount(rows, weights=near, minlength=len(self.graph))
        return rows, columns, near / np.maximum(sums[rows], 1e-9)


def _index(texts: Sequence[str]) -> Bm25Index:
    index = Bm25Index()
    index.add([str(row) for row in range(len(texts))], list(texts))
    return index
