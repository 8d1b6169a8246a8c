"""LangChain's own standard tests for retrievers, over a real Chroma with MiniLM."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from langchain_chroma import Chroma
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_dream import DreamRetriever
from shared_core import SentenceTransformerEmbedder


class TestDreamRetrieverStandard(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _vectorstore(self, embedder: SentenceTransformerEmbedder, tmp_path: Any) -> None:
        self._store = Chroma(
            collection_name=f"standard-{uuid.uuid4().hex[:8]}",
            embedding_function=embedder,
            persist_directory=str(tmp_path),
        )
        self._store.add_texts([f"the office printer number {i} is on floor {i}" for i in range(10)])

    @property
    def retriever_constructor(self) -> type[DreamRetriever]:
        return DreamRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"vectorstore": self._store}

    @property
    def retriever_query_example(self) -> str:
        return "where is the printer?"
