"""Searching among supposed repairs: exactly what ranking every memory anew would give."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.agents import probe_index, weakness
from shared_core.agents.keyword_scores import KeywordScores
from shared_core.agents.probe_index import MIN_WEIGHT, RRF_K, ProbeIndex
from shared_core.agents.protocol import Probe, Retrieval
from shared_core.agents.verification import HARM, LATE, Verifier
from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.derived import derived_id
from shared_core.bank.graph import MemoryGraph, read_graph
from shared_core.bank.repairing import DerivedMemory, Repair
from shared_core.retrieval.bm25 import Bm25Index
from tests.benchmarks.cycle import HashedWords, dialogues

PAGES = 400
QUESTIONS = ("Who talked about kayak and Porto?", "What did Ada say about the canoe?", "euros", "zebra", "")


def drawn_texts(rng: np.random.Generator, count: int) -> list[str]:
    """Return texts of 1 to 300 words of Zipf's law, some of them twice."""
    lengths = rng.choice([1, 3, 10, 39, 40, 41, 42, 43, 77, 300], count)
    texts = [" ".join(f"w{word}" for word in np.minimum(rng.zipf(1.5, n), 80)) for n in lengths]
    return texts[: count // 2] + texts[: count - count // 2]


def places(ids: list[str]) -> np.ndarray:
    return np.argsort(np.argsort(np.array(ids)))


def test_scores_are_those_of_the_keyword_index_whatever_came_and_went(rng: np.random.Generator) -> None:
    texts, added = drawn_texts(rng, 300), drawn_texts(rng, 6)
    ids = [f"m{row:03}" for row in range(306)]
    scores = KeywordScores(texts)
    scores.add(added[:4])
    scores.drop(2)
    scores.add(added[2:4])
    scores.add(added[4:])
    index = Bm25Index()
    index.add(ids, texts + added)
    for query in ("w1", "w2 w7 w9", "W3, w3! w80 unknown", "w1 w2 w3 w4 w5 w6 w7 w8"):
        found, given = index.search(query, 306)
        own = scores.scores(query)
        rows = [ids.index(one) for one in found]
        assert np.count_nonzero(own) == len(found)
        np.testing.assert_allclose(own[rows], given, rtol=1e-6)
        order = np.lexsort((places(ids), -own))[: len(found)]
        np.testing.assert_allclose(own[order], given, rtol=1e-6)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> MemoryGraph:
    folder = tmp_path_factory.mktemp("dialogues")
    bank = MemoryBank.open(folder, "dialogues", create=True, embedder=HashedWords())
    ConversationMemory(bank).add_pages(dialogues(PAGES))
    return read_graph(bank)


def ranked_whole(index: ProbeIndex, words: Bm25Index, unit: np.ndarray, query: str, k: int) -> list[str]:
    """Rank every memory by Eq. 1, with nothing left out."""
    similarity = unit @ index._queries[query]
    fused = np.zeros(len(index.ids))
    fused[np.argsort(-similarity, kind="stable")] = 1.0 / (RRF_K + np.arange(1.0, len(fused) + 1))
    rows = [index._row_of[one] for one in words.search(query, len(index.ids))[0]]
    fused[rows] += 1.0 / (RRF_K + np.arange(1.0, len(rows) + 1))
    score = np.where(index.weights >= MIN_WEIGHT, fused * index.weights, 0.0)
    best = np.lexsort((-similarity, -fused, -score))[:k]
    return [index.ids[row] for row in best if score[row] > 0]


@pytest.mark.parametrize("look", [1, 4, 32])
@pytest.mark.parametrize("least", [0.0, 0.2, 1.0])
def test_a_search_that_looks_at_few_memories_finds_what_ranking_all_of_them_finds(
    graph: MemoryGraph, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, look: int, least: float
) -> None:
    monkeypatch.setattr(probe_index, "FIRST_LOOK", look)
    embedder = HashedWords()
    index = ProbeIndex(graph, embedder)
    index.weights = rng.uniform(least, 1.0, len(graph))
    words, unit = Bm25Index(), graph.unit
    words.add(graph.ids, graph.texts)
    for step in range(3):
        for query in (*QUESTIONS, graph.texts[7 * step], graph.texts[100 + step]):
            for k in (1, 5, 9):
                found = [index.ids[row] for row in index.retrieve(query, k)]
                assert found == ranked_whole(index, words, unit, query, k)
        quoted = rng.choice(len(graph), 4, replace=False).tolist()
        # no two texts alike: equal ones may differ in the last bit of a matrix product
        new = [
            DerivedMemory(
                text=f"{graph.texts[one]}\n{graph.texts[other]}", sources=(graph.ids[one],), id=derived_id()
            )
            for one, other in pairwise(quoted)
        ]
        vectors = embedder.embed_documents([one.text for one in new])
        weights = {graph.ids[row]: 0.3 for row in quoted}
        index.suppose(
            Repair(operation="extract", reason="test", memories=tuple(new), weights=weights), vectors
        )
        words.add([one.id for one in new], [one.text for one in new])
        unit = np.concatenate([unit, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)])


