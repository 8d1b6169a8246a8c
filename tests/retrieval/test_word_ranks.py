"""Ranks and scores of words by arrays against rankings written out."""

from __future__ import annotations

import numpy as np
import pytest

from shared_core.retrieval import bm25 as module
from shared_core.retrieval.bm25 import Bm25Index
from shared_core.retrieval.word_ranks import WordRanks

WORDS = ["oak", "elm", "ash", "fir", "yew", "box"]


@pytest.mark.parametrize("rows", [0, 1, 50, 500])
def test_places_with_many_ties(rng: np.random.Generator, rows: int) -> None:
    scores = (rng.integers(0, 9, rows) / 7).astype(np.float32)
    order = rng.permutation(rows)
    ranks = WordRanks(scores, order)
    right = [row for row in np.lexsort((order, -scores)).tolist() if scores[row] > 0]
    expected = np.zeros(rows, np.int64)
    expected[right] = np.arange(1, len(right) + 1)
    np.testing.assert_array_equal(ranks.rank(np.arange(rows)), expected)
    for n in (1, 7, 1000):
        assert ranks.best(n).tolist() == sorted(right[:n])


def filled(rng: np.random.Generator, documents: int = 300) -> Bm25Index:
    index = Bm25Index()
    ids = [f"d{i}" for i in rng.permutation(documents)]
    index.add(ids, [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in ids])
    return index


def by_id(index: Bm25Index, query: str) -> dict[str, float]:
    found = index.scored(query)
    return {found.names[row]: float(found.scores[row]) for row in np.flatnonzero(found.scores)}


@pytest.mark.parametrize("common", [1, 64, 10_000])
def test_scores_are_those_of_a_search_through_changes(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, common: int
) -> None:
    monkeypatch.setattr(module, "_COMMON", common)
    index = filled(rng)
    for turn in range(3):
        for query in ("oak", "elm oak oak", "fir nothing yew", "oak elm ash fir", "nothing", ""):
            for _ in range(2):
                ids, scores = index.search(query, 1000)
                found = by_id(index, query)
                assert found.keys() == set(ids)
                np.testing.assert_allclose([found[i] for i in ids], scores, rtol=1e-6)
        index.remove([f"d{i}" for i in range(90 * turn, 90 * turn + 80)])
        index.replace(["d299", f"new{turn}"], ["oak", "elm elm"])


def test_no_more_lists_are_kept_than_there_is_room_for(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COMMON", 1)
    index = filled(rng)
    index.scored(" ".join(WORDS))
    snapshot = index._snapshot
    assert list(snapshot._postings) == WORDS
    monkeypatch.setattr(module, "_POSTINGS_HELD", snapshot._held // 2)
    index.scored("oak")
    index.add(["x"], ["oak"])
    for word in [*WORDS, *WORDS]:
        index.scored(word)
        assert index._snapshot._held <= module._POSTINGS_HELD
        assert index._snapshot._held == sum(len(rows) for rows, _ in index._snapshot._postings.values())
    assert index._snapshot._postings
