"""What every retriever of a bank offers around its one search: several queries, and coroutines."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared_core.types import Hit


class Searching(ABC):
    """A retriever; subclasses search."""

    @abstractmethod
    def search(self, query: str, **options: Any) -> list[Hit]:
        """Return the best memories for a query, best first."""

    def search_batch(self, queries: Sequence[str], **options: Any) -> list[list[Hit]]:
        """Return one list of hits per query; options as for ``search``."""
        return [self.search(query, **options) for query in queries]

    async def asearch(self, query: str, **options: Any) -> list[Hit]:
        """``search`` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.search, query, **options)

    async def asearch_batch(self, queries: Sequence[str], **options: Any) -> list[list[Hit]]:
        """Search for several queries at once; one list of hits per query."""
        return list(await asyncio.gather(*(self.asearch(query, **options) for query in queries)))
