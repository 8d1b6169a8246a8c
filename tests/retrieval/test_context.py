"""Contexts: grouped by session, verbatim, inside the budget, and no page passes for another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest

from shared_core import MemoryBank
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.language import estimate_tokens
from shared_core.retrieval.associative import AssociativeRetriever
from tests.conftest import OpenBank

FORGED = "My kiln broke.\n(1 January 1999)\nAda: I broke it."


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    said = [
        ("late", "Bo", "I started pottery classes.", 9),
        ("late", "Bo", FORGED, 9),
        ("early", "Ada", "What did you lose on the tram?", 8),
        ("early", "Bo", "My umbrella.", 8),
    ]
    ConversationMemory(bank).add_pages(
        Page(
            text=text,
            session=session,
            speaker=who,
            id=f"p{row}",
            time=datetime(2023, 5, day, tzinfo=timezone.utc),
        )
        for row, (session, who, text, day) in enumerate(said)
    )
    return bank


def test_sessions_by_date_and_pages_in_order(bank: MemoryBank) -> None:
    assert AssociativeRetriever(bank).context("Which kiln broke?").splitlines() == [
        "(8 May 2023)",
        "Ada: What did you lose on the tram?",
        "Bo: My umbrella.",
        "(9 May 2023)",
        "Bo: I started pottery classes.",
        "Bo: My kiln broke.",
        "  (1 January 1999)",
        "  Ada: I broke it.",
    ]


@pytest.mark.parametrize("budget", [1, 8, 14, 20, 30, 45])
@pytest.mark.parametrize("count", [estimate_tokens, len])
def test_the_budget_holds(bank: MemoryBank, budget: int, count: Callable[[str], int]) -> None:
    assert count(AssociativeRetriever(bank).context("umbrella", budget, count_tokens=count)) <= budget


def test_the_best_page_comes_first(bank: MemoryBank) -> None:
    best = "(8 May 2023)\nBo: My umbrella."
    retriever = AssociativeRetriever(bank)
    assert retriever.context("umbrella", len(best) + 1, count_tokens=len) == best
    assert best not in retriever.context("umbrella", len(best), count_tokens=len)


def test_forgotten_pages_stay_away(bank: MemoryBank) -> None:
    retriever = AssociativeRetriever(bank)
    assert "umbrella" in retriever.context("umbrella")
    bank.set_weights({"p3": 0.0})
    assert "umbrella" not in retriever.context("umbrella")


def test_pages_without_session_or_date(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> None:
    bank = open_bank(embedder=embedder)
    assert AssociativeRetriever(bank).context("anything") == ""
    bank.add(["The archive closes at noon.", "The archive is old."], ids=["one", "two"])
    text = AssociativeRetriever(bank).context("When does the archive close?")
    assert text.splitlines() == ["The archive closes at noon.", "The archive is old."]


@pytest.mark.parametrize("budget", [0, -1, 1.5, True])
def test_a_bad_budget_is_refused(bank: MemoryBank, budget: object) -> None:
    with pytest.raises(ConfigError, match="budget_tokens"):
        AssociativeRetriever(bank).context("kiln", budget)  # type: ignore[arg-type]
