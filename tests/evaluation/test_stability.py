"""Cycle after cycle over one conversation: what is counted, and that it can be seen to fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.graph import read_graph
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo.loader import Conversation, Question, Turn
from shared_core.evaluation.locomo.stability import count_unsupported, measure_stability, rare_facts
from tests.agents.nut_story import ALLERGY, START, pages
from tests.conftest import OpenBank


def conversation() -> Conversation:
    turns = [
        Turn(
            id=page.id,
            session=int(page.session[1:]),
            date=f"10:00 am on {START.day + int(page.session[1:])} January, 2024",
            speaker="Marlene",
            text=page.text,
        )
        for page in pages()
    ]
    asked = Question(text="Which allergy does Marlene have?", answer="nuts", category=1, evidence=(ALLERGY,))
    return Conversation(
        name="nuts", speakers=("Marlene", "Robot"), turns=tuple(turns), questions=(asked,), skipped=()
    )


def test_three_cycles_neither_invent_nor_lose(embedder: SentenceTransformerEmbedder) -> None:
    before, first, third = measure_stability(conversation(), embedder, (1, 3))
    assert [one.cycles for one in (before, first, third)] == [0, 1, 3]
    assert before.nodes == 50 < first.nodes
    assert third.growth == third.nodes / first.nodes - 1
    assert (first.unsupported, third.unsupported) == (0, 0)
    assert before.rare_facts > 5
    assert before.rare_retention == 1.0
    assert third.rare_retention >= 0.9
    assert third.recall_10 >= before.recall_10 > 0
    assert {"cycles", "nodes", "recall@10"} <= third.to_dict().keys()


def test_an_invented_fact_is_counted(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> None:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages()[:4])
    graph = read_graph(bank)
    quoting = replace(graph, sources={3: (2,)})
    assert count_unsupported(replace(graph, sources={})) == 0
    # page 3 names Tobias, and page 2, which it would quote here, does not
    assert count_unsupported(quoting) >= 1


def test_a_rare_fact_stands_in_one_page(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> None:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages())
    found = {fact: page for page, fact in rare_facts(read_graph(bank))}
    assert found["bruno"] == "s4-2"
    assert "ruben" not in found


def test_bad_counts_are_refused(embedder: SentenceTransformerEmbedder) -> None:
    for wrong in ((), (0, 1)):
        with pytest.raises(ConfigError, match="cycles"):
            measure_stability(conversation(), embedder, wrong)
