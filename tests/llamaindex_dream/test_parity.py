"""One collection, two frameworks: LangChain and LlamaIndex return the same ids in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.vector_stores.chroma import ChromaVectorStore

from langchain_dream import DreamRetriever
from llamaindex_dream import CoreEmbedding, DreamChromaRetriever, DreamPostprocessor
from shared_core import SentenceTransformerEmbedder

QUERIES = ["Where is the archive?", "soup on Mondays", "Who signs room 7's expense claims?", "zebra"]
K = 6


@pytest.fixture
def both(tmp_path: Path, name: str, embedder: SentenceTransformerEmbedder) -> tuple[Any, Any, Any]:
    """A LangChain store and a LlamaIndex index over one collection, each having written half of it."""
    store = Chroma(name, embedding_function=embedder, persist_directory=str(tmp_path / "chroma"))
    places = ["archive", "canteen", "printer", "garden"]
    texts = [
        f"Room {row} is by the {places[row % 4]}; Nadia signs its claims on Mondays." for row in range(40)
    ]
    store.add_documents(
        [
            Document(id=f"m{row}", page_content=text, metadata={"place": places[row % 4]})
            for row, text in enumerate(texts[:20])
        ]
    )
    index = VectorStoreIndex.from_vector_store(
        ChromaVectorStore(chroma_collection=store._collection), embed_model=CoreEmbedding(embedder)
    )
    index.insert_nodes(
        [
            TextNode(
                text=text,
                id_=f"m{row}",
                metadata={"place": places[row % 4]},
                excluded_embed_metadata_keys=["place"],
            )
            for row, text in enumerate(texts[20:], start=20)
        ]
    )
    theirs = DreamRetriever.from_vectorstore(store, k=K)
    return theirs, index, texts


def random_weights(seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    return {f"m{row}": float(weight) for row, weight in enumerate(rng.choice([0.0, 0.02, 0.3, 0.9, 1.0], 40))}


@pytest.mark.parametrize("search_type", ["similarity", "mmr", "hybrid", "associative"])
@pytest.mark.parametrize("backend", ["index", "scan"])
async def test_same_ids_in_the_same_order(both: tuple[Any, Any, Any], search_type: str, backend: str) -> None:
    theirs, index, _ = both
    langchain = DreamRetriever(
        vectorstore=theirs.vectorstore, k=K, backend=backend, search_kwargs={"search_type": search_type}
    )
    llamaindex = DreamChromaRetriever.from_index(
        index, similarity_top_k=K, search_type=search_type, backend=backend
    )
    for seed, query in enumerate(QUERIES):
        langchain.bank.set_weights(random_weights(seed))
        documents = langchain.invoke(query)
        nodes = llamaindex.retrieve(query)
        assert [node.node.node_id for node in nodes] == [document.id for document in documents]
        assert [node.score for node in nodes] == [document.metadata["dream_score"] for document in documents]
        again = await llamaindex.aretrieve(query)
        assert [node.node.node_id for node in again] == [
            document.id for document in await langchain.ainvoke(query)
        ]
        assert [node.text for node in nodes] == [document.page_content for document in documents]


def test_the_postprocessor_agrees_when_it_sees_enough(both: tuple[Any, Any, Any]) -> None:
    theirs, index, _ = both
    theirs.bank.set_weights(random_weights(9))
    step = DreamPostprocessor(DreamChromaRetriever.from_index(index).bank, scoring="cosine")
    over = step.over_fetch(index, top_k=K)
    for query in QUERIES:
        expected = [document.id for document in theirs.invoke(query)]
        assert [node.node.node_id for node in over.retrieve(query)] == expected


def test_filters_agree(both: tuple[Any, Any, Any]) -> None:
    theirs, index, _ = both
    filters = MetadataFilters(filters=[MetadataFilter(key="place", value="garden")])
    ours = DreamChromaRetriever.from_index(index, similarity_top_k=K, filters=filters)
    expected = theirs.invoke(QUERIES[0], filter={"place": "garden"})
    assert [node.node.node_id for node in ours.retrieve(QUERIES[0])] == [document.id for document in expected]
    assert len(expected) == K


def test_each_sees_what_the_other_changes_at_once(both: tuple[Any, Any, Any]) -> None:
    theirs, index, _ = both
    ours = DreamChromaRetriever.from_index(index, similarity_top_k=40)
    step = DreamPostprocessor(ours.bank)
    plain = index.as_retriever(similarity_top_k=40)
    first = theirs.invoke(QUERIES[0])[0].id
    run = theirs.bank.set_weights({first: 0.0})
    assert first not in [node.node.node_id for node in ours.retrieve(QUERIES[0])]
    weighed = step.postprocess_nodes(plain.retrieve(QUERIES[0]), query_str=QUERIES[0])
    assert first not in [node.node.node_id for node in weighed]
    ours.bank.undo(run.run_id)
    assert theirs.invoke(QUERIES[0])[0].id == first
    ours.feedback(ours.retrieve(QUERIES[0])[:2], success=False)
    assert theirs.bank.get([first])[0].state.consolidation < 1.0
    index.insert_nodes([TextNode(text="The archive is in the east wing.", id_="new")])
    assert theirs.invoke("archive east wing")[0].id == "new"
    theirs.vectorstore.add_texts(["The zebra lives in the west wing."], ids=["zebra"])
    assert ours.retrieve("zebra west wing")[0].node.node_id == "zebra"
