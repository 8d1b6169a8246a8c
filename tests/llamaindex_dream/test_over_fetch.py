"""K nodes stay K after weighting, and they are the weighted top K."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms.mock import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llamaindex_dream import DreamPostprocessor
from shared_core import MemoryBank, SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from tests.llamaindex_dream.conftest import QUESTION, ids

ROOMS = 120
QUERY = "Which room is next to the archive?"


@pytest.fixture
def rooms(many: Any, embedder: SentenceTransformerEmbedder) -> Iterator[tuple[Any, MemoryBank]]:
    index = many(ROOMS)
    with MemoryBank.from_collection(index.vector_store.client, embedder=embedder) as bank:
        yield index, bank


def brute_force(bank: MemoryBank, query: str, k: int) -> list[str]:
    keys, matrix = bank.content.embeddings()
    score = bank.weights(keys) * np.maximum(0.0, matrix @ np.asarray(bank.embedder.embed_query(query)))  # type: ignore[union-attr]
    order = np.argsort(-score, kind="stable")
    return [keys[row] for row in order[:k] if score[row] > 0]


@pytest.mark.parametrize("weight", [0.0, 0.05, 0.6])
async def test_exactly_k_of_the_best(rooms: tuple[Any, MemoryBank], weight: float) -> None:
    index, bank = rooms
    bank.set_weights(dict.fromkeys(brute_force(bank, QUERY, 40), weight))
    step = DreamPostprocessor(bank)
    plain = step.postprocess_nodes(index.as_retriever(similarity_top_k=5).retrieve(QUERY), query_str=QUERY)
    retriever = step.over_fetch(index, top_k=5)
    expected = brute_force(bank, QUERY, 5)
    assert ids(retriever.retrieve(QUERY)) == expected
    assert ids(await retriever.aretrieve(QUERY)) == expected
    assert ids(plain) != expected, "five that were fetched are not the five best"


def test_what_is_fetched_on_the_way_is_not_counted(rooms: tuple[Any, MemoryBank]) -> None:
    index, bank = rooms
    bank.set_weights(dict.fromkeys(brute_force(bank, QUERY, 40), 0.0))
    found = DreamPostprocessor(bank).over_fetch(index, top_k=3).retrieve(QUERY)
    counted = {memory.id: memory.state.retrievals for memory in bank if memory.state.retrievals}
    assert counted == dict.fromkeys(ids(found), 1)


def test_when_there_are_no_more(rooms: tuple[Any, MemoryBank]) -> None:
    index, bank = rooms
    bank.set_weights({f"r{row}": 0.0 for row in range(ROOMS - 2)})
    step = DreamPostprocessor(bank)
    assert set(ids(step.over_fetch(index, top_k=5).retrieve(QUERY))) == {f"r{ROOMS - 2}", f"r{ROOMS - 1}"}
    demoted = DreamPostprocessor(bank, forgotten="demote").over_fetch(index, top_k=5).retrieve(QUERY)
    assert len(demoted) == 2, "weight 0 is never returned"
    bank.set_weights({f"r{row}": 0.001 for row in range(ROOMS - 2)})
    demoted = DreamPostprocessor(bank, forgotten="demote").over_fetch(index, top_k=5).retrieve(QUERY)
    assert len(demoted) == 5
    assert set(ids(demoted)[:2]) == {f"r{ROOMS - 2}", f"r{ROOMS - 1}"}


@pytest.mark.parametrize("options", [{"hybrid": True}, {"scoring": "given"}, {"hybrid": True, "top_n": 2}])
def test_k_stays_k_with_other_scores(rooms: tuple[Any, MemoryBank], options: dict[str, Any]) -> None:
    index, bank = rooms
    bank.set_weights(dict.fromkeys(brute_force(bank, QUERY, 40), 0.0))
    assert len(DreamPostprocessor(bank, **options).over_fetch(index, top_k=5).retrieve(QUERY)) == 5


async def test_in_an_engine_with_filters_and_without_the_bank_s_embedder(
    index: Any, weighted: MemoryBank
) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="topic", value="archive")])
    step = DreamPostprocessor(weighted)
    engine = RetrieverQueryEngine.from_args(step.over_fetch(index, top_k=2, filters=filters), llm=MockLLM())
    bundle = QueryBundle(QUESTION)
    found = engine.query(bundle).source_nodes
    assert ids(found) == ["n0"]
    assert bundle.embedding is None
    nodes = step.over_fetch(index, top_k=5).retrieve(QUESTION)
    cosine = DreamPostprocessor(weighted, embed_model=index._embed_model, scoring="cosine")
    expected = cosine.postprocess_nodes(nodes, query_str=QUESTION)
    assert nodes == expected, "by cosine: the index's own model embeds the query"
    assert await step.over_fetch(index, top_k=5).aretrieve(QUESTION) == expected


def test_what_cannot_be_asked_for_more(index: Any, weighted: MemoryBank) -> None:
    class Fixed(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> Any:
            return []

    step = DreamPostprocessor(weighted)
    with pytest.raises(ConfigError, match="Fixed has no similarity_top_k"):
        step.over_fetch(Fixed())
    with pytest.raises(ConfigError, match="index or a retriever, not str"):
        step.over_fetch("index")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="top_k=0"):
        step.over_fetch(index, top_k=0)
    with pytest.raises(ConfigError, match="filters: a retriever has its options"):
        step.over_fetch(index.as_retriever(), filters=None)
    retriever = index.as_retriever(similarity_top_k=3)
    assert len(step.over_fetch(retriever, top_k=4).retrieve(QUESTION)) == 4
    assert retriever.similarity_top_k == 3, "the caller's retriever keeps its own depth"
