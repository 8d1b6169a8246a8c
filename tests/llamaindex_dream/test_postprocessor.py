"""The postprocessor in a real query engine: LlamaIndex, its Chroma store, MiniLM; answers do not matter."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.llms.mock import MockLLM
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llamaindex_dream import CoreEmbedding, DreamPostprocessor
from shared_core import BankRetriever, MemoryBank, RetrievalConfig, SentenceTransformerEmbedder
from shared_core.errors import ConfigError, DimensionMismatchError, InvalidMemoryError
from tests.llamaindex_dream.conftest import QUESTION, TEXTS, ids


def scored(*scores: Any) -> list[NodeWithScore]:
    return [
        NodeWithScore(node=TextNode(text=TEXTS[row], id_=f"n{row}"), score=score)
        for row, score in enumerate(scores)
    ]


def cosines(embedder: SentenceTransformerEmbedder, question: str = QUESTION) -> dict[str, float]:
    similarity = np.asarray(embedder.embed_documents(TEXTS)) @ np.asarray(embedder.embed_query(question))
    return {f"n{row}": float(value) for row, value in enumerate(similarity)}


def test_a_forgotten_memory_leaves_the_query_engine(index: VectorStoreIndex, weighted: MemoryBank) -> None:
    engine = index.as_query_engine(
        llm=MockLLM(), similarity_top_k=5, node_postprocessors=[DreamPostprocessor(weighted, top_n=2)]
    )
    assert ids(engine.query(QUESTION).source_nodes)[0] == "n0"
    run = weighted.set_weights({"n0": 0.0})
    after = engine.query(QUESTION).source_nodes
    assert "n0" not in ids(after)
    assert len(after) == 2
    weighted.undo(run.run_id)
    assert ids(engine.query(QUESTION).source_nodes)[0] == "n0"


@pytest.mark.parametrize("source", ["bank", "core", "llamaindex"])
async def test_sync_and_async_engines_give_the_same_weighted_cosines(
    index: VectorStoreIndex,
    weighted: MemoryBank,
    embedding_bank: MemoryBank,
    embedder: SentenceTransformerEmbedder,
    source: str,
) -> None:
    weighted.set_weights({"n0": 0.5})
    bank = embedding_bank if source == "bank" else weighted
    model = {"bank": None, "core": embedder, "llamaindex": CoreEmbedding(embedder)}[source]
    step = DreamPostprocessor(bank, embed_model=model, scoring="cosine")
    engine = index.as_query_engine(llm=MockLLM(), similarity_top_k=5, node_postprocessors=[step])
    found = [engine.query(QUESTION).source_nodes, (await engine.aquery(QUESTION)).source_nodes]
    expected = {
        key: max(0.0, value) * (0.5 if key == "n0" else 1.0) for key, value in cosines(embedder).items()
    }
    for nodes in found:
        assert {node.node.node_id: node.score for node in nodes} == pytest.approx(expected, abs=1e-5)
        assert ids(nodes)[:2] == sorted(expected, key=lambda key: -expected[key])[:2]
        assert all(type(node.score) is float for node in nodes)


def test_by_node_id_though_no_weight_shows_in_the_metadata(
    index: VectorStoreIndex, embedding_bank: MemoryBank
) -> None:
    embedding_bank.content.collection.update(ids=["n0"], metadatas=[{"dream_weight": 0.1}])
    (first, *_) = index.as_retriever(similarity_top_k=5).retrieve(QUESTION)
    assert "dream_weight" not in first.node.metadata, "the trap: nodes are rebuilt from their own JSON"
    embedding_bank.set_weights({"n0": 0.25})
    step = DreamPostprocessor(embedding_bank)
    before = index.as_retriever(similarity_top_k=5).retrieve(QUESTION)
    after = {found.node.node_id: found.score for found in step.postprocess_nodes(before, query_str=QUESTION)}
    assert after["n0"] == pytest.approx(0.25 * cosines(embedding_bank.embedder)["n0"], abs=1e-5)  # type: ignore[arg-type]


def test_query_string_bundle_or_hyde_strings(
    embedding_bank: MemoryBank, embedder: SentenceTransformerEmbedder
) -> None:
    step, nodes = DreamPostprocessor(embedding_bank), scored(*[0.5] * 5)
    by_text = step.postprocess_nodes(nodes, query_str=QUESTION)
    bundle = QueryBundle(QUESTION)
    assert step.postprocess_nodes(nodes, query_bundle=bundle) == by_text
    assert bundle.embedding is None, "the caller's query must not change"
    other = cosines(embedder, "soup")
    made_up = QueryBundle(QUESTION, custom_embedding_strs=["soup"])
    assert step.postprocess_nodes(nodes, query_bundle=made_up)[0].score == pytest.approx(
        other["n3"], abs=1e-5
    )
    given = QueryBundle("nothing of the kind", embedding=list(map(float, embedder.embed_query("soup"))))
    assert step.postprocess_nodes(nodes, query_bundle=given)[0].score == pytest.approx(other["n3"], abs=1e-5)
    with pytest.raises(ValueError, match="both"):
        step.postprocess_nodes([], query_bundle=bundle, query_str="a")
    with pytest.raises(InvalidMemoryError, match="finite"):
        step.postprocess_nodes(nodes, query_bundle=QueryBundle("x", embedding=[float("nan")] * 384))
    with pytest.raises(DimensionMismatchError, match=r"\(3,\).*\(384,\)"):
        step.postprocess_nodes(nodes, query_bundle=QueryBundle("x", embedding=[1.0, 0.0, 0.0]))


def test_a_node_that_the_collection_does_not_hold_changes_nothing_for_the_others(
    embedding_bank: MemoryBank, weighted: MemoryBank, embedder: SentenceTransformerEmbedder
) -> None:
    foreign = NodeWithScore(node=TextNode(text="The archive is open on Sundays.", id_="elsewhere"), score=9.0)
    nodes = [*scored(*[0.5] * 5), foreign]
    alone = DreamPostprocessor(embedding_bank).postprocess_nodes(nodes[:5], query_str=QUESTION)
    together = DreamPostprocessor(embedding_bank).postprocess_nodes(nodes, query_str=QUESTION)
    assert [found for found in together if found.node.node_id != "elsewhere"] == alone
    similarity = float(
        np.asarray(embedder.embed_query(QUESTION)) @ np.asarray(embedder.embed_documents([foreign.text]))[0]
    )
    assert {found.node.node_id: found.score for found in together}["elsewhere"] == pytest.approx(
        similarity, abs=1e-5
    ), "embedded, since the collection has no embedding of it"
    bundle = QueryBundle(QUESTION, embedding=list(map(float, embedder.embed_query(QUESTION))))
    unknown = DreamPostprocessor(weighted).postprocess_nodes(nodes, query_bundle=bundle)
    assert (ids(unknown)[-1], unknown[-1].score) == ("elsewhere", 0.0), (
        "without a model nothing is known of it"
    )
    foreign.node.embedding = np.asarray(bundle.embedding)  # type: ignore[assignment]
    own = DreamPostprocessor(weighted).postprocess_nodes(nodes, query_bundle=bundle)
    assert own[0].score == pytest.approx(1.0), "its own embedding is used where it has one"
    assert weighted.get(["n0"])[0].state.retrievals > 0
    assert "elsewhere" not in weighted.state.known_ids(), "what is not of this bank is not counted"


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.0, 0.0), (-0.3, 0.0), (np.float32(0.5), 0.5), (2.5, 2.5)],
)
def test_any_score_a_retriever_gives_is_taken(weighted: MemoryBank, score: Any, expected: float) -> None:
    nodes = scored(score)
    given = repr(nodes[0].score)
    (found,) = DreamPostprocessor(weighted, scoring="given").postprocess_nodes(nodes, query_str="anything")
    assert type(found.score) is float
    assert found.score == pytest.approx(expected)
    json.dumps(found.to_dict())
    assert repr(nodes[0].score) == given, "the retriever's own node must not change"


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf"), float("-inf")])
def test_a_missing_score_counts_for_nothing(weighted: MemoryBank, missing: Any) -> None:
    nodes = scored(0.2, missing, -0.4, 0.3, -0.1)
    found = DreamPostprocessor(weighted, scoring="given").postprocess_nodes(nodes)
    assert ids(found) == ["n3", "n0", "n4", "n2", "n1"], "negatives keep their order, the unknown comes last"
    assert [node.score for node in found] == pytest.approx([0.3, 0.2, 0.0, 0.0, 0.0])
    assert all(np.isfinite(node.score) for node in found)  # type: ignore[arg-type]


def test_without_any_score_the_order_and_the_weights_decide(weighted: MemoryBank) -> None:
    step = DreamPostprocessor(weighted, scoring="given")
    assert ids(step.postprocess_nodes(scored(*[None] * 5))) == ["n0", "n1", "n2", "n3", "n4"]
    weighted.set_weights({"n0": 0.5, "n2": 0.0})
    found = step.postprocess_nodes(scored(*[None] * 5))
    assert ids(found) == ["n1", "n3", "n4", "n0"]
    assert found[0].score == pytest.approx(1 / 62)


def test_logits_of_a_cross_encoder_are_weighted_too(weighted: MemoryBank) -> None:
    weighted.set_weights({"n0": 0.1})
    nodes = scored(-1.0, -2.0, 3.0)
    found = DreamPostprocessor(weighted, scoring="logit").postprocess_nodes(nodes)
    assert ids(found) == ["n2", "n1", "n0"], "clamped at 0 the weight would have had no say"
    assert found[1].score == pytest.approx(1 / (1 + np.exp(2.0)))


def test_no_embedder_is_said_and_cosine_insists(
    weighted: MemoryBank, caplog: pytest.LogCaptureFixture
) -> None:
    step = DreamPostprocessor(weighted)
    with caplog.at_level(logging.WARNING, "llamaindex_dream"):
        for _ in range(2):
            assert ids(step.postprocess_nodes(scored(0.1, 0.9), query_str=QUESTION)) == ["n1", "n0"]
    assert [record.message for record in caplog.records if "no embedder" in record.message] == [
        caplog.records[0].message
    ], "once"
    with pytest.raises(ConfigError, match="needs the query's embedding"):
        DreamPostprocessor(weighted, scoring="cosine").postprocess_nodes(scored(0.1), query_str=QUESTION)


def test_forgotten_memories_are_dropped_or_demoted(embedding_bank: MemoryBank) -> None:
    embedding_bank.set_weights({"n0": 0.005, "n1": 0.0})
    nodes = scored(*[0.5] * 5)
    dropped = DreamPostprocessor(embedding_bank).postprocess_nodes(nodes, query_str=QUESTION)
    assert set(ids(dropped)) == {"n2", "n3", "n4"}
    demoted = DreamPostprocessor(embedding_bank, forgotten="demote").postprocess_nodes(
        nodes, query_str=QUESTION
    )
    assert ids(demoted) == [*ids(dropped), "n0"], "last, and weight 0 not at all"
    embedding_bank.delete(["n0"])
    step = DreamPostprocessor(embedding_bank, forgotten="demote", min_weight=0.0)
    assert "n0" not in ids(step.postprocess_nodes(nodes, query_str=QUESTION)), "softly deleted"


def test_duplicates_are_returned_once(embedding_bank: MemoryBank) -> None:
    nodes = [*scored(0.1, 0.2), *scored(0.9)]
    step = DreamPostprocessor(embedding_bank, hybrid=True)
    assert ids(step.postprocess_nodes(nodes, query_str=QUESTION)) == ["n0", "n1"]
    given = DreamPostprocessor(embedding_bank, scoring="given").postprocess_nodes(nodes)
    assert [found.score for found in given] == [0.2, 0.1], "the first of a pair counts"
    assert embedding_bank.get(["n0"])[0].state.retrievals == 2


def test_nothing_of_the_callers_is_changed(embedding_bank: MemoryBank) -> None:
    nodes = scored(0.4, None, -1.0)
    before = [(id(found), id(found.node), found.score, found.node.to_dict()) for found in nodes]
    result = DreamPostprocessor(embedding_bank).postprocess_nodes(nodes, query_str=QUESTION)
    assert [(id(found), id(found.node), found.score, found.node.to_dict()) for found in nodes] == before
    assert not {id(found) for found in nodes} & {id(found) for found in result}


@pytest.mark.parametrize("min_weight", [0.0, 0.01])
@pytest.mark.parametrize("forgotten", ["drop", "demote"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_nodes_outside_the_tenant_are_dropped_and_not_counted(
    weighted: MemoryBank, tmp_path: Path, name: str, min_weight: float, forgotten: Any, hybrid: bool
) -> None:
    weighted.content.collection.update(ids=["n0", "n1"], metadatas=[{"user": "ada"}, {"user": "bob"}])
    vector = weighted.content.get_embeddings(["n0"])["n0"].tolist()
    nodes = [NodeWithScore(node=TextNode(text="x", id_=f"n{row}"), score=0.2) for row in (1, 0, 2)]
    with MemoryBank.open(tmp_path / "chroma", name, where={"user": "ada"}) as ada:
        step = DreamPostprocessor(ada, min_weight=min_weight, forgotten=forgotten, hybrid=hybrid)
        result = step.postprocess_nodes(nodes, query_bundle=QueryBundle("archive", embedding=vector))
    assert ids(result) == ["n0"]
    if not hybrid:
        assert result[0].score == pytest.approx(1.0), "by its cosine, though the others have none here"
    assert [memory.state.retrievals for memory in weighted.get(["n0", "n1", "n2"])] == [1, 0, 0]


@pytest.mark.parametrize("query", [QUESTION, "A3 paper and the blue key"])
def test_hybrid_over_all_nodes_is_the_hybrid_of_the_core(
    index: VectorStoreIndex, embedding_bank: MemoryBank, query: str
) -> None:
    embedding_bank.set_weights({"n2": 0.6, "n4": 0.0})
    nodes = index.as_retriever(similarity_top_k=5).retrieve(query)
    found = DreamPostprocessor(embedding_bank, hybrid=True).postprocess_nodes(nodes, query_str=query)
    expected = BankRetriever(embedding_bank, RetrievalConfig(k=5, search_type="hybrid")).search(query)
    assert ids(found) == [hit.id for hit in expected]
    assert [node.score for node in found] == pytest.approx([hit.score for hit in expected])
    words_only = DreamPostprocessor(embedding_bank, hybrid=True, rrf_weights=(0.0, 1.0))
    expected = BankRetriever(
        embedding_bank, RetrievalConfig(k=5, search_type="hybrid", rrf_weights=(0.0, 1.0))
    ).search("paper")
    assert (
        ids(words_only.postprocess_nodes(nodes, query_str="paper")) == [hit.id for hit in expected] == ["n2"]
    )
    dense_only = DreamPostprocessor(embedding_bank, hybrid=True).postprocess_nodes(nodes)
    assert len(dense_only) == 4, "without a text there are no keywords"


class ByLength:
    """A reranker that likes short texts."""

    asked: list[int]

    def __init__(self) -> None:
        self.asked = []

    def score(self, query: str, texts: Any) -> Any:
        self.asked.append(len(texts))
        return np.array([1.0 / len(text) for text in texts])


def test_a_rerankers_score_is_weighted(embedding_bank: MemoryBank) -> None:
    reranker = ByLength()
    step = DreamPostprocessor(embedding_bank, reranker=reranker, rerank_top=3)
    nodes = scored(*[0.5] * 5)
    order = ids(DreamPostprocessor(embedding_bank).postprocess_nodes(nodes, query_str=QUESTION))
    found = step.postprocess_nodes(nodes, query_str=QUESTION)
    assert reranker.asked == [3]
    head = sorted(order[:3], key=lambda key: len(TEXTS[int(key[1])]))
    assert ids(found) == [*head, *order[3:]]
    embedding_bank.set_weights({head[0]: 0.1})
    assert ids(step.postprocess_nodes(nodes, query_str=QUESTION))[0] != head[0]
    assert step.postprocess_nodes(nodes) != [], "without a text nothing is reranked"
    assert len(reranker.asked) == 2


def test_access_is_counted_for_what_is_returned_only(embedding_bank: MemoryBank) -> None:
    nodes = scored(*[0.5] * 5)
    DreamPostprocessor(embedding_bank, top_n=1).postprocess_nodes(nodes, query_str=QUESTION)
    DreamPostprocessor(embedding_bank, track_access=False).postprocess_nodes(nodes, query_str=QUESTION)
    assert [memory.state.retrievals for memory in embedding_bank.get([f"n{row}" for row in range(5)])] == [
        1, 0, 0, 0, 0,
    ]  # fmt: skip


def test_nothing_in_nothing_out(embedding_bank: MemoryBank) -> None:
    for options in ({}, {"hybrid": True}, {"scoring": "given"}, {"reranker": ByLength()}):
        assert DreamPostprocessor(embedding_bank, **options).postprocess_nodes([], query_str=QUESTION) == []
    blank = DreamPostprocessor(embedding_bank).postprocess_nodes(scored(0.1, 0.3), query_str="")
    assert ids(blank) == ["n1", "n0"], "no text, no cosine"


@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_the_space_of_the_collection_does_not_matter(
    many: Any, embedder: SentenceTransformerEmbedder, space: str
) -> None:
    index = many(12, metadata={"hnsw:space": space})
    with MemoryBank.from_collection(index.vector_store.client, embedder=embedder) as bank:
        bank.set_weights({"r0": 0.5})
        nodes = index.as_retriever(similarity_top_k=12).retrieve("the archive")
        found = DreamPostprocessor(bank, scoring="cosine").postprocess_nodes(nodes, query_str="the archive")
        query = np.asarray(embedder.embed_query("the archive"))
        texts = [node.get_content() for node in found]
        expected = np.asarray(embedder.embed_documents(texts)) @ query
        weight = [0.5 if key == "r0" else 1.0 for key in ids(found)]
        assert [node.score for node in found] == pytest.approx(
            list(weight * np.maximum(expected, 0)), abs=1e-5
        )
