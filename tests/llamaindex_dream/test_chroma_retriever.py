"""The retriever over an index that plain LlamaIndex wrote: same nodes, weighted order, filters, tenants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import SimpleDirectoryReader, StorageContext, VectorStoreIndex
from llama_index.core.llms.mock import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import IndexNode, NodeRelationship, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.vector_stores.chroma import ChromaVectorStore

from llamaindex_dream import CoreEmbedding, DreamChromaRetriever
from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.errors import ConfigError, DimensionMismatchError, UnsupportedStoreError
from shared_core.evaluation import bundled_case
from tests.llamaindex_dream.conftest import QUESTION, TEXTS, build, ids


def where_is(key: str, value: Any, operator: FilterOperator = FilterOperator.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


async def test_weight_times_cosine_sync_and_async(
    embedding_bank: MemoryBank, embedder: SentenceTransformerEmbedder
) -> None:
    weight = np.array([0.3, 1.0, 0.0, 1.0, 0.7])
    embedding_bank.set_weights({f"n{row}": float(value) for row, value in enumerate(weight)})
    similarity = np.asarray(embedder.embed_documents(TEXTS)) @ np.asarray(embedder.embed_query(QUESTION))
    score = weight * np.maximum(similarity, 0)
    retriever = DreamChromaRetriever(embedding_bank, similarity_top_k=4)
    for found in (retriever.retrieve(QUESTION), await retriever.aretrieve(QUESTION)):
        assert {node.node.node_id: node.score for node in found} == pytest.approx(
            {f"n{row}": score[row] for row in (0, 1, 3, 4)}, abs=1e-5
        )
        assert [node.score for node in found] == sorted((node.score for node in found), reverse=True)
        assert all(type(node.score) is float for node in found)
        json.dumps([node.to_dict() for node in found])


def test_nodes_are_those_of_the_plain_store(tmp_path: Path, embedder: Any, collection: Any) -> None:
    source = RelatedNodeInfo(node_id="doc-1")
    nodes = [
        TextNode(
            text="Nested notes.",
            id_="a",
            metadata={"page": 3, "empty": None},
            excluded_llm_metadata_keys=["page"],
            relationships={NodeRelationship.SOURCE: source},
            start_char_idx=4,
            end_char_idx=17,
        ),
        IndexNode(text="An index of notes.", id_="b", index_id="other"),
    ]
    index = build(collection, embedder, nodes)
    collection.add(
        ids=["plain", "broken"],
        documents=["Written by another program.", "With broken content."],
        metadatas=[{"doc_id": "d", "kind": "x"}, {"_node_content": "{", "relationships": "no json"}],
        embeddings=[list(map(float, row)) for row in np.asarray(embedder.embed_documents(["a", "b"]))],
    )
    retriever = DreamChromaRetriever.from_index(index, similarity_top_k=4)
    ours = {node.node.node_id: node.node for node in retriever.retrieve("notes")}
    assert ours.keys() == {"a", "b", "plain", "broken"}
    assert ours["broken"].get_content() == "With broken content.", "the plain store fails on this one"
    collection.delete(ids=["broken"])
    theirs = {
        node.node.node_id: node.node for node in index.as_retriever(similarity_top_k=4).retrieve("notes")
    }
    for key, node in theirs.items():
        assert type(ours[key]) is type(node)
        assert ours[key].to_dict() == node.to_dict()
    assert ours["a"].ref_doc_id == "doc-1"


def test_a_memory_cannot_pass_for_another(index: Any, embedding_bank: MemoryBank) -> None:
    collection = embedding_bank.content.collection
    disguised = dict(collection.get(ids=["n1"])["metadatas"][0])
    collection.update(ids=["n4"], metadatas=[disguised])
    embedding_bank.set_weights({"n4": 0.0})
    retriever = DreamChromaRetriever(embedding_bank, similarity_top_k=5)
    assert ids(retriever.retrieve("Nadia's expense claims")).count("n1") == 1
    embedding_bank.set_weights({"n4": 1.0})
    found = retriever.retrieve("Nadia's expense claims")
    assert sorted(ids(found)) == ["n0", "n1", "n2", "n3", "n4"]
    assert found[0].node.node_id == "n4"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (MetadataFilters(filters=[where_is("floor", 0)]), {"n0", "n3"}),
        (MetadataFilters(filters=[where_is("floor", 1, FilterOperator.GTE)]), {"n1", "n2", "n4"}),
        (MetadataFilters(filters=[where_is("floor", 0, FilterOperator.NE)]), {"n1", "n2", "n4"}),
        (MetadataFilters(filters=[where_is("topic", ["archive", "on"], FilterOperator.IN)]), {"n0", "n2"}),
        (
            MetadataFilters(filters=[where_is("topic", ["archive"], FilterOperator.NIN)]),
            {"n1", "n2", "n3", "n4"},
        ),
        (
            MetadataFilters(
                filters=[where_is("topic", "archive"), where_is("floor", 2)], condition=FilterCondition.OR
            ),
            {"n0", "n2"},
        ),
        (
            MetadataFilters(
                filters=[
                    where_is("floor", 1, FilterOperator.LTE),
                    MetadataFilters(
                        filters=[where_is("topic", "canteen"), where_is("topic", "claims")],
                        condition=FilterCondition.OR,
                    ),
                ]
            ),
            {"n3", "n4"},
        ),
        (MetadataFilters(filters=[]), {"n0", "n1", "n2", "n3", "n4"}),
        ({"topic": "archive"}, {"n0"}),
        (None, {"n0", "n1", "n2", "n3", "n4"}),
    ],
)
@pytest.mark.parametrize("search_type", ["similarity", "hybrid"])
def test_filters(embedding_bank: MemoryBank, filters: Any, expected: set[str], search_type: str) -> None:
    retriever = DreamChromaRetriever(
        embedding_bank, similarity_top_k=5, filters=filters, search_type=search_type
    )
    assert set(ids(retriever.retrieve(QUESTION))) == expected


def test_filters_that_chroma_does_not_have(embedding_bank: MemoryBank) -> None:
    for filters, message in [
        (MetadataFilters(filters=[where_is("topic", "arch", FilterOperator.TEXT_MATCH)]), "'text_match'"),
        (MetadataFilters(filters=[where_is("floor", 0)], condition=FilterCondition.NOT), "'not'"),
        ("floor", "filters is a str"),
    ]:
        with pytest.raises(ConfigError, match=message):
            DreamChromaRetriever(embedding_bank, filters=filters)  # type: ignore[arg-type]


def test_search_types_and_options(embedding_bank: MemoryBank) -> None:
    def found(**options: Any) -> list[str]:
        return ids(DreamChromaRetriever(embedding_bank, **options).retrieve(QUESTION))

    assert found(similarity_top_k=1) == ["n0"]
    assert len(found()) == 4
    assert set(found(search_type="mmr", similarity_top_k=2, lambda_mult=0.0)) != {"n0", "n1"}
    assert found(search_type="similarity_score_threshold", score_threshold=0.5) == ["n0"]
    assert found(where_document={"$contains": "blue"}) == ["n1"]
    assert found(backend="scan") == found(backend="index")
    for options, message in [
        ({"search_type": "similarity_score_threshold"}, "needs score_threshold"),
        ({"k": 3}, "unknown option k"),
        ({"similarity_top_k": 0}, "k=0"),
        ({"search_type": "semantic"}, "search_type"),
    ]:
        with pytest.raises(ConfigError, match=message):
            found(**options)


def test_index_nodes_lead_to_what_they_stand_for(collection: Any, embedder: Any) -> None:
    index = build(collection, embedder, [IndexNode(text="About the archive.", id_="b", index_id="archive")])
    inner = TextNode(text="The archive has three rooms.", id_="inner")
    retriever = DreamChromaRetriever.from_index(index, object_map={"archive": inner})
    assert ids(retriever.retrieve(QUESTION)) == ["inner"]
    assert DreamChromaRetriever.from_index(index).retrieve(QUESTION)[0].node.node_id == "b"


def test_k_can_be_set_later_as_llamaindex_does(embedding_bank: MemoryBank) -> None:
    retriever = DreamChromaRetriever(embedding_bank)
    retriever.similarity_top_k = 2
    assert len(retriever.retrieve(QUESTION)) == 2


def test_queries_without_text_and_with_an_embedding(embedding_bank: MemoryBank, embedder: Any) -> None:
    retriever = DreamChromaRetriever(embedding_bank)
    assert retriever.retrieve("") == []
    assert retriever.retrieve("  ") == []
    soup = QueryBundle("", embedding=list(map(float, embedder.embed_query("soup"))))
    assert ids(retriever.retrieve(soup))[0] == "n3"
    with pytest.raises(DimensionMismatchError):
        retriever.retrieve(QueryBundle("x", embedding=[1.0, 0.0]))
    hyde = QueryBundle(QUESTION, custom_embedding_strs=["soup on Mondays"])
    assert ids(retriever.retrieve(hyde))[0] == "n3"
    assert hyde.embedding is None


def test_from_index_opens_the_bank_with_everything(index: Any, embedder: Any) -> None:
    retriever = DreamChromaRetriever.from_index(
        index, where={"floor": 1}, value_key="answer", origin_key="topic", quarantine=0.5
    )
    bank = retriever.bank
    assert (bank.value_key, bank.origin_key, bank.embedder) == ("answer", "topic", embedder)
    assert set(ids(retriever.retrieve(QUESTION))) == {"n1", "n4"}
    index.insert_nodes([TextNode(text="The archive has a new lock.", id_="new", metadata={"floor": 1})])
    assert dict(zip(["n1", "new"], bank.weights(["n1", "new"]), strict=True)) == {"n1": 1.0, "new": 0.5}
    assert "new" in ids(retriever.retrieve(QUESTION)), "inserted by LlamaIndex, seen at once"
    bank.close()


def test_other_stores_and_missing_models_are_refused(
    index: Any, weighted: MemoryBank, embedder: SentenceTransformerEmbedder
) -> None:
    in_memory = VectorStoreIndex([TextNode(text="x")], embed_model=CoreEmbedding(embedder))
    with pytest.raises(UnsupportedStoreError, match="SimpleVectorStore is not Chroma"):
        DreamChromaRetriever.from_index(in_memory)
    with pytest.raises(ConfigError, match="nothing embeds queries"):
        DreamChromaRetriever(weighted)
    with pytest.raises(ConfigError, match="use from_index"):
        DreamChromaRetriever(index)  # type: ignore[arg-type]


def test_a_sweep_over_plain_llamaindex_documents(tmp_path: Path, embedder: Any, collection: Any) -> None:
    """Nodes of files are embedded with their path before the text; the sweep takes them all the same."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for row, text in enumerate(TEXTS):
        (folder / f"{row}.txt").write_text(text)
    documents = SimpleDirectoryReader(str(folder)).load_data()
    store = ChromaVectorStore(chroma_collection=collection)
    index = VectorStoreIndex.from_documents(
        documents,
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=CoreEmbedding(embedder),
    )
    retriever = DreamChromaRetriever.from_index(index)
    report = retriever.sweep(ForgettingConfig.preset("hardened"))
    assert report.memories == len(TEXTS)
    assert report.lowered == 0
    assert any("5 texts were embedded anew" in warning for warning in report.warnings)
    assert retriever.retrieve(QUESTION)[0].text == TEXTS[0]
    assert retriever.bank.explain(report_id(retriever)).terms


