"""A real LlamaIndex index over Chroma with MiniLM, the bank over it, and handlers that record events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chromadb
import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.vector_stores.chroma import ChromaVectorStore

from llamaindex_dream import CoreEmbedding
from shared_core import MemoryBank, SentenceTransformerEmbedder

TEXTS = [
    "The archive opens at nine and closes at noon.",
    "The archive's side door needs the blue key.",
    "Printers on the second floor take A3 paper.",
    "The canteen serves soup on Mondays.",
    "Expense claims go to Nadia by the fifth.",
]
QUESTION = "When is the archive open?"


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [found.node.node_id for found in nodes]


def build(collection: Any, embedder: Any, nodes: list[Any]) -> VectorStoreIndex:
    store = ChromaVectorStore(chroma_collection=collection)
    return VectorStoreIndex(
        nodes,
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=CoreEmbedding(embedder),
    )


@pytest.fixture
def collection(tmp_path: Path, name: str) -> Any:
    return chromadb.PersistentClient(str(tmp_path / "chroma")).create_collection(name)


@pytest.fixture
def index(collection: Any, embedder: SentenceTransformerEmbedder) -> VectorStoreIndex:
    nodes = [
        TextNode(text=text, id_=f"n{row}", metadata={"floor": row % 3, "topic": text.split()[1]})
        for row, text in enumerate(TEXTS)
    ]
    for node in nodes:
        node.excluded_embed_metadata_keys = ["floor", "topic"]
    return build(collection, embedder, nodes)


@pytest.fixture
def weighted(index: VectorStoreIndex, tmp_path: Path, name: str) -> Iterator[MemoryBank]:
    """The bank over the index, without an embedder."""
    with MemoryBank.open(tmp_path / "chroma", name) as bank:
        yield bank


@pytest.fixture
def embedding_bank(
    index: VectorStoreIndex, tmp_path: Path, name: str, embedder: SentenceTransformerEmbedder
) -> Iterator[MemoryBank]:
    """The bank over the index, with its embedder."""
    with MemoryBank.open(tmp_path / "chroma", name, embedder=embedder) as bank:
        yield bank


Make = Callable[..., VectorStoreIndex]


@pytest.fixture
def many(tmp_path: Path, embedder: SentenceTransformerEmbedder) -> Make:
    """Make an index of so many short notes about rooms; ids r0, r1, ..."""

    def made(count: int, **options: Any) -> VectorStoreIndex:
        client = chromadb.PersistentClient(str(tmp_path / "many"))
        words = ["archive", "canteen", "printer", "garden", "library", "workshop", "garage"]
        nodes = [
            TextNode(text=f"Room {row} is next to the {words[row % len(words)]}.", id_=f"r{row}")
            for row in range(count)
        ]
        return build(client.create_collection("rooms", **options), embedder, nodes)

    return made
