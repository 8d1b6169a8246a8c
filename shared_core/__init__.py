"""The science of a memory that forgets poison and repairs itself; knows no agent framework."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared_core.bank import BankState, BankStatus, Explanation, MemoryBank, Run, Suspect, SweepReport
    from shared_core.bank.conversation import ConversationMemory, Page
    from shared_core.config import (
        AssociativeConfig,
        ConsolidationConfig,
        CouplingConfig,
        ForgettingConfig,
        RetrievalConfig,
    )
    from shared_core.dynamics.terms import BankView, TermEvidence, TermResult, activation_term
    from shared_core.embedding import SentenceTransformerEmbedder, packaged_embedder
    from shared_core.errors import DreamError
    from shared_core.retrieval import BankRetriever, CrossEncoderReranker
    from shared_core.retrieval.associative import AssociativeRetriever
    from shared_core.telemetry import disable_telemetry, enable_telemetry
    from shared_core.types import Embedder, Hit, Memory, MemoryState, Reranker

__version__ = "0.1.0"

# an application that sets up no logging is told nothing, warnings included
logging.getLogger(__name__).addHandler(logging.NullHandler())

# chromadb and sqlalchemy take most of a second to import, so names load on first use
_HOMES = {
    "shared_core.bank": (
        "BankState",
        "BankStatus",
        "Explanation",
        "MemoryBank",
        "Run",
        "Suspect",
        "SweepReport",
    ),
    "shared_core.bank.conversation": ("ConversationMemory", "Page"),
    "shared_core.config": (
        "AssociativeConfig",
        "ConsolidationConfig",
        "CouplingConfig",
        "ForgettingConfig",
        "RetrievalConfig",
    ),
    "shared_core.dynamics.terms": ("BankView", "TermEvidence", "TermResult", "activation_term"),
    "shared_core.embedding": ("SentenceTransformerEmbedder", "packaged_embedder"),
    "shared_core.errors": ("DreamError",),
    "shared_core.retrieval": ("BankRetriever", "CrossEncoderReranker"),
    "shared_core.retrieval.associative": ("AssociativeRetriever",),
    "shared_core.telemetry": ("disable_telemetry", "enable_telemetry"),
    "shared_core.types": ("Embedder", "Hit", "Memory", "MemoryState", "Reranker"),
}

__all__ = [
    "AssociativeConfig",
    "AssociativeRetriever",
    "BankRetriever",
    "BankState",
    "BankStatus",
    "BankView",
    "ConsolidationConfig",
    "ConversationMemory",
    "CouplingConfig",
    "CrossEncoderReranker",
    "DreamError",
    "Embedder",
    "Explanation",
    "ForgettingConfig",
    "Hit",
    "Memory",
    "MemoryBank",
    "MemoryState",
    "Page",
    "Reranker",
    "RetrievalConfig",
    "Run",
    "SentenceTransformerEmbedder",
    "Suspect",
    "SweepReport",
    "TermEvidence",
    "TermResult",
    "activation_term",
    "disable_telemetry",
    "enable_telemetry",
    "packaged_embedder",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
