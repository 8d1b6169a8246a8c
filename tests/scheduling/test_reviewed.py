"""A reviewed dream writes nothing that was not accepted, and what was accepted as it was proposed."""

from __future__ import annotations

from typing import Any

import pytest

from shared_core import MemoryBank
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.errors import BankLockedError
from shared_core.scheduling import APPROVED, DreamRequest, ReviewedDream

SMALL = DreamConfig(rounds=1, partitions=1, probes=3, repairs=1)
SAID = (
    "The kiln is fired on Mondays. It takes a day to cool.",
    "Ada Lindqvist drinks jasmine tea. She dislikes coffee.",
    "Noor plays the double bass.",
)


@pytest.fixture
def told(bank: MemoryBank) -> MemoryBank:
    pages = [Page(text=text, session=f"s{at}", speaker="user", id=f"p{at}") for at, text in enumerate(SAID)]
    ConversationMemory(bank).add_pages(pages)
    return bank


@pytest.fixture
def dream(told: MemoryBank) -> ReviewedDream:
    return ReviewedDream(told, cycle=DreamCycle(told, config=SMALL))


def request(*reasons: str, kind: Any = "cycle") -> DreamRequest:
    return DreamRequest(kind=kind, reasons=list(reasons))


def repairs(bank: MemoryBank) -> list[str]:
    return sorted(run.report["operation"] for run in bank.runs() if run.kind == "repair")


def test_it_proposes_once_and_writes_nothing(told: MemoryBank, dream: ReviewedDream) -> None:
    report = dream(request("new_pages", kind="both"))
    assert report["cycle"]["dry_run"]
    assert report["sweep"]["memories"] == 3
    offered = dream.offer()
    assert [repair["operation"] for repair in offered][:1] == ["extract"]
    assert dream.offer() == []
    assert repairs(told) == []


def test_accepted_repairs_are_made_though_pages_came_in(told: MemoryBank, dream: ReviewedDream) -> None:
    dream(request("new_pages"))
    offered = dream.offer()
    ConversationMemory(told).add_pages([Page(text="A new page. It changes all ids.", session="s9", id="p9")])
    dream.decide([one["id"] for one in offered], [offered[0]["id"]])
    report = dream(request(APPROVED))
    assert [one["id"] for one in report["cycle"]["repairs"]] == [offered[0]["id"]]
    assert repairs(told) == ["extract"]
    assert {key.memory_id for key in told.state.retrieval_keys()} <= {"p0", "p1", "p2"}
    # done once, whatever is decided again
    dream.decide([one["id"] for one in offered], [offered[0]["id"]])
    assert dream(request(APPROVED))["cycle"] is None


def test_what_another_process_proposed_is_looked_for(told: MemoryBank, dream: ReviewedDream) -> None:
    dream(request("new_pages"))
    offered = dream.offer()
    other = ReviewedDream(told, cycle=DreamCycle(told, config=SMALL))
    other.decide([one["id"] for one in offered], [offered[0]["id"]])
    assert [one["id"] for one in other(request(APPROVED))["cycle"]["repairs"]] == [offered[0]["id"]]
    assert repairs(told) == ["extract"]


def test_a_held_bank_loses_no_decision(told: MemoryBank, dream: ReviewedDream) -> None:
    dream(request("new_pages"))
    offered = [one["id"] for one in dream.offer()]
    dream.decide(offered, offered)
    with told.state.lock("somebody else's"), pytest.raises(BankLockedError):
        dream(request(APPROVED))
    dream(request(APPROVED))
    assert len(repairs(told)) == len(offered)


def test_a_cancelled_dream_keeps_what_is_left_for_the_next(told: MemoryBank, dream: ReviewedDream) -> None:
    dream(request("new_pages"))
    offered = [one["id"] for one in dream.offer()]
    dream.decide(offered, offered)
    stopped = request(APPROVED)
    stopped.cancelled.set()
    assert dream(stopped)["stopped_by"] == "cancelled"
    assert repairs(told) == []
    dream(request(APPROVED))
    assert len(repairs(told)) == len(offered)


def test_equal_if_they_do_the_same(told: MemoryBank, dream: ReviewedDream) -> None:
    assert ReviewedDream(told) == ReviewedDream(told)
    assert ReviewedDream(told) != dream
    assert dream != "a dream"
