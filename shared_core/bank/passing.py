"""A bank that is gone when its block ends: in-memory collection, state in a temporary folder.

For work on texts that are no user's memory, such as the talks that agents are trained on; nothing of it
reaches a user's collection, nor the database that DREAM_STATE_URL names.

Source: none, ours [O].
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import URL

from shared_core.bank.chroma import ChromaContent
from shared_core.bank.chroma_client import passing_collection
from shared_core.bank.memory_bank import MemoryBank
from shared_core.bank.state import BankState

if TYPE_CHECKING:
    from shared_core.types import Embedder


@contextmanager
def passing_bank(embedder: Embedder | None = None) -> Iterator[MemoryBank]:
    """Yield an empty bank of its own; collection and state are removed afterwards.

    Args:
        embedder: As for ``MemoryBank``.
    """
    with (
        tempfile.TemporaryDirectory(prefix="dream-", ignore_cleanup_errors=True) as folder,
        passing_collection() as collection,
    ):
        content = ChromaContent(collection)
        url = URL.create("sqlite", database=str(Path(folder) / "state.sqlite3"))
        state = BankState(url, collection=content.key, name=content.name, scope="")
        with closing(MemoryBank(content, state, embedder=embedder)) as bank:
            yield bank
