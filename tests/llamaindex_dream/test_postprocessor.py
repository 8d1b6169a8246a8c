"""The postprocessor in a real query engine: LlamaIndex, its Chroma store, MiniLM; answers do not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.llms.mock import MockLLM
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.vector_stores.chroma import ChromaVectorStore

from llamaindex_dream import CoreEmbedding, DreamPostprocessor
from shared_core import MemoryBank, SentenceTransformerEmbedder
from shared_core.errors import ConfigError

TEXTS = [
    "The archive opens at nine and closes at noon.",
    "The archive's side door needs the blue key.",
    "Printers on the second floor take A3 paper.",
    "The canteen serves soup on Mondays.",
    "Expense claims go to Nadia by the fifth.",
]


@pytest.fixture
def index(tmp_path: Path, embedder: SentenceTransformerEmbedder, name: str) -> VectorStoreIndex:
    collection = chromadb.PersistentClient(str(tmp_path / "chroma")).create_collection(name)
    store = ChromaVectorStore(chroma_collection=collection)
    nodes = [TextNode(text=text, id_=f"n{row}") for row, text in enumerate(TEXTS)]
    return VectorStoreIndex(
        nodes,
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=CoreEmbedding(embedder),
    )


@pytest.fixture
def weighted(index: VectorStoreIndex, tmp_path: Path, name: str) -> MemoryBank:
    return MemoryBank.open(tmp_path / "chroma", name)


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [found.node.node_id for found in nodes]


def test_a_forgotten_memory_leaves_the_query_engine(index: VectorStoreIndex, weighted: MemoryBank) -> None:
    engine = index.as_query_engine(
        llm=MockLLM(), similarity_top_k=5, node_postprocessors=[DreamPostprocessor(weighted, top_n=2)]
    )
    question = "When is the archive open?"
    assert ids(engine.query(question).source_nodes)[0] == "n0"
    run = weighted.set_weights({"n0": 0.0})
    after = engine.query(question).source_nodes
    assert "n0" not in ids(after)
    assert len(after) == 2
    weighted.undo(run.run_id)
    assert ids(engine.query(question).source_nodes)[0] == "n0"


async def test_the_async_engine_is_weighted_too(index: VectorStoreIndex, weighted: MemoryBank) -> None:
    weighted.set_weights({"n0": 0.0})
    engine = index.as_query_engine(
        llm=MockLLM(), similarity_top_k=5, node_postprocessors=[DreamPostprocessor(weighted)]
    )
    response = await engine.aquery("When is the archive open?")
    assert len(response.source_nodes) == 4
    assert "n0" not in ids(response.source_nodes)


def test_scores_are_weight_times_cosine(
    index: VectorStoreIndex, weighted: MemoryBank, embedder: SentenceTransformerEmbedder
) -> None:
    weighted.set_weights({"n0": 0.5, "n1": 0.9})
    question = "When is the archive open?"
    query = np.asarray(embedder.embed_query(question))
    bundle = QueryBundle(question, embedding=query.tolist())
    nodes = index.as_retriever(similarity_top_k=5).retrieve(bundle)
    result = DreamPostprocessor(weighted).postprocess_nodes(nodes, query_bundle=bundle)
    weight = {"n0": 0.5, "n1": 0.9}
    matrix = np.asarray(embedder.embed_documents(TEXTS))
    expected = {
        f"n{row}": weight.get(f"n{row}", 1.0) * max(0.0, float(matrix[row] @ query)) for row in range(5)
    }
    assert {found.node.node_id: found.score for found in result} == pytest.approx(expected, abs=1e-5)
    assert ids(result) == sorted(expected, key=lambda i: -expected[i])
    assert all(type(found.score) is float for found in result)


@pytest.mark.parametrize(
    ("score", "expected"),
    [(None, 1.0), (float("nan"), 1.0), (0.0, 0.0), (-0.3, 0.0), (np.float32(0.5), 0.5)],
)
def test_any_score_a_retriever_gives_is_taken(weighted: MemoryBank, score: Any, expected: float) -> None:
    nodes = [NodeWithScore(node=TextNode(text="x", id_="n3"), score=score)]
    given = repr(nodes[0].score)
    (found,) = DreamPostprocessor(weighted).postprocess_nodes(nodes, query_str="anything")
    assert type(found.score) is float
    assert found.score == pytest.approx(expected)
    assert repr(nodes[0].score) == given, "the retriever's own node must not change"


@pytest.mark.parametrize("min_weight", [0.0, 0.01])
def test_nodes_outside_the_tenant_are_dropped_and_not_counted(
    index: VectorStoreIndex, weighted: MemoryBank, tmp_path: Path, name: str, min_weight: float
) -> None:
    weighted.content.collection.update(ids=["n0", "n1"], metadatas=[{"user": "ada"}, {"user": "bob"}])
    ada = MemoryBank.open(tmp_path / "chroma", name, where={"user": "ada"})
    bundle = QueryBundle("archive", embedding=weighted.content.get_embeddings(["n0"])["n0"].tolist())
    nodes = [NodeWithScore(node=TextNode(text="x", id_=f"n{row}"), score=0.2) for row in (1, 0, 2)]
    result = DreamPostprocessor(ada, min_weight=min_weight).postprocess_nodes(nodes, query_bundle=bundle)
    assert ids(result) == ["n0"]
    assert result[0].score == pytest.approx(1.0), "by its cosine, though the others have none here"
    ada.close()
    assert [memory.state.retrievals for memory in weighted.get(["n0", "n1", "n2"])] == [1, 0, 0]


def test_query_string_or_bundle_but_not_both(weighted: MemoryBank) -> None:
    with pytest.raises(ValueError, match="both"):
        DreamPostprocessor(weighted).postprocess_nodes([], query_bundle=QueryBundle("a"), query_str="a")


def test_options_are_checked_and_serialise(weighted: MemoryBank) -> None:
    with pytest.raises(ValueError, match="top_n"):
        DreamPostprocessor(weighted, top_n=0)
    with pytest.raises(ValueError, match="topn"):
        DreamPostprocessor(weighted, topn=2)
    with pytest.raises(ConfigError, match="MemoryBank, not Collection"):
        DreamPostprocessor(weighted.content.collection)  # type: ignore[arg-type]
    assert DreamPostprocessor(weighted, top_n=3).to_dict()["top_n"] == 3
    assert DreamPostprocessor.class_name() == "DreamPostprocessor"
    assert DreamPostprocessor(weighted).bank is weighted
