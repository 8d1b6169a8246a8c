"""The one error family: every message quotes what was given, what was expected, and says what to do."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class DreamError(Exception):
    """Base of everything this package raises on purpose; the command line shows it as one line, exit 2."""


class ConfigError(DreamError, ValueError):
    """An option has a value that makes no sense, or two options contradict each other."""


class InvalidMemoryError(DreamError, ValueError):
    """A memory to be written is malformed (empty, NaN, duplicate id, refused metadata); none is written."""


class MemoryNotFoundError(DreamError, KeyError):
    """An id is not in this bank, or lies outside its tenant."""

    def __str__(self) -> str:
        """Return the message itself; KeyError would show its repr."""
        return str(self.args[0]) if self.args else ""


class BankNotFoundError(DreamError):
    """The path, server or collection that should hold the bank does not exist or cannot be opened."""


class BankUnreachableError(BankNotFoundError):
    """The Chroma server does not answer: the bank may be there, and it may help to try again."""


class BankLockedError(DreamError):
    """Another dreamer holds the bank; the message names it."""


class SchedulerError(DreamError):
    """A scheduler is closed, was made before a fork, or is asked to wait for itself."""


class FleetError(DreamError):
    """A fleet gets no workers, or they cannot make the embedder."""


class DimensionMismatchError(DreamError, ValueError):
    """Embeddings of one dimension meet a collection or embedder of another."""


class JournalError(DreamError):
    """A run is unknown, already undone, or cannot be undone because later runs build on it."""


class StateError(DreamError):
    """The state database is unreachable, corrupt, or written by a newer version."""


class BankClosedError(StateError):
    """The bank was closed; ``MemoryBank.open`` opens it again."""


class StaleIndexError(DreamError):
    """An embedded index does not know what another process wrote; caught and served otherwise."""


class UnsupportedStoreError(DreamError, TypeError):
    """A vector store cannot give what an operation needs, for example every embedding."""


class ChatError(DreamError):
    """A chat model failed, or what it answered cannot be used; ``__cause__`` has the model's own error."""


class ChatContextError(ChatError):
    """The messages do not fit the chat model's context."""


class ChatReplyError(ChatError):
    """A chat model answered, and the answer cannot be used; ``reason`` names the kind of defect."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class MissingExtraError(DreamError, ImportError):
    """An optional package is not installed; the message names the extra to install."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: run `pip install 'dream-memory[{extra}]'`")
        self.package = package
        self.extra = extra


def refusal_of(error: ValidationError, known: Iterable[str]) -> DreamError:
    """Return what pydantic says of a constructor's options as one of our errors.

    Args:
        error: As pydantic raised it; where a check of ours is behind it, that is returned.
        known: Names of the options.
    """
    told = error.errors(include_url=False)
    for one in told:
        if isinstance(own := one.get("ctx", {}).get("error"), DreamError):
            return own
    return ConfigError("; ".join(_refused(error.title, one, known) for one in told))


def _refused(title: str, told: Any, known: Iterable[str]) -> str:
    name = ".".join(map(str, told["loc"]))
    if told["type"] == "extra_forbidden":
        return f"{title} has no option {name}; known: {', '.join(known)}"
    if told["type"] == "missing":
        return f"{title} needs {name}=..."
    why = told["msg"].removeprefix("Value error, ")
    return f"{name}={reprlib.repr(told['input'])}: {why[:1].lower()}{why[1:]}" if name else why
