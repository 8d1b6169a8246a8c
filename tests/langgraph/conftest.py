"""A bank with MiniLM, embedded or on a Chroma server, and nodes whose schedulers end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_dream import DreamNode
from shared_core import MemoryBank
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.scheduling import DreamScheduler
from tests.conftest import OpenBank
from tests.langgraph.talk import AT_ONCE, NEVER

MakeNode = Callable[..., DreamNode]


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> Iterator[MemoryBank]:
    bank = open_bank(embedder=embedder)
    yield bank
    DreamScheduler.shared(bank).close(20.0)


@pytest.fixture(params=["embedded", "server"])
def any_bank(
    request: pytest.FixtureRequest, open_bank: OpenBank, embedder: SentenceTransformerEmbedder, tmp_path: Path
) -> Iterator[MemoryBank]:
    options: dict[str, Any] = {"embedder": embedder}
    if request.param == "server":
        options["state_url"] = f"sqlite:///{tmp_path / 'state.sqlite3'}"
        bank = open_bank(request.getfixturevalue("chroma_server"), **options)
    else:
        bank = open_bank(**options)
    yield bank
    DreamScheduler.shared(bank).close(20.0)


@pytest.fixture
def make_node(bank: MemoryBank) -> MakeNode:
    """Make nodes on the test's bank: no debounce and no triggers unless it says so."""

    def make(**options: Any) -> DreamNode:
        return DreamNode(options.pop("bank", bank), **{"triggers": NEVER, "config": AT_ONCE, **options})

    return make
