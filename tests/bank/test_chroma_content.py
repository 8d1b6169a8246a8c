"""Collections that others filled work at once and stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from langchain_chroma import Chroma

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.errors import ConfigError, DimensionMismatchError
from tests.conftest import OpenBank, fill, metadata_list, unit_rows

TEXTS = [f"the office printer number {i} is on floor {i}" for i in range(12)]


def raw(bank: MemoryBank) -> Any:
    got = bank.content.collection.get(include=["documents", "metadatas", "embeddings", "uris"])
    return {**got, "embeddings": np.asarray(got["embeddings"]).tolist()}


def exercise(bank: MemoryBank) -> None:
    """Every change of state, none of content, then back again."""
    before, ids = raw(bank), bank.ids()
    assert bank.weights(ids).tolist() == [1.0] * len(ids)
    report = bank.sweep(ForgettingConfig())
    assert report.memories + report.skipped == len(ids)
    bank.feedback(ids[:2], [0.8, 0.2], 0.0)
    bank.delete(ids[:1])
    bank.set_weights({ids[1]: 0.25})
    assert bank.weights(ids[:2]).tolist() == [0, 0.25]
    assert bank.status().deleted == 1
    assert raw(bank) == before, "the user's own records stay untouched"
    for run in bank.runs():
        bank.undo(run.run_id)
    assert bank.weights(ids).tolist() == [1.0] * len(ids)


def test_plain_chromadb_without_texts_or_metadata(open_bank: OpenBank, tmp_path: Path, name: str) -> None:
    client = chromadb.PersistentClient(str(tmp_path / "chroma"))
    collection = client.create_collection(name, embedding_function=None)
    vectors = np.random.default_rng(0).normal(size=(30, 8))
    vectors[3] = 0.0
    collection.add(ids=[f"p{i}" for i in range(30)], embeddings=vectors)
    bank = open_bank(create=False)
    assert bank.content.space == "l2"
    assert (bank.get(["p1"])[0].text, bank.get(["p1"])[0].metadata) == ("", {})
    assert bank.sweep(ForgettingConfig(), dry_run=True).skipped == 1
    exercise(bank)
    run = bank.update("p1", metadata={"k": 1})
    assert raw(bank)["documents"][1] is None
    bank.undo(run.run_id)
    assert raw(bank)["metadatas"][1] is None


def test_langchain_chroma(
    open_bank: OpenBank, tmp_path: Path, name: str, embedder: SentenceTransformerEmbedder
) -> None:
    store = Chroma(name, embedding_function=embedder, persist_directory=str(tmp_path / "chroma"))
    ids = store.add_texts(TEXTS, metadatas=[{"floor": i} for i in range(12)])
    bank = open_bank(create=False, embedder=embedder)
    assert bank.ids() == ids
    assert [m.text for m in bank] == TEXTS
    exercise(bank)
    run = bank.update(ids[0], "the canteen opens at noon")
    assert store.similarity_search("when does the canteen open?", k=1)[0].id == ids[0]
    bank.undo(run.run_id)
    assert store.get_by_ids([ids[0]])[0].page_content == TEXTS[0]
    shared = MemoryBank.from_collection(store._collection)
    assert shared.content.key == bank.content.key
    shared.close()


def test_llama_index(
    open_bank: OpenBank, tmp_path: Path, name: str, embedder: SentenceTransformerEmbedder
) -> None:
    chroma = pytest.importorskip("llama_index.vector_stores.chroma")
    schema = pytest.importorskip("llama_index.core.schema")
    client = chromadb.PersistentClient(str(tmp_path / "chroma"))
    store = chroma.ChromaVectorStore(client.create_collection(name, embedding_function=None))
    vectors = embedder.embed_documents(TEXTS)
    nodes = [
        schema.TextNode(id_=f"n{i}", text=text, metadata={"floor": i}, embedding=vectors[i])
        for i, text in enumerate(TEXTS)
    ]
    store.add(nodes)
    bank = open_bank(create=False, embedder=embedder)
    assert [m.text for m in bank] == TEXTS
    exercise(bank)
    bank.update("n0", "the canteen opens at noon")
    fresh = {node.node_id: node for node in store.get_nodes(["n0", "n1"])}
    assert fresh["n0"].get_content() == "the canteen opens at noon"
    assert fresh["n1"].get_content() == TEXTS[1]


def test_metadata_is_replaced_not_merged(bank: MemoryBank) -> None:
    bank.add(
        ["a"], ids=["a"], metadatas=[{"x": 1, "y": "z", "l": metadata_list(1, 2)}], embeddings=np.eye(4)[:1]
    )
    bank.update("a", metadata={"y": "w"})
    assert bank.get(["a"])[0].metadata == {"y": "w"}
    bank.update("a", metadata={})
    assert bank.get(["a"])[0].metadata == {}


def test_a_collection_made_anew_is_another_bank(open_bank: OpenBank, rng: np.random.Generator) -> None:
    bank = open_bank()
    fill(bank, rng, rows=3)
    bank.set_weights({"m0": 0.1})
    bank.content.collection._client.delete_collection(bank.content.name)
    again = open_bank()
    fill(again, rng, rows=3)
    assert again.weights(["m0"]).tolist() == [1]


def test_a_query_of_another_dimension_is_refused(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=3)
    with pytest.raises(DimensionMismatchError, match="use the embedder the collection was filled with"):
        bank.content.neighbours(np.ones(5), 2)


@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_similarity_is_the_cosine_in_every_space(
    open_bank: OpenBank, rng: np.random.Generator, space: str
) -> None:
    bank = open_bank(space=space)
    vectors = rng.normal(size=(40, 8)).astype(np.float32)
    bank.add([f"t{i}" for i in range(40)], ids=[f"m{i}" for i in range(40)], embeddings=vectors)
    query = rng.normal(size=8)
    found = bank.content.neighbours(query, 40)
    rows = vectors[[int(i[1:]) for i in found.ids]]
    expected = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    assert len(found.ids) == 40
    assert np.allclose(found.similarity, expected, atol=1e-5)
    assert found.unit == (space == "cosine")


def test_a_name_or_space_that_chroma_refuses(open_bank: OpenBank) -> None:
    with pytest.raises(ConfigError, match="Chroma refuses collection 'x'"):
        open_bank(name="x")
    with pytest.raises(ConfigError, match="space 'manhattan'"):
        open_bank(space="manhattan")
    with pytest.raises(ConfigError, match="is not a chromadb Collection: open it with a synchronous client"):
        MemoryBank.from_collection(object())  # type: ignore[arg-type]


def test_reading_survives_a_writer_that_shifts_the_pages(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank.add(
        ["t"] * 20, ids=[f"m{i}" for i in range(20)], embeddings=unit_rows(np.random.default_rng(0), 20, 4)
    )
    pages = [
        {"ids": ["a", "b"], "embeddings": [[1.0], [2.0]]},
        {"ids": ["b", "c"], "embeddings": [[2.0], [3.0]]},
    ]
    monkeypatch.setattr(bank.content, "_pages", lambda *_: iter(pages))
    ids, matrix = bank.content.embeddings()
    assert (ids, matrix.ravel().tolist()) == (["a", "b", "c"], [1, 2, 3])
