"""Importing the adapter is light, and gives exactly what it promises."""

from __future__ import annotations

import subprocess
import sys

import langchain_dream

HEAVY = (
    "chromadb",
    "torch",
    "sqlalchemy",
    "llama_index",
    "tantivy",
    "sentence_transformers",
    "langgraph",
    "langchain",
)


def fresh(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_public_names() -> None:
    assert "DreamRetriever" in langchain_dream.__all__


def test_heavy_packages_are_not_imported() -> None:
    loaded = fresh("import sys, langchain_dream; print(*{name.partition('.')[0] for name in sys.modules})")
    assert "langchain_core" in loaded.split()
    assert not set(HEAVY) & set(loaded.split())


def test_little_time_beyond_langchain_core() -> None:
    # naming the class loads what the bare package puts off
    program = (
        "import time; from langchain_core.vectorstores import VectorStoreRetriever;"
        "started = time.perf_counter(); import langchain_dream; print(time.perf_counter() - started)"
    )
    assert min(float(fresh(program)) for _ in range(3)) < 0.3
