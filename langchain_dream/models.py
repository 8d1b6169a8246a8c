"""Any LangChain chat model behind the core's chat protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from shared_core.chat import ChatMessage, ChatReply, cut_at_stop, with_schema
from shared_core.errors import ChatError, ConfigError

_MESSAGES: dict[str, type[BaseMessage]] = {
    "system": SystemMessage,
    "user": HumanMessage,
    "assistant": AIMessage,
}


def as_chat(
    model: BaseChatModel, *, max_tokens: str | None = None, temperature: str | None = None
) -> LangChainChat:
    """Return a LangChain chat model as the core's ``ChatModel``, for ``dream eval agent`` and LLM agents.

    Providers name the bound of the reply differently and some refuse a temperature, so the model keeps its
    own settings unless you say under which names it takes them: ``as_chat(model, max_tokens="max_tokens")``.

    Args:
        model: Any chat model, such as ``ChatOpenAI(model=..., temperature=0)``.
        max_tokens: Name of the model's argument that bounds the reply.
        temperature: Name of the model's argument for the temperature.

    Raises:
        ConfigError: ``model`` is no LangChain chat model.
    """
    return LangChainChat(model, max_tokens=max_tokens, temperature=temperature)


class LangChainChat:
    """A LangChain chat model behind the core's protocol; arguments and errors as in ``as_chat``."""

    def __init__(
        self, model: BaseChatModel, *, max_tokens: str | None = None, temperature: str | None = None
    ) -> None:
        if not isinstance(model, BaseChatModel):
            raise ConfigError(
                f"model is a {type(model).__name__}, not a LangChain chat model (BaseChatModel)"
            )
        self.model = model
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
        """Return the model's reply; a schema is asked for in words.

        Raises:
            ChatError: The model failed; ``__cause__`` says how.
        """
        asked, options = _translate(messages, schema), self._options(max_tokens, temperature)
        try:
            made = self.model.invoke(asked, stop=list(stop) or None, **options)
        except Exception as error:
            raise self._failed(error) from error
        return _reply(made, stop)

    async def acomplete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """``complete`` through the model's own ``ainvoke``."""
        asked, options = _translate(messages, schema), self._options(max_tokens, temperature)
        try:
            made = await self.model.ainvoke(asked, stop=list(stop) or None, **options)
        except Exception as error:
            raise self._failed(error) from error
        return _reply(made, stop)

    def _options(self, max_tokens: int, temperature: float) -> dict[str, Any]:
        named = ((self._max_tokens, max_tokens), (self._temperature, temperature))
        return {name: value for name, value in named if name is not None}

    def _failed(self, error: Exception) -> ChatError:
        return ChatError(f"{type(self.model).__name__} failed: {type(error).__name__}: {error}")


def _translate(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None) -> list[BaseMessage]:
    return [_MESSAGES[message.role](content=message.content) for message in with_schema(messages, schema)]


def _reply(made: BaseMessage, stop: Sequence[str]) -> ChatReply:
    text: Any = made.text  # a method before langchain-core 1.0
    usage = getattr(made, "usage_metadata", None) or {}
    return ChatReply(
        text=cut_at_stop(str(text if isinstance(text, str) else text()), stop),
        prompt_tokens=usage.get("input_tokens"),
        completion_tokens=usage.get("output_tokens"),
    )