def test_what_is_taken_back_leaves_no_trace(graph: MemoryGraph) -> None:
    embedder = HashedWords()
    index = ProbeIndex(graph, embedder)
    before = [index.retrieve(query, 9) for query in QUESTIONS]
    weights = index.weights.copy()
    memory = DerivedMemory(text="Ada talked about the kayak of Porto.", sources=(graph.ids[0],))
    repair = Repair(operation="extract", reason="test", memories=(memory,), weights={graph.ids[1]: 0.2})
    index.suppose(repair, embedder.embed_documents([memory.text]))
    assert len(graph) in index.retrieve(QUESTIONS[0], 9)
    index.forget(repair, weights)
    assert [index.retrieve(query, 9) for query in QUESTIONS] == before


def test_rankings_beyond_the_bound_are_computed_anew_and_are_the_same(
    graph: MemoryGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes = [probe_about(graph, row) for row in range(40)]
    held = ProbeIndex(graph, HashedWords())
    monkeypatch.setattr(probe_index, "HELD_BYTES", 8 * len(graph) * 10)
    bounded = ProbeIndex(graph, HashedWords())
    for _ in range(2):
        assert [bounded.ask(one, 5) for one in probes] == [held.ask(one, 5) for one in probes]
    assert len(bounded._near) == 10


def probe_about(graph: MemoryGraph, row: int) -> Probe:
    return Probe(
        query=f"What about {graph.texts[row][-30:]}",
        expected_answer=graph.texts[row],
        targets=(graph.ids[row],),
        query_type="fact",
        weakness="isolated",
    )


class Counting(ProbeIndex):
    """Counts the questions."""

    asked = 0

    def ask(self, probe: Probe, k: int) -> Retrieval:
        self.asked += 1
        return super().ask(probe, k)


def test_a_repair_of_weights_asks_only_the_probes_that_retrieve_them_and_misses_no_change(
    graph: MemoryGraph,
) -> None:
    index = Counting(graph, HashedWords())
    verifier = Verifier(index, 5)
    probes = [probe_about(graph, row) for row in range(0, PAGES, 4)]
    outcomes = verifier.ask(probes)
    at = next(
        number
        for number, found in enumerate(outcomes)
        if 0 < found.f1 < 1 and found.ids[0] != probes[number].targets[0]
    )
    above = outcomes[at].ids[0]
    index.asked = 0
    repair = Repair(operation="prune", reason="test", weights={above: 0.2})
    trial = verifier.attempt(repair, np.zeros((0, graph.unit.shape[1]), np.float32), probes[at])
    retrieving = sum(above in found.ids for found in outcomes)
    assert index.asked <= retrieving < len(probes) // 2
    if trial.refused is not None:
        index.suppose(repair, np.zeros((0, graph.unit.shape[1]), np.float32))
    fresh = ProbeIndex(replace(graph, weights=index.weights), HashedWords())
    for one, before in zip(probes, outcomes, strict=True):
        after = fresh.ask(one, 5)
        assert after == before or above in before.ids
        if trial.refused is None:
            assert after == trial.outcomes.get(one, before)


def test_what_is_not_verified_in_time_is_not_kept(graph: MemoryGraph) -> None:
    asked: list[bool] = []
    verifier = Verifier(ProbeIndex(graph, HashedWords()), 5, late=lambda: bool(asked))
    probes = [probe_about(graph, row) for row in range(0, PAGES, 4)]
    failed = next(at for at, found in enumerate(verifier.ask(probes)) if found.f1 < 1.0)
    memory = DerivedMemory(text=probes[failed].query, sources=probes[failed].targets)
    repair = Repair(operation="extract", reason="test", memories=(memory,))
    vectors = HashedWords().embed_documents([memory.text])
    in_time = verifier.attempt(repair, vectors, probes[failed])
    assert in_time.after > in_time.before
    assert in_time.refused == HARM
    asked.append(True)
    late = verifier.attempt(repair, vectors, probes[failed])
    assert late.refused == LATE
    assert len(late.outcomes) == 1
    assert len(verifier.index.ids) == PAGES


def test_the_nearest_of_a_long_session_are_those_of_short_ones(
    graph: MemoryGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_by_row = weakness.weakness_terms(graph)
    monkeypatch.setattr(weakness, "LONG_SESSION", 2)
    np.testing.assert_allclose(weakness.weakness_terms(graph), row_by_row, atol=1e-6)
