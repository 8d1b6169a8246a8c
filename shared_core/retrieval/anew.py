"""Reading an embedded collection anew, as another process left it.

Chroma's embedded index is loaded once per client and then learns only what its own process writes: it does
not find what another process added, gives the old embedding of what another rewrote, and fails ("Error
finding id") where it is asked for the embedding of what it does not know. A client of its own, opened for
one read, sees the collection as it is. Knows nothing of ranking.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent

_opened = count()


def met_the_unknown(error: Exception) -> bool:
    """Tell whether Chroma failed because its index lacks a record that another process wrote."""
    return "Error finding id" in str(error)


@contextmanager
def read_anew(content: ChromaContent) -> Iterator[ChromaContent]:
    """Open the same collection under the same filter, with an index loaded now; as it is where not embedded.

    Raises:
        BankNotFoundError: The collection is gone.
    """
    from shared_core.bank.chroma import ChromaContent, _client, open_collection

    file = content.database_file()
    if file is None:
        yield content
        return
    # Chroma shares one index among all clients of a process that spell the directory alike
    client: Any = _client(f"{file.parent}/." + "/." * (next(_opened) % 64), create=False)
    try:
        client.set_tenant(content.collection.tenant, content.collection.database)
        yield ChromaContent(open_collection(client, content.name), content.where)
    finally:
        client.close()
