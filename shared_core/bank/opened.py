"""What a bank is made of, for as long as it is open: a closed one answers nothing, and says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakMethod

from shared_core.bank.content_writer import ContentWriter
from shared_core.errors import BankClosedError

if TYPE_CHECKING:
    from typing_extensions import Self

    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.state import BankState

logger = logging.getLogger(__name__)


class Opened:
    """Content and state of a bank; every use of them after ``close`` raises ``BankClosedError``."""

    def __init__(self, content: ChromaContent, state: BankState) -> None:
        self._content, self._state = content, state
        self._texts = ContentWriter(content, state)
        self._last_words: list[WeakMethod[Callable[[], object]]] = []

    @property
    def content(self) -> ChromaContent:
        """The collection, seen through the tenant's filter."""
        self._require_open()
        return self._content

    @property
    def state(self) -> BankState:
        """Weights and journal of that collection and tenant."""
        self._require_open()
        return self._state

    @property
    def closed(self) -> bool:
        """Tell whether ``close`` was called."""
        return self._state.closed

    def before_close(self, method: Callable[[], object]) -> None:
        """Let a method of an object that works on the bank end its work before ``close`` does the rest.

        It is held weakly; what it raises is logged.
        """
        self._last_words.append(WeakMethod(method))

    def close(self) -> None:
        """Write buffered access counts and let the state database go; closing again does nothing."""
        while self._last_words and not self.closed:
            if (method := self._last_words.pop()()) is not None:
                try:
                    method()
                except Exception:
                    logger.exception("what works on %r could not end before it was closed", self)
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"{type(self).__name__}({self._content.name!r}, where={self._content.where!r}{closed})"

    @property
    def _writer(self) -> ContentWriter:
        self._require_open()
        return self._texts

    def _require_open(self) -> None:
        if self._state.closed:
            raise BankClosedError(f"the bank {self._content.name!r} was closed: open it again")
