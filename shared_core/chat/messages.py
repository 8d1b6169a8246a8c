"""What every adapter of a chat model needs: a schema said in words, and a stop string that is honoured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shared_core.chat.protocol import ChatMessage
from shared_core.errors import ConfigError


def with_schema(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None) -> list[ChatMessage]:
    """Return the messages with the schema asked for in the system message, which every model understands.

    Raises:
        ConfigError: There is no message.
    """
    if not messages:
        raise ConfigError("there are no messages: give at least one with role 'user'")
    if schema is None:
        return list(messages)
    wish = f"Reply with one JSON object and nothing else. It must fit this JSON schema: {json.dumps(schema)}"
    if messages[0].role == "system":
        return [ChatMessage("system", f"{messages[0].content}\n\n{wish}"), *messages[1:]]
    return [ChatMessage("system", wish), *messages]


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """Return the text before the first stop string, for models that do not stop by themselves."""
    ends = [at for mark in stop if mark and (at := text.find(mark)) >= 0]
    return text[: min(ends)] if ends else text
