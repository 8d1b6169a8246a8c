"""LangChain's own messages become pages, and storing them again stores nothing new."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_dream import pages_from_messages
from shared_core import MemoryBank, SentenceTransformerEmbedder
from shared_core.bank.conversation import ConversationMemory
from shared_core.errors import InvalidMemoryError

NOON = datetime(2024, 5, 8, 12, tzinfo=timezone.utc)
CALL = {"name": "search", "args": {}, "id": "c1"}
HISTORY = [
    SystemMessage("You are a bot.", id="m0"),
    HumanMessage("My dog is called Rex.", id="m1", name="Ada"),
    AIMessage("", tool_calls=[CALL], id="m2"),
    ToolMessage("no hits", tool_call_id="c1", id="m3"),
    AIMessage(
        [{"type": "reasoning", "reasoning": "secret"}, {"type": "text", "text": "Noted: Rex."}], id="m4"
    ),
]


def test_ids_names_and_what_is_left_out() -> None:
    pages = pages_from_messages(HISTORY, session="t1", time=NOON)
    assert [(page.id, page.stored_text()) for page in pages] == [
        ("m1", "(8 May 2024) Ada: My dog is called Rex."),
        ("m4", "(8 May 2024) assistant: Noted: Rex."),
    ]
    assert {page.session for page in pages} == {"t1"}


def test_tools_and_exchanges() -> None:
    assert [p.id for p in pages_from_messages(HISTORY, session="t", tools=True)] == ["m1", "m3", "m4"]
    (page,) = pages_from_messages(HISTORY, session="t", exchanges=True)
    assert (page.id, page.text) == ("m1", "My dog is called Rex.\nassistant: Noted: Rex.")


def test_images_chunks_and_other_kinds() -> None:
    image = {"type": "image", "url": "https://example.org/a.png"}
    given = [
        HumanMessage([image], id="a"),
        HumanMessage(["Look: ", {"type": "text", "text": "a cat"}, image], id="b"),
        AIMessageChunk("nice", id="c"),
        ChatMessage("by role", role="user", id="d"),
        ChatMessage("a narrator", role="narrator", id="e"),
        RemoveMessage(id="f"),
    ]
    assert [(page.id, page.text) for page in pages_from_messages(given, session="t")] == [
        ("b", "Look: a cat"),
        ("c", "nice"),
        ("d", "by role"),
    ]


def test_dicts_and_pairs_are_taken_and_other_things_refused() -> None:
    pages = pages_from_messages([{"role": "user", "content": "one"}, ("ai", "two")], session="t", start=0)
    assert [(page.id, page.speaker, page.text) for page in pages] == [
        ("t/0", "user", "one"),
        ("t/1", "assistant", "two"),
    ]
    for wrong in ([3], [{"role": "user"}], [("nobody", "x")]):
        with pytest.raises(InvalidMemoryError, match="takes for no message"):
            pages_from_messages(wrong, session="t")  # type: ignore[arg-type]


def test_storing_the_history_again_stores_what_is_new(
    bank: MemoryBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank.embedder = embedder
    memory = ConversationMemory(bank)
    memory.add_pages(pages_from_messages(HISTORY, session="t1", time=NOON))
    longer = [*HISTORY, HumanMessage("And my cat is Tom.", id="m5")]
    assert memory.add_pages(pages_from_messages(longer, session="t1", time=NOON)) == ["m1", "m4", "m5"]
    assert bank.ids() == ["m1", "m4", "m5"]
