"""What derived memories quote, and contexts that say nothing twice."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from shared_core import MemoryBank
from shared_core.agents import associate
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.retrieval.associative import AssociativeRetriever
from shared_core.retrieval.context import render_context
from shared_core.retrieval.quoted import lines_by_source, says
from tests.conftest import OpenBank

LONG = "The tram was late again. I lost my umbrella on it. It was blue and a gift."
SHORT = "My sister wants it back."
SAID = {"p0": ("Bo", LONG), "p1": ("Ada", SHORT)}


def test_each_line_is_that_of_the_source_whose_sentences_it_holds() -> None:
    text = f"(8 May 2023) Bo: The tram was late again. It was blue and a gift.\n(9 May 2023) Ada: {SHORT}"
    assert lines_by_source(text, SAID) == [
        ("p0", "The tram was late again. It was blue and a gift."),
        ("p1", SHORT),
    ]
    invented = "Bo: I lost nothing.\n\nAda: My sister has it."
    assert lines_by_source(invented, SAID) == [
        (None, "Bo: I lost nothing."),
        (None, "Ada: My sister has it."),
    ]
    assert lines_by_source("The tram was late again.\nIt was blue and a gift.", SAID) == [
        ("p0", "The tram was late again.\nIt was blue and a gift.")
    ]


def test_says_every_sentence_white_space_aside() -> None:
    assert says("I lost   my umbrella.\nIt was blue.", "It was blue. I lost my umbrella.")
    assert not says("I lost my umbrella.", "I lost my umbrella. It was blue.")


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(
        Page(
            text=text,
            session=f"s{row}",
            speaker=who,
            id=f"p{row}",
            time=datetime(2023, 5, 8 + row, tzinfo=timezone.utc),
        )
        for row, (who, text) in enumerate(SAID.values())
    )
    return bank


def derived(bank: MemoryBank, text: str, *sources: str) -> str:
    memory = DerivedMemory(text=text, sources=sources)
    with bank.state.lock("cycle", wait=0.0) as lock:
        apply_repair(bank, Repair(operation="extract", reason="test", memories=(memory,)), lock=lock)
    return memory.id


def rendered(bank: MemoryBank, order: list[str], budget: int = 1000) -> list[str]:
    graph = AssociativeRetriever(bank).refresh().graph
    return render_context(graph, [graph.row_of[i] for i in order], budget, len).splitlines()


def test_a_quote_stands_where_it_was_said_and_its_page_replaces_it(bank: MemoryBank) -> None:
    extract = derived(bank, "(8 May 2023) Bo: I lost my umbrella on it.", "p0")
    joined = derived(bank, f"(8 May 2023) Bo: {LONG}\n(9 May 2023) Ada: {SHORT}", "p0", "p1")
    whole = ["(8 May 2023)", f"Bo: {LONG}", "(9 May 2023)", f"Ada: {SHORT}"]
    assert rendered(bank, [extract]) == ["(8 May 2023)", "Bo: I lost my umbrella on it."]
    for order in (["p0", "p1", extract, joined], [joined, "p1", extract], [extract, "p1", "p0"]):
        assert rendered(bank, order) == whole


def test_two_quotes_of_one_page_stand_together(bank: MemoryBank) -> None:
    one = derived(bank, "(8 May 2023) Bo: I lost my umbrella on it.", "p0")
    other = derived(bank, "(8 May 2023) Bo: The tram was late again.", "p0")
    assert rendered(bank, [one, other, one]) == [
        "(8 May 2023)",
        "Bo: I lost my umbrella on it.",
        "  The tram was late again.",
    ]


@pytest.mark.parametrize("budget", [20, 45, 60, 110, 140, 200])
def test_what_is_replaced_is_not_paid_twice(bank: MemoryBank, budget: int) -> None:
    extract = derived(bank, "(8 May 2023) Bo: I lost my umbrella on it.", "p0")
    shown = "\n".join(rendered(bank, [extract, "p0", "p1"], budget))
    assert len(shown) <= budget
    assert (LONG in shown) == (len(f"(8 May 2023)\nBo: {LONG}\n") <= budget)


def test_a_quote_takes_no_place_from_pages_in_a_context(bank: MemoryBank) -> None:
    associate(bank)
    before = AssociativeRetriever(bank).context("What became of the umbrella?")
    derived(bank, f"(8 May 2023) Bo: {LONG}\n(9 May 2023) Ada: {SHORT}", "p0", "p1")
    assert AssociativeRetriever(bank).context("What became of the umbrella?") == before
