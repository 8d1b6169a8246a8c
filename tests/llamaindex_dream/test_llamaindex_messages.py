"""LlamaIndex's own chat messages become pages, and storing them again stores nothing new."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock

from llamaindex_dream import pages_from_messages
from shared_core import MemoryBank, SentenceTransformerEmbedder
from shared_core.bank.conversation import ConversationMemory
from shared_core.errors import InvalidMemoryError

NOON = datetime(2024, 5, 8, 12, tzinfo=timezone.utc)
HISTORY = [
    ChatMessage("You are a bot.", role=MessageRole.SYSTEM),
    ChatMessage(
        "My dog is called Rex.", role=MessageRole.USER, additional_kwargs={"name": "Ada", "id": "u1"}
    ),
    ChatMessage(role=MessageRole.ASSISTANT, content=None),
    ChatMessage("no hits", role=MessageRole.TOOL, additional_kwargs={"name": "search", "tool_call_id": "c"}),
    ChatMessage(
        role=MessageRole.ASSISTANT,
        blocks=[
            TextBlock(text="Noted:"),
            ImageBlock(url="https://example.org/a.png"),
            TextBlock(text="Rex."),
        ],
    ),
]


def test_ids_names_and_what_is_left_out() -> None:
    pages = pages_from_messages(HISTORY, session="t1", time=NOON, start=0)
    assert [(page.id, page.stored_text().replace("\n", " ")) for page in pages] == [
        ("u1", "(8 May 2024) Ada: My dog is called Rex."),
        ("t1/4", "(8 May 2024) assistant: Noted: Rex."),
    ]


def test_tools_and_exchanges() -> None:
    tools = pages_from_messages(HISTORY, session="t", tools=True, start=0)
    assert [(page.id, page.speaker) for page in tools] == [
        ("u1", "Ada"),
        ("t/3", "search"),
        ("t/4", "assistant"),
    ]
    (page,) = pages_from_messages(HISTORY, session="t", exchanges=True)
    assert page.text.replace("\n", " ") == "My dog is called Rex. assistant: Noted: Rex."


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidMemoryError, match="str in messages"):
        pages_from_messages(["hello"], session="t")  # type: ignore[list-item]


def test_storing_the_history_again_stores_what_is_new(
    bank: MemoryBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank.embedder = embedder
    memory = ConversationMemory(bank)
    memory.add_pages(pages_from_messages(HISTORY, session="t1", time=NOON, start=0))
    longer = [*HISTORY, ChatMessage("And my cat is Tom.", role=MessageRole.USER)]
    memory.add_pages(pages_from_messages(longer, session="t1", time=NOON, start=0))
    assert bank.ids() == ["u1", "t1/4", "t1/5"]


def test_neither_adapter_imports_the_other_framework() -> None:
    for package, other in (("llamaindex_dream", "langchain"), ("langchain_dream", "llama_index")):
        code = f"import sys, {package}; print(*[n for n in sys.modules if n.startswith('{other}')])"
        found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert not found.stdout.split(), f"{package} imports {found.stdout}"
