"""The names users import; a change here is a change of the public interface."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

PUBLIC = {
    "shared_core": [
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
    ],
    "langchain_dream": ["DreamMiddleware", "DreamNode", "DreamRetriever", "as_chat", "pages_from_messages"],
    "llamaindex_dream": [
        "CoreEmbedding",
        "DreamChromaRetriever",
        "DreamMemoryBlock",
        "DreamPostprocessor",
        "as_chat",
        "as_embedder",
        "pages_from_messages",
        "record_feedback",
    ],
}


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == PUBLIC[package]
    for name in PUBLIC[package]:
        assert getattr(module, name).__doc__, f"{package}.{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error() -> None:
    import shared_core

    with pytest.raises(AttributeError, match="Nothing"):
        shared_core.Nothing  # noqa: B018


def test_every_error_is_a_dream_error() -> None:
    errors = importlib.import_module("shared_core.errors")
    for name in dir(errors):
        found = getattr(errors, name)
        if isinstance(found, type) and issubclass(found, Exception) and found.__module__ == errors.__name__:
            assert issubclass(found, errors.DreamError)


@pytest.mark.parametrize(
    ("package", "name", "absent", "extra"),
    [
        ("langchain_dream", "DreamRetriever", "langchain_core", "langchain"),
        ("langchain_dream", "DreamMiddleware", "langchain", "langgraph"),
        ("llamaindex_dream", "DreamPostprocessor", "llama_index", "llamaindex"),
    ],
)
def test_a_missing_framework_is_named_with_its_extra(
    package: str, name: str, absent: str, extra: str
) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{absent!r}] = None\n"
        "from shared_core.errors import MissingExtraError\n"
        "try:\n"
        f"    from {package} import {name}\n"
        "except MissingExtraError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'dream-memory[{extra}]'" in done.stdout, done.stderr