def report_id(retriever: DreamChromaRetriever) -> str:
    return retriever.retrieve(QUESTION)[0].node.node_id


@pytest.mark.parametrize("embedded", [True, False])
def test_poison_is_forgotten_whatever_llamaindex_embeds(
    collection: Any, embedder: SentenceTransformerEmbedder, embedded: bool
) -> None:
    case = bundled_case()
    nodes = [
        TextNode(
            text=memory.key,
            id_=memory.id,
            metadata={"answer": memory.value, "file_path": f"/notes/office/{row}.txt"},
            excluded_embed_metadata_keys=[] if embedded else ["answer", "file_path"],
        )
        for row, memory in enumerate(case.memories)
    ]
    retriever = DreamChromaRetriever.from_index(build(collection, embedder, nodes), value_key="answer")
    hit = sum(bool(case.poison_ids & set(ids(retriever.retrieve(query)))) for query in case.triggered_queries)
    retriever.sweep(ForgettingConfig.preset("hardened"))
    left = [
        query for query in case.triggered_queries if case.poison_ids & set(ids(retriever.retrieve(query)))
    ]
    weight = dict(zip(retriever.bank.ids(), retriever.bank.weights(retriever.bank.ids()), strict=True))
    assert hit == len(case.triggered_queries)
    assert left == []
    assert {key for key, value in weight.items() if value < 0.5} == case.poison_ids


