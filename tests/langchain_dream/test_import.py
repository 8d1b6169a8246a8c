"""Importing the adapter is light, and gives exactly what it promises."""

from __future__ import annotations

import subprocess
import sys

import langchain_dream

HEAVY = {
    "chromadb",
    "torch",
    "sqlalchemy",
    "llama_index",
    "tantivy",
    "sentence_transformers",
    "langgraph",
    "langchain",
}


def loaded_by(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after some code."""
    program = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return set(done.stdout.split())


def test_public_names() -> None:
    assert "DreamRetriever" in langchain_dream.__all__


def test_the_bare_package_loads_nothing_of_others() -> None:
    added = loaded_by("import langchain_dream") - loaded_by("pass")
    packages = {name.partition(".")[0] for name in added} - sys.stdlib_module_names
    assert packages == {"langchain_dream"}


def test_the_retriever_loads_what_its_base_class_does_and_our_own() -> None:
    added = loaded_by("from langchain_dream import DreamRetriever") - loaded_by(
        "from langchain_core.vectorstores import VectorStoreRetriever"
    )
    packages = {name.partition(".")[0] for name in added} - sys.stdlib_module_names
    assert packages == {"langchain_dream", "shared_core"}
    assert not {"shared_core.bank", "shared_core.retrieval", "shared_core.dynamics"} & added


def test_heavy_packages_are_not_imported_by_any_name_but_those_that_run_graphs() -> None:
    code = "from langchain_dream import DreamRetriever, as_chat, pages_from_messages"
    # where transformers is there, langchain-core's first releases load it themselves
    added = loaded_by(code) - loaded_by("import langchain_core.language_models.chat_models")
    assert not HEAVY & {name.partition(".")[0] for name in added}
