"""Chat models that answer as a test says, and remember what they were asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from shared_core.chat import ChatMessage, ChatReply


class ScriptedChat:
    """Answers with the replies in turn, the last one for ever; raises exceptions, asks functions."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[list[ChatMessage]] = []
        self.options: list[dict[str, Any]] = []

    def complete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        self.asked.append(list(messages))
        self.options.append(options)
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        if isinstance(reply, BaseException):
            raise reply
        if callable(reply):
            reply = reply(messages)
        return ChatReply(text=reply if isinstance(reply, str) else json.dumps(reply))

    async def acomplete(self, messages: Sequence[ChatMessage], **options: Any) -> ChatReply:
        return self.complete(messages, **options)


def shown(messages: Sequence[ChatMessage]) -> dict[str, str]:
    """Return the pages that a prompt shows, by their names, as a model would read them."""
    (user,) = [message.content for message in messages[:2] if message.role == "user"]
    return {name: json.loads(text) for name, text in re.findall(r'^(p\d+): (".*")$', user, re.MULTILINE)}


def obedient(wish: Callable[[dict[str, str]], Any]) -> Callable[[Sequence[ChatMessage]], str]:
    """Return a reply that is made from the pages shown."""
    return lambda messages: json.dumps(wish(shown(messages)))
