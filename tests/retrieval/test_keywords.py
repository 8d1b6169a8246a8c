"""The keyword index of a bank stays in step with the bank, whoever writes."""

from __future__ import annotations

import numpy as np

from shared_core import MemoryBank
from shared_core.retrieval.keywords import KeywordSearch
from tests.conftest import unit_rows

TEXTS = ["red apple", "green apple pie", "blue sky", "apple"]


def filled(bank: MemoryBank, rng: np.random.Generator) -> KeywordSearch:
    bank.add(TEXTS, ids=list("abcd"), embeddings=unit_rows(rng, 4, 4))
    return KeywordSearch(bank)


def test_ranks_every_text_that_shares_a_word(bank: MemoryBank, rng: np.random.Generator) -> None:
    keywords = filled(bank, rng)
    assert keywords.ranking("apple") == ["d", "a", "b"]
    assert keywords.ranking("nothing here") == []
    assert keywords.ranking("  ") == []


def test_empty_bank(bank: MemoryBank) -> None:
    assert KeywordSearch(bank).ranking("apple") == []


def test_takes_up_additions_and_removals(bank: MemoryBank, rng: np.random.Generator) -> None:
    keywords = filled(bank, rng)
    watch = bank.watch()
    keywords.ranking("apple")
    bank.add(["crab apple"], ids=["e"], embeddings=unit_rows(rng, 1, 4))
    bank.content.collection.delete(ids=["d"])
    keywords.update(watch.poll())
    assert set(keywords.ranking("apple")) == {"a", "b", "e"}


def test_an_update_before_the_first_search_builds_nothing(bank: MemoryBank, rng: np.random.Generator) -> None:
    keywords = filled(bank, rng)
    watch = bank.watch()
    bank.add(["crab apple"], ids=["e"], embeddings=unit_rows(rng, 1, 4))
    keywords.update(watch.poll())
    assert "e" in keywords.ranking("crab")


def test_our_own_rewriting_and_its_undo_are_seen(bank: MemoryBank, rng: np.random.Generator) -> None:
    keywords = filled(bank, rng)
    assert keywords.ranking("sky") == ["c"]
    run = bank.update("c", "deep sea", embedding=unit_rows(rng, 1, 4)[0])
    assert keywords.ranking("sky") == []
    assert keywords.ranking("sea") == ["c"]
    bank.undo(run.run_id)
    assert keywords.ranking("sky") == ["c"]


def test_foreign_rewriting_is_seen_after_reload(bank: MemoryBank, rng: np.random.Generator) -> None:
    keywords = filled(bank, rng)
    keywords.ranking("sky")
    bank.content.collection.update(ids=["c"], documents=["deep sea"], embeddings=[[1.0, 0, 0, 0]])
    keywords.reload()
    assert keywords.ranking("sea") == ["c"]
