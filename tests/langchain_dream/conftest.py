"""A real LangChain Chroma store with MiniLM, and handlers that record what LangChain tells them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_chroma import Chroma
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.documents import Document

from langchain_dream import DreamRetriever
from shared_core import SentenceTransformerEmbedder

TEXTS = {
    "printer": "The office printer is on the third floor.",
    "paper": "Printer paper is kept in the cupboard beside the printer.",
    "coffee": "The coffee machine takes beans, not capsules.",
    "lunch": "Lunch is served from noon until two.",
    "wifi": "The wifi password is on the notice board.",
    "parking": "Visitors park behind the building.",
    "badge": "Lost badges are replaced at the front desk.",
    "fire": "In case of fire leave by the stairs.",
}
QUERY = "Where is the printer?"


def filled(store: Any) -> Any:
    store.add_documents(
        [
            Document(id=key, page_content=text, metadata={"topic": key, "length": len(text)})
            for key, text in TEXTS.items()
        ]
    )
    return store


@pytest.fixture
def store(embedder: SentenceTransformerEmbedder) -> Chroma:
    name = f"store-{uuid.uuid4().hex[:8]}"
    return filled(Chroma(collection_name=name, embedding_function=embedder))


@pytest.fixture
def retriever(store: Chroma) -> DreamRetriever:
    return DreamRetriever.from_vectorstore(store, k=3)


def ids(documents: Sequence[Document]) -> list[str | None]:
    return [document.id for document in documents]


class Recorder(BaseCallbackHandler):
    """Keeps (event, payload, keyword arguments)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any, dict[str, Any]]] = []

    def on_retriever_start(self, serialized: Any, query: str, **kwargs: Any) -> None:
        self.events.append(("start", query, kwargs))

    def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        self.events.append(("end", documents, kwargs))

    def on_retriever_error(self, error: BaseException, **kwargs: Any) -> None:
        self.events.append(("error", error, kwargs))


class AsyncRecorder(AsyncCallbackHandler):
    """``Recorder`` with coroutines."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any, dict[str, Any]]] = []

    async def on_retriever_start(self, serialized: Any, query: str, **kwargs: Any) -> None:
        self.events.append(("start", query, kwargs))

    async def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        self.events.append(("end", documents, kwargs))

    async def on_retriever_error(self, error: BaseException, **kwargs: Any) -> None:
        self.events.append(("error", error, kwargs))
