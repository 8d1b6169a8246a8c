"""Opens a chat model by the name that a command line gives."""

from __future__ import annotations

import importlib
from typing import Any

from shared_core.chat.protocol import ChatModel
from shared_core.chat.smollm2 import SmolLM2Chat
from shared_core.errors import ConfigError


def open_chat(name: str) -> ChatModel:
    """Return ``smollm2``, or the object at an import path ``package.module:object``.

    Importing the path runs the module's code: it is the user's own choice, like ``python -m``.

    Raises:
        ConfigError: Neither, the module cannot be imported, or the object is no chat model.
        MissingExtraError: smollm2 is asked for and the extra ``lm`` is not installed.
    """
    if name == "smollm2":
        return SmolLM2Chat()
    module, colon, attribute = name.partition(":")
    if not (colon and module and attribute):
        raise ConfigError(f"model {name!r} is neither smollm2 nor an import path package.module:object")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot open the model {name!r}: {error}") from error
    if isinstance(found, type) or not isinstance(found, ChatModel):
        raise ConfigError(
            f"{name!r} is a {_kind(found)}, not an object with complete and acomplete: wrap a LangChain "
            "model with langchain_dream.as_chat(model), a LlamaIndex one with llamaindex_dream.as_chat(model)"
        )
    return found


def _kind(found: Any) -> str:
    return f"class ({found.__name__})" if isinstance(found, type) else type(found).__name__
