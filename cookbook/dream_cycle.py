"""A memory asks itself, repairs what it cannot find, and one undo takes every repair back.

Run it from an empty directory: python dream_cycle.py
It needs: pip install 'dream-memory[offline]'
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from shared_core import BankRetriever, MemoryBank, packaged_embedder
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.bank.conversation import ConversationMemory, Page

# who won is buried in a page about other things; where the keys are is scattered over two days
TALK = {
    "monday": [
        "My doctor says milk makes me ill: I am lactose intolerant, so no cream and no cheese for me.",
        "The cat sleeps on the piano all day.",
        "I lost the key of my bicycle lock at the station.",
        "Our choir sings in the old mill in June.",
    ],
    "wednesday": [
        "The tram broke down on the bridge. The spare key lies under the blue flower pot. Otto won at chess.",
        "Otto keeps the key of the cellar in his desk.",
        "Otto wants to teach me chess on Sundays.",
        "The tram was late again and I walked home in the rain.",
    ],
    "friday": [
        "For my birthday dinner I want a gratin with lots of cheese and cream.",
        "The tulips on the balcony look lovely in the evening sun.",
        "I read until three because I could not sleep.",
        "The conductor wants us to sing louder.",
    ],
}
QUESTIONS = ("Who won the game of chess?", "Which keys did I lose and which lie under the flower pot?")

bank = MemoryBank.open("./talks", "talks", create=True, embedder=packaged_embedder())
monday = datetime(2024, 3, 4, 18, tzinfo=timezone.utc)
ConversationMemory(bank).add_pages(
    Page(text=text, session=day, speaker="Vera", time=monday + timedelta(days=2 * late, minutes=minute))
    for late, (day, texts) in enumerate(TALK.items())
    for minute, text in enumerate(texts)
)
retriever = BankRetriever(bank)


def best(when: str) -> None:
    """Print the memory that each question finds first."""
    for question in QUESTIONS:
        (hit,) = retriever.search(question, k=1)
        print(f"{when}: {question} -> {' | '.join(hit.text.splitlines())}")


best("before")

# groundwork=False: only the rounds, which ask, diagnose, repair and verify
report = DreamCycle(bank, config=DreamConfig(groundwork=False, seed=2)).run()
for repair in report.repairs:
    offer = repair.proposal
    print(f"{offer.operation}: {offer.query} F1 {offer.f1_before:.2f} to {offer.f1_after:.2f}")
    print(f"  because {offer.reason}")
best("after")

bank.undo(report.run_id)  # or one repair alone: bank.undo(report.repairs[0].run_id)
best("undone")
