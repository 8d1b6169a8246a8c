"""Appendix I's story in our own words: an allergy, a taste for baking, and a dream between."""

from __future__ import annotations

import pytest

from shared_core import BankRetriever, MemoryBank
from shared_core.agents import CycleReport, DreamCycle
from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.derived import is_derived, sources_of
from shared_core.embedding import SentenceTransformerEmbedder
from tests.agents.nut_story import ALLERGY, BAKING, SNACK, pages
from tests.conftest import OpenBank


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages())
    return bank


def told(bank: MemoryBank, question: str = SNACK) -> set[str]:
    """Return the ids of the pages that the five best memories are or quote."""
    hits = BankRetriever(bank, track_access=False).search(question, k=5, search_type="similarity")
    return {hit.id for hit in hits} | {source for hit in hits for source in sources_of(hit.metadata)}


def test_the_snack_question_hears_of_the_allergy_after_a_dream(bank: MemoryBank) -> None:
    story = pages()
    assert (len(story), len({page.session for page in story})) == (50, 9)
    assert ALLERGY not in told(bank)

    report = DreamCycle(bank).run()

    (repair,) = [one for one in report.repairs if set(one.proposal.targets) == {ALLERGY, BAKING}]
    assert repair.proposal.operation == "synthesize"
    assert repair.proposal.f1_before < 0.7 < repair.proposal.f1_after
    assert {ALLERGY, BAKING} <= told(bank)
    said = {page.id: page.text for page in story}
    assert repair.proposal.text is not None
    assert all(said[one] in repair.proposal.text for one in (ALLERGY, BAKING))

    assert repair.run_id is not None
    bank.undo(repair.run_id)
    assert ALLERGY not in told(bank)
    assert report.run_id is not None
    bank.undo(report.run_id)
    assert ALLERGY not in told(bank)
    assert bank.weights([page.id for page in story]).tolist() == [1.0] * 50


def test_a_dry_run_proposes_what_a_run_does(bank: MemoryBank) -> None:
    before = bank.state.version()
    dry = DreamCycle(bank).run(dry_run=True)
    assert (dry.run_id, bank.state.version()) == (None, before)
    assert not any(is_derived(memory_id) for memory_id in bank.ids())
    wet = DreamCycle(bank).run()
    assert [one.proposal for one in dry.repairs] == [one.proposal for one in wet.repairs]
    assert _without_time(dry) == _without_time(wet)


def _without_time(report: CycleReport) -> list[dict[str, object]]:
    return [{**vars(one), "seconds": 0.0} for one in report.rounds]
