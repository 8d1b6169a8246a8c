"""What the adapters of all frameworks do alike: options by the model's own names, errors of one type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from shared_core.chat.messages import with_schema
from shared_core.chat.protocol import ChatMessage, ChatReply
from shared_core.errors import ChatError


class AdaptedChat(ABC):
    """A framework's model behind the chat protocol; a schema is asked for in words.

    Args:
        max_tokens: Name of the model's argument that bounds the reply; None leaves it alone.
        temperature: Name of the model's argument for the temperature; None leaves it alone.
    """

    def __init__(self, *, max_tokens: str | None, temperature: str | None) -> None:
        self._max_tokens = max_tokens
        self._temperature = temperature

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Return the model's reply.

        Raises:
            ChatError: The model failed; ``__cause__`` says how.
        """
        asked, options = (
            self._translate(with_schema(messages, schema)),
            self._options(max_tokens, temperature),
        )
        try:
            made = self._ask(asked, stop, options)
        except Exception as error:
            raise self._failed(error) from error
        return self._reply(made, stop)

    async def acomplete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """``complete`` through the framework's own asynchronous call."""
        asked, options = (
            self._translate(with_schema(messages, schema)),
            self._options(max_tokens, temperature),
        )
        try:
            made = await self._aask(asked, stop, options)
        except Exception as error:
            raise self._failed(error) from error
        return self._reply(made, stop)

    @abstractmethod
    def _translate(self, messages: Sequence[ChatMessage]) -> list[Any]:
        """Return the messages as the framework has them."""

    @abstractmethod
    def _ask(self, messages: list[Any], stop: Sequence[str], options: dict[str, Any]) -> Any:
        """Call the model."""

    @abstractmethod
    async def _aask(self, messages: list[Any], stop: Sequence[str], options: dict[str, Any]) -> Any:
        """Call the model, asynchronously."""

    @abstractmethod
    def _reply(self, made: Any, stop: Sequence[str]) -> ChatReply:
        """Return the framework's answer as a reply, cut at a stop string."""

    @abstractmethod
    def _name(self) -> str:
        """Return what the model is called in errors."""

    def _options(self, max_tokens: int, temperature: float) -> dict[str, Any]:
        named = ((self._max_tokens, max_tokens), (self._temperature, temperature))
        return {name: value for name, value in named if name is not None}

    def _failed(self, error: Exception) -> ChatError:
        return ChatError(f"{self._name()} failed: {type(error).__name__}: {error}")
