"""Associative ranking against its formula, written out; filters, rerankers and vectors of one's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.bank.graph import read_graph
from shared_core.config import AssociativeConfig
from shared_core.errors import ConfigError, DimensionMismatchError, InvalidMemoryError
from shared_core.language import content_words, words
from shared_core.language.pages import spoken_line
from shared_core.retrieval.associative import AssociativeRetriever
from shared_core.retrieval.bm25 import Bm25Index
from tests.conftest import OpenBank
from tests.retrieval.test_associative_changes import QUERIES, Hashed, Life


class Literal:
    """The module's formula over one bank and query, memory by memory."""

    def __init__(self, bank: MemoryBank, config: AssociativeConfig, query: str, inside: set[str]) -> None:
        self.graph, self.config, self.query = read_graph(bank), config, query
        self.everyone = range(len(self.graph))
        self.rows = [row for row in self.everyone if self.graph.ids[row] in inside]
        self.groups: dict[Any, list[int]] = defaultdict(list)
        for row in self.everyone:
            self.groups[self.group(row)].append(row)
        self.scenes: dict[str, dict[int, str]] = defaultdict(dict)
        self.sentences: dict[int, list[Any]] = defaultdict(list)
        for key in bank.state.retrieval_keys():
            row_of_key = self.graph.row_of.get(key.memory_id)
            if row_of_key is not None and key.kind == "sentence":
                self.sentences[row_of_key].append(key.embedding)
            elif row_of_key is not None:
                self.scenes[key.kind][row_of_key] = stems(key.text)

    def group(self, row: int) -> Any:
        session = int(self.graph.session[row])
        return session if session >= 0 else f"alone {row}"

    def around(self, row: int, width: int) -> list[int]:
        group = self.groups[self.group(row)]
        at = group.index(row)
        return group[max(0, at - width) : at + width + 1]

    def dense(self, vectors_of: dict[int, list[Any]]) -> list[int]:
        q = unit(np.array(Hashed().embed_query(self.query), np.float32))
        near = {row: max(round(float(unit(v) @ q), 6) for v in vectors_of[row]) for row in vectors_of}
        return sorted((row for row in near if row in self.rows), key=lambda row: (-near[row], row))

    def worded(self, text_of: dict[int, str], asked: str) -> list[int]:
        index = Bm25Index()
        index.add([str(row) for row in text_of], list(text_of.values()))
        ids, scores = index.search(asked, max(1, len(text_of)))
        score = dict(zip(map(int, ids), scores.tolist(), strict=True))
        return sorted((row for row in score if row in self.rows), key=lambda row: (-score[row], row))

    def mean(self, width: int) -> list[int]:
        return self.dense(
            {row: [self.graph.unit[self.around(row, width)].mean(axis=0)] for row in self.everyone}
        )

    def windows(self) -> dict[int, str]:
        graph = self.graph
        lines = [spoken_line(graph.texts[row], graph.speakers[row]) for row in self.everyone]
        return {
            row: "\n".join(lines[other] for other in self.around(row, 1)) if graph.session[row] >= 0 else ""
            for row in self.everyone
        }

    def families(self) -> list[list[int]]:
        graph = self.graph
        talks = bool((graph.session >= 0).any())
        found = [self.dense({row: [graph.unit[row]] for row in self.everyone})]
        found += [self.mean(1)] * talks
        found += [self.mean(2)] * ("scene2" in self.scenes)
        found += [self.dense(self.sentences)] * bool(self.sentences)
        found += [self.worded(dict(enumerate(graph.texts)), self.query)]
        found += [self.worded(self.windows(), self.query)] * (talks and "scene1" not in self.scenes)
        return found + [self.worded(texts, stems(self.query)) for texts in self.scenes.values()]

    def weighted(self) -> dict[int, float]:
        graph, config = self.graph, self.config
        names = {name for name in graph.speakers if name}
        asked = {name for name in names if set(words(name)) <= set(words(self.query))}
        families = self.families()
        found = {}
        for row in self.rows:
            fused = sum(1 / (config.rrf_k + ranked.index(row) + 1) for ranked in families if row in ranked)
            if len(asked) == 1 and len(names) > 1 and graph.speakers[row] in asked:
                fused *= 1 + config.speaker_bonus
            found[row] = fused * graph.weights[row] * (graph.weights[row] >= config.min_weight)
        return found

    def near(self, row: int, other: int) -> float:
        centre = self.graph.unit.mean(axis=0)
        return max(0.0, float(unit(self.graph.unit[row] - centre) @ unit(self.graph.unit[other] - centre)))

    def scores(self) -> dict[str, float]:
        graph, weighted = self.graph, self.weighted()
        score = {}
        for row in self.rows:
            near = {other: self.near(row, other) for other in graph.explicit.get(row, set())}
            shares = {other: value / max(sum(near.values()), 1e-9) for other, value in near.items()}
            passed = sum(share * weighted.get(other, 0.0) for other, share in shares.items())
            if graph.weights[row] >= self.config.min_weight:
                score[graph.ids[row]] = weighted[row] + self.config.bridge_share * graph.weights[row] * passed
        return {memory_id: value for memory_id, value in score.items() if value > 0}


def stems(text: str) -> str:
    return " ".join(content_words(text, stem=True))


