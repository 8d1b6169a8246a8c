"""Importing the adapter, and using all of it, never loads LangChain, and the other way round."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = "pkgutil.iter_modules(package.__path__)"
"""Every module, not only what the package shows."""
USE = {
    "llamaindex_dream": """
import chromadb
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.vector_stores.chroma import ChromaVectorStore
from llamaindex_dream import CoreEmbedding, DreamChromaRetriever, DreamMemoryBlock, DreamPostprocessor
from shared_core import packaged_embedder

collection = chromadb.EphemeralClient().create_collection("imports")
store = ChromaVectorStore(chroma_collection=collection)
index = VectorStoreIndex.from_vector_store(store, embed_model=CoreEmbedding(packaged_embedder()))
index.insert_nodes([TextNode(text="The archive closes at noon.", id_="a")])
retriever = DreamChromaRetriever.from_index(index, search_type="hybrid")
found = retriever.retrieve("archive")
nodes = DreamPostprocessor(retriever.bank).postprocess_nodes(found, query_str="archive")
assert [node.node.node_id for node in nodes] == ["a"]
DreamMemoryBlock(retriever.bank).scheduler.close()
""",
    "langchain_dream": """
from langchain_chroma import Chroma
from langchain_dream import DreamRetriever
from shared_core import packaged_embedder

store = Chroma("imports", embedding_function=packaged_embedder())
store.add_texts(["The archive closes at noon."], ids=["a"])
retriever = DreamRetriever.from_vectorstore(store, search_type="hybrid")
assert [document.id for document in retriever.invoke("archive")] == ["a"]
""",
}


OTHER = {
    "llamaindex_dream": ("langchain", "langchain_core", "langchain_chroma", "langgraph", "langchain_dream"),
    "langchain_dream": ("llama_index", "llamaindex_dream"),
}


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("package", OTHER)
def test_no_module_loads_the_other_framework(package: str) -> None:
    code = (
        f"import importlib, pkgutil, sys, {package} as package\n"
        f"for found in {MODULES}:\n"
        f"    importlib.import_module('{package}.' + found.name)\n"
        f"print([name for name in {OTHER[package]!r} if name in sys.modules])"
    )
    assert run(code) == "[]"


@pytest.mark.parametrize("package", OTHER)
def test_it_works_where_the_other_framework_is_not_installed(package: str) -> None:
    # LlamaIndex itself loads LangChain where it is there
    run(f"import sys\nsys.modules.update(dict.fromkeys({OTHER[package]!r}))\n{USE[package]}")