async def test_a_sweep_s_report_is_undone(embedding_bank: MemoryBank) -> None:
    retriever = DreamChromaRetriever(embedding_bank)
    report = await retriever.asweep(ForgettingConfig.preset("paper"))
    assert report.run_id is not None
    embedding_bank.undo(report.run_id)
    assert set(embedding_bank.weights([f"n{row}" for row in range(5)])) == {1.0}


def test_a_derived_memory_is_a_node_like_any_other(index: Any, embedding_bank: MemoryBank) -> None:
    """What a dream wrote has no _node_content, and its sources and text are shown as they are."""
    embedding_bank.add(
        ["The archive is open from nine to noon."], ids=["added"], metadatas=[{"kind": "note"}]
    )
    retriever = DreamChromaRetriever(embedding_bank, similarity_top_k=2)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    nodes = {node.node.node_id: node.node for node in engine.query(QUESTION).source_nodes}
    assert set(nodes) == {"n0", "added"}
    assert nodes["added"].metadata == {"kind": "note"}


def test_a_rewritten_text_is_the_node_s_text(embedding_bank: MemoryBank) -> None:
    run = embedding_bank.update("n0", "The archive is open day and night.")
    retriever = DreamChromaRetriever(embedding_bank, similarity_top_k=1)
    (found,) = retriever.retrieve(QUESTION)
    assert found.text == "The archive is open day and night."
    assert found.node.metadata["topic"] == "archive"
    embedding_bank.undo(run.run_id)
    assert retriever.retrieve(QUESTION)[0].text == TEXTS[0]
