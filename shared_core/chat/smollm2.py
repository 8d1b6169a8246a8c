"""SmolLM2-135M-Instruct as a chat model: real, offline, deterministic at temperature 0, and weak.

With 135 million parameters it holds a format poorly and reasons hardly at all. It shows that a pipeline runs
with a real model; it says little about what a capable one would do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from shared_core.chat.messages import cut_at_stop, with_schema
from shared_core.chat.packaged import load_llama
from shared_core.chat.protocol import ChatMessage, ChatReply
from shared_core.errors import ChatContextError, ChatError

CONTEXT = 8192
"""Tokens of prompt and reply together; what the model was trained for."""


class SmolLM2Chat:
    """The packaged SmolLM2 behind the chat protocol. One call at a time; others wait.

    Args:
        context: Tokens of prompt and reply together.
        threads: CPU threads.
        seed: Of sampling, where the temperature is not 0.

    Raises:
        MissingExtraError: The extra ``lm`` is not installed.
    """

    def __init__(self, *, context: int = CONTEXT, threads: int = 1, seed: int = 0) -> None:
        self._model: Any = load_llama(context=context, threads=threads, seed=seed)
        self._context = context
        self._seed = seed
        self._one_at_a_time = threading.Lock()

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Return the reply; a schema is asked for in words and enforced by a grammar.

        Raises:
            ChatContextError: The messages and ``max_tokens`` do not fit the context.
            ChatError: llama.cpp failed.
        """
        asked = [_encodable(message) for message in with_schema(messages, schema)]
        form = None if schema is None else {"type": "json_object", "schema": dict(schema)}
        try:
            with self._one_at_a_time:
                # what an earlier prompt left in the cache would change the rounding of this one
                self._model.reset()
                made = self._model.create_chat_completion(
                    asked,
                    max_tokens=max_tokens,
                    temperature=temperature,
                    stop=list(stop),
                    seed=self._seed,
                    response_format=form,
                )
        except ValueError as error:
            if "context window" in str(error):
                raise ChatContextError(
                    f"the messages do not fit SmolLM2's context of {self._context} tokens: {error}"
                ) from error
            raise ChatError(f"SmolLM2 failed: {error}") from error
        except RuntimeError as error:
            raise ChatError(f"SmolLM2 failed: {error}") from error
        return ChatReply(
            text=cut_at_stop(made["choices"][0]["message"]["content"] or "", stop),
            prompt_tokens=int(made["usage"]["prompt_tokens"]),
            completion_tokens=int(made["usage"]["completion_tokens"]),
        )

    async def acomplete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """``complete`` in a thread."""
        return await asyncio.to_thread(
            self.complete, messages, max_tokens=max_tokens, temperature=temperature, stop=stop, schema=schema
        )


def _encodable(message: ChatMessage) -> dict[str, str]:
    # no tokenizer accepts lone surrogates
    return {"role": message.role, "content": message.content.encode("utf-8", "replace").decode("utf-8")}
