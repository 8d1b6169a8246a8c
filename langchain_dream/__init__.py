"""DREAM memory for LangChain and LangGraph: it forgets poison and repairs itself between turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_dream.messages import pages_from_messages
from langchain_dream.models import as_chat
from langchain_dream.retriever import DreamRetriever

if TYPE_CHECKING:
    from langchain_dream.dream_node import DreamNode
    from langchain_dream.middleware import DreamMiddleware

__all__ = ["DreamMiddleware", "DreamNode", "DreamRetriever", "as_chat", "pages_from_messages"]


def __getattr__(name: str) -> Any:
    # both need langgraph, which takes a second to import and is an extra of its own
    if name == "DreamNode":
        from langchain_dream.dream_node import DreamNode

        return DreamNode
    if name == "DreamMiddleware":
        from langchain_dream.middleware import DreamMiddleware

        return DreamMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
