"""DREAM memory for LangChain and LangGraph: it forgets poison and repairs itself between turns."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_dream.dream_node import DreamNode
    from langchain_dream.messages import pages_from_messages
    from langchain_dream.middleware import DreamMiddleware
    from langchain_dream.models import as_chat
    from langchain_dream.retriever import DreamRetriever

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = ["DreamMiddleware", "DreamNode", "DreamRetriever", "as_chat", "pages_from_messages"]

# langchain-core's own classes take most of a second to import, and DreamNode and DreamMiddleware need
# langgraph, an extra of its own: names load on first use
_HOMES = {
    "DreamMiddleware": "middleware",
    "DreamNode": "dream_node",
    "DreamRetriever": "retriever",
    "as_chat": "models",
    "pages_from_messages": "messages",
}

_EXTRAS = {
    "langchain": "langgraph",
    "langchain_chroma": "langchain",
    "langchain_core": "langchain",
    "langgraph": "langgraph",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        from shared_core.errors import MissingExtraError

        raise MissingExtraError(package, _EXTRAS[package]) from None
