"""Associative retrieval: exact by its own formula, weighted, up to date, and better after a dream."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pytest

from shared_core import BankRetriever, MemoryBank
from shared_core.agents import associate
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.config import AssociativeConfig
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError, DimensionMismatchError
from shared_core.retrieval.associative import AssociativeRetriever
from tests.conftest import OpenBank

TURNS = [
    ("a", "Ada", "What did you lose on the tram?"),
    ("a", "Bo", "It was blue, and my sister had given it to me for rainy days."),
    ("a", "Ada", "Oh no."),
    ("b", "Bo", "I started pottery classes. My dog hates the smell of clay. The kiln is far away."),
    ("b", "Ada", "Wow, nice!"),
    ("c", "Ada", "We planted tomatoes behind the house."),
]


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(
        Page(
            text=text,
            session=session,
            speaker=who,
            id=f"p{row}",
            time=datetime(2023, 5, 8, tzinfo=timezone.utc),
        )
        for row, (session, who, text) in enumerate(TURNS)
    )
    return bank


def ids(retriever: AssociativeRetriever, query: str, **options: object) -> list[str]:
    return [hit.id for hit in retriever.search(query, **options)]


def test_the_answer_is_found_by_the_question_beside_it(bank: MemoryBank) -> None:
    assert "p1" in ids(AssociativeRetriever(bank), "what did he lose on the tram", k=4)


def test_scores_are_reciprocal_ranks_times_weight(bank: MemoryBank) -> None:
    retriever = AssociativeRetriever(bank, AssociativeConfig(speaker_bonus=0.0, k=6))
    query = "tomatoes behind the house"
    before = {hit.id: hit for hit in retriever.search(query)}
    bank.set_weights({"p5": 0.25, "p3": 0.0})
    after = {hit.id: hit for hit in retriever.search(query)}
    assert after["p5"].score == pytest.approx(0.25 * before["p5"].score)
    assert "p3" in before
    assert "p3" not in after
    index = retriever.refresh()
    vector = np.asarray(bank.embedder.embed_query(query), np.float32)  # type: ignore[union-attr]
    cosine = index.graph.unit @ (vector / np.linalg.norm(vector))
    assert after["p5"].similarity == pytest.approx(float(cosine[5]), abs=1e-5)
    # first in all four rankings: the page's meaning and words, the window's meaning and words
    assert before["p5"].score == pytest.approx(4 / 21)


def test_changes_of_the_bank_are_seen_at_once(bank: MemoryBank) -> None:
    retriever = AssociativeRetriever(bank)
    assert "new" not in ids(retriever, "a boat trip")
    ConversationMemory(bank).add_pages(
        [Page(text="We took a boat trip.", session="d", speaker="Bo", id="new")]
    )
    assert ids(retriever, "a boat trip")[0] == "new"
    bank.delete(["new"])
    assert "new" not in ids(retriever, "a boat trip")
    report = associate(bank)
    assert len(retriever.refresh().keys) == report.keys
    bank.undo(report.run_id or "")
    assert len(retriever.refresh().keys) == 0


def test_a_page_of_the_speaker_who_is_asked_about_counts_more(bank: MemoryBank) -> None:
    plain = AssociativeRetriever(bank, AssociativeConfig(speaker_bonus=0.0, k=6))
    aware = AssociativeRetriever(bank, AssociativeConfig(speaker_bonus=1.0, k=6))
    query = "What does Bo like?"
    scores = {hit.id: hit.score for hit in plain.search(query)}
    for hit in aware.search(query):
        factor = 2.0 if TURNS[int(hit.id[1])][1] == "Bo" else 1.0
        assert hit.score == pytest.approx(factor * scores[hit.id])
    both = "What do Ada and Bo like?"
    assert [h.score for h in aware.search(both)] == [h.score for h in plain.search(both)]


def test_bridges_pass_on_a_share(bank: MemoryBank) -> None:
    associate(bank, decay=0.0)
    alone = AssociativeRetriever(bank, AssociativeConfig(bridge_share=0.0, k=6))
    linked = AssociativeRetriever(bank, AssociativeConfig(bridge_share=0.5, k=6))
    query = "pottery"
    assert {h.id for h in alone.search(query)} <= {h.id for h in linked.search(query)}
    assert sum(h.score for h in linked.search(query)) > sum(h.score for h in alone.search(query))


async def test_async_batch_and_bad_input(bank: MemoryBank, open_bank: OpenBank) -> None:
    retriever = AssociativeRetriever(bank)
    assert [h.id for h in await retriever.asearch("clay")] == ids(retriever, "clay")
    assert [[h.id for h in hits] for hits in retriever.search_batch(["clay", "  "])] == [
        ids(retriever, "clay"),
        [],
    ]
    for wrong in ({"k": 0}, {"nope": 1}, {"min_weight": 2}):
        with pytest.raises(ConfigError):
            retriever.search("clay", **wrong)
    with pytest.raises(ConfigError, match="is text"):
        retriever.search(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no embedder"):
        AssociativeRetriever(open_bank(name="another"))

    class Short:
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[1.0] for _ in texts]

        def embed_query(self, text: str) -> list[float]:
            return [1.0]

    with pytest.raises(DimensionMismatchError, match="384"):
        AssociativeRetriever(bank, embedder=Short()).search("clay")


def test_an_empty_bank_and_one_without_sessions(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder)
    retriever = AssociativeRetriever(bank)
    assert retriever.search("anything") == []
    bank.add(["The archive closes at noon."], ids=["one"])
    assert ids(retriever, "archive") == ["one"]


def test_the_banks_own_retriever_searches_by_associations_where_it_is_told_to(
    bank: MemoryBank, embedder: SentenceTransformerEmbedder
) -> None:
    associate(bank)
    plain, own = BankRetriever(bank, track_access=False), AssociativeRetriever(bank, track_access=False)
    query = "what did he lose on the tram"
    found = plain.search(query, search_type="associative", k=3, where={"dream_session": {"$ne": "b"}})
    assert found == own.search(query, k=3, where={"dream_session": {"$ne": "b"}})
    vector = np.asarray(embedder.embed_query(query), np.float32)
    assert plain.search_by_vector(vector, search_type="associative", k=3) == own.search_by_vector(vector, k=3)
    with pytest.raises(ConfigError, match="score_threshold"):
        plain.search(query, search_type="associative", score_threshold=0.5)