def unit(vector: Any) -> Any:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_formula(open_bank: OpenBank, seed: int) -> None:
    bank = open_bank(embedder=Hashed())
    life = Life(bank, 100 + seed)
    for _ in range(4):
        life.talk()
    for _ in range(18):
        life.step()
    rng = np.random.default_rng(seed)
    config = AssociativeConfig(
        k=200,
        rrf_k=float(rng.integers(1, 60)),
        speaker_bonus=float(rng.random()),
        bridge_share=float(rng.random()),
    )
    retriever = AssociativeRetriever(bank, config, track_access=False)
    sessions: tuple[Any, ...] = (None, {"dream_session": "s1"}, {"dream_session": {"$in": ["s0", "s2"]}})
    for query in QUERIES:
        for where in sessions:
            inside = set(bank.ids() if where is None else bank.content.matching(where, None))
            expected = Literal(bank, config, query, inside).scores()
            hits = retriever.search(query, where=where)
            assert {hit.id for hit in hits} == set(expected)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            for hit in hits:
                assert hit.score == pytest.approx(expected[hit.id], rel=1e-5)


@pytest.fixture
def bank(open_bank: OpenBank) -> MemoryBank:
    bank = open_bank(embedder=Hashed())
    life = Life(bank, 5)
    for _ in range(8):
        life.talk()
    for _ in range(3):
        life.repair()
    return bank


class Longest:
    """Likes long texts."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.seen = list(texts)
        return [min(1.0, len(text) / 100) for text in texts]


def test_filters_select_among_what_is_ranked(bank: MemoryBank) -> None:
    retriever = AssociativeRetriever(bank)
    everything = [hit.id for hit in retriever.search("clay kiln", k=100)]
    kilns = retriever.search("clay kiln", where_document={"$contains": "kiln"}, k=100)
    assert 0 < len(kilns) < len(everything)
    assert all("kiln" in hit.text for hit in kilns)
    both = retriever.search(
        "clay kiln", where={"dream_session": "s1"}, where_document={"$contains": "kiln"}, k=100
    )
    assert {hit.id for hit in both} <= {hit.id for hit in kilns}
    assert all(hit.metadata["dream_session"] == "s1" for hit in both)
    assert retriever.search("clay", where={"dream_session": "nowhere"}) == []
    for wrong in ("dream_session", ["a"]):
        with pytest.raises(ConfigError, match="not a Chroma filter"):
            retriever.search("clay", where=wrong)  # type: ignore[arg-type]
    assert "kiln" in retriever.context("clay kiln", where_document={"$contains": "kiln"})


def test_a_reranker_orders_the_first_by_its_score_times_weight(bank: MemoryBank) -> None:
    plain = AssociativeRetriever(bank).search("clay kiln", k=6)
    bank.set_weights({plain[0].id: 0.5})
    longest = Longest()
    retriever = AssociativeRetriever(bank, AssociativeConfig(rerank_top=5), reranker=longest)
    hits = retriever.search("clay kiln", k=5)
    assert len(longest.seen) == 5
    assert [hit.score for hit in hits] == [pytest.approx(len(h.text) / 100 * h.weight) for h in hits]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert [hit.text for hit in retriever.search("clay kiln", k=1, rerank_top=1)] == longest.seen
    vector = Hashed().embed_query("clay")
    assert retriever.search_by_vector(vector) == AssociativeRetriever(bank).search_by_vector(vector)
    with pytest.raises(ConfigError, match="rerank_top"):
        retriever.search("clay", rerank_top=0)


def test_a_vector_at_hand_saves_the_embedding(bank: MemoryBank, open_bank: OpenBank) -> None:
    retriever = AssociativeRetriever(bank, track_access=False)
    query = "What did Ada lose on the tram?"
    vector = Hashed().embed_query(query)
    assert retriever.search_by_vector(vector, query=query) == retriever.search(query)
    dense = retriever.search_by_vector(vector, k=100)
    assert [hit.id for hit in dense] != [hit.id for hit in retriever.search(query, k=100)]
    for wrong in ([], [float("nan")] * 16, "text"):
        with pytest.raises(InvalidMemoryError, match="query vector"):
            retriever.search_by_vector(wrong)  # type: ignore[arg-type]
    with pytest.raises(DimensionMismatchError, match="dimension 16"):
        retriever.search_by_vector([1.0, 0.0])
    assert AssociativeRetriever(open_bank(name="empty", embedder=Hashed())).search_by_vector([1.0]) == []


async def test_async_twins_take_the_same_options(bank: MemoryBank) -> None:
    retriever = AssociativeRetriever(bank, track_access=False)
    options: dict[str, Any] = {"where": {"dream_session": "s1"}, "k": 3}
    assert await retriever.asearch("clay", **options) == retriever.search("clay", **options)
    assert await retriever.asearch_batch(["clay", "dog"], **options) == retriever.search_batch(
        ["clay", "dog"], **options
    )
    assert await retriever.acontext("clay", 64, **options) == retriever.context("clay", 64, **options)


def test_what_is_gone_makes_room(bank: MemoryBank, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = AssociativeRetriever(bank)
    first, second, third = (hit.id for hit in retriever.search("clay kiln", k=3))
    read = bank.content.get
    # removed between the reading of the index and that of the texts
    monkeypatch.setattr(
        bank.content, "get", lambda ids: {i: record for i, record in read(ids).items() if i != first}
    )
    assert [hit.id for hit in retriever.search("clay kiln", k=2)] == [second, third]
