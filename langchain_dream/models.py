"""Any LangChain chat model behind the core's chat protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from shared_core.chat import AdaptedChat, ChatMessage, ChatReply, cut_at_stop
from shared_core.errors import ConfigError

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


class LangChainChat(AdaptedChat):
    """A LangChain chat model behind the core's protocol; arguments and errors as in ``as_chat``."""

    def __init__(
        self, model: BaseChatModel, *, max_tokens: str | None = None, temperature: str | None = None
    ) -> None:
        if not isinstance(model, BaseChatModel):
            raise ConfigError(
                f"model is a {type(model).__name__}, not a LangChain chat model (BaseChatModel)"
            )
        super().__init__(max_tokens=max_tokens, temperature=temperature)
        self.model = model

    def _translate(self, messages: Sequence[ChatMessage]) -> list[BaseMessage]:
        return [_MESSAGES[message.role](content=message.content) for message in messages]

    def _ask(self, messages: list[Any], stop: Sequence[str], options: dict[str, Any]) -> BaseMessage:
        return self.model.invoke(messages, stop=list(stop) or None, **options)

    async def _aask(self, messages: list[Any], stop: Sequence[str], options: dict[str, Any]) -> BaseMessage:
        return await self.model.ainvoke(messages, stop=list(stop) or None, **options)

    def _reply(self, made: BaseMessage, stop: Sequence[str]) -> ChatReply:
        usage = getattr(made, "usage_metadata", None) or {}
        return ChatReply(
            text=cut_at_stop(str(made.text), stop),
            prompt_tokens=usage.get("input_tokens"),
            completion_tokens=usage.get("output_tokens"),
        )

    def _name(self) -> str:
        return type(self.model).__name__
