"""The jobs of a place: all its collections, or all tenants of a collection."""

from __future__ import annotations

from itertools import chain
from typing import TypeAlias

from shared_core.bank.chroma import ChromaContent
from shared_core.bank.chroma_client import collection_names, open_collection, opened_client
from shared_core.errors import ConfigError
from shared_core.fleet.jobs import FleetJob

Plain: TypeAlias = str | int | float | bool


def jobs_of_collections(location: str, *, state: str | None = None) -> list[FleetJob]:
    """Return a job for every collection of a Chroma.

    Args:
        location: Directory of an embedded Chroma, or URL of a server.
        state: SQLAlchemy URL of all their states; None as for ``MemoryBank.open``.

    Raises:
        BankNotFoundError: Nothing there, or (BankUnreachableError) the server does not answer.
        ConfigError: It holds no collection.
    """
    with opened_client(location) as client:
        names = collection_names(client)
    if not names:
        raise ConfigError(f"{location} holds no collection")
    return [FleetJob(location=location, collection=name, state=state) for name in names]


def jobs_of_tenants(
    location: str, collection: str, tenant_key: str, *, state: str | None = None
) -> tuple[list[FleetJob], int]:
    """Return a job for every value of a metadata field, and how many memories have none.

    Reads the metadata of the whole collection.

    Args:
        location: As for ``jobs_of_collections``.
        collection: Its name.
        tenant_key: The metadata field that tells tenants apart.
        state: As for ``jobs_of_collections``.

    Raises:
        BankNotFoundError: No such database, server or collection.
    """
    with opened_client(location) as client:
        values, without = _values(ChromaContent(open_collection(client, collection)), tenant_key)
    jobs = [
        FleetJob(location=location, collection=collection, state=state, where={tenant_key: value})
        for value in values
    ]
    return jobs, without


def _values(content: ChromaContent, key: str) -> tuple[list[Plain], int]:
    found: dict[tuple[type, Plain], None] = {}
    without = 0
    for record in chain.from_iterable(content.records()):
        value = record.metadata.get(key)
        if isinstance(value, (str, int, float, bool)):
            # True == 1 == 1.0, and Chroma tells them apart
            found[type(value), value] = None
        else:
            without += 1
    return [value for _, value in found], without
