"""Opening a Chroma collection wherever it is, and chromadb's errors as ours."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import chromadb
import httpx
from chromadb.api import ClientAPI
from chromadb.api.client import Client
from chromadb.api.models.Collection import Collection
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.auth import UserIdentity
from chromadb.config import Settings
from chromadb.errors import ChromaError, InvalidArgumentError, NotFoundError

from shared_core.bank.records import Space
from shared_core.errors import (
    BankNotFoundError,
    BankUnreachableError,
    ConfigError,
    DimensionMismatchError,
    DreamError,
    StaleIndexError,
)

UNKNOWN_TO_INDEX = "Error finding id"
CUT_OFF = ("Failed to apply logs to the hnsw segment writer", "Error creating hnsw segment reader")
COLLECTIONS_PER_PAGE = 1_000
CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 300.0
"""So long a Chroma server is waited for; a batch of additions is answered within seconds."""


def open_collection(
    location: str | os.PathLike[str] | ClientAPI, name: str, *, create: bool = False, space: Space = "cosine"
) -> Collection:
    """Open a collection.

    Args:
        location: A directory of an embedded Chroma, the URL of a Chroma server, ``:memory:``, or a client.
        name: The collection's name.
        create: Create what does not exist.
        space: Distance space of a collection that is created; an existing one keeps its own.

    Raises:
        BankNotFoundError: Nothing there, and ``create`` is false.
        BankUnreachableError: The server does not answer.
        ConfigError: The name or space is one that Chroma refuses.
    """
    client = _client(location, create) if isinstance(location, (str, os.PathLike)) else location
    shown = location if isinstance(location, (str, os.PathLike)) else "the given client"
    with translated(name):
        try:
            return client.get_collection(name, embedding_function=None)
        except NotFoundError:
            if not create:
                names = ", ".join(sorted(c.name for c in client.list_collections(limit=20))) or "none"
                raise BankNotFoundError(
                    f"no collection {name!r} in {shown}; collections there: {names}"
                ) from None
        try:
            return client.create_collection(
                name,
                embedding_function=None,
                configuration={"hnsw": {"space": space}},  # type: ignore[arg-type]
            )
        except (InvalidArgumentError, ValueError, TypeError) as error:
            raise ConfigError(f"Chroma refuses collection {name!r}, space {space!r}: {error}") from None


@contextmanager
def opened_client(location: str | os.PathLike[str]) -> Iterator[ClientAPI]:
    """Yield a client of an existing database or a server; its files and index are let go afterwards.

    Raises:
        BankNotFoundError: Nothing there.
        BankUnreachableError: The server does not answer.
    """
    client = _client(location, create=False)
    try:
        yield client
    finally:
        # chromadb before 1.5 keeps every database open until the process ends
        getattr(client, "close", _nothing)()


def collection_names(client: ClientAPI) -> list[str]:
    """Return the names of all collections, sorted."""
    names: list[str] = []
    while page := client.list_collections(limit=COLLECTIONS_PER_PAGE, offset=len(names)):
        names += [collection.name for collection in page]
    return sorted(names)


@contextmanager
def passing_collection() -> Iterator[Collection]:
    """Yield an empty in-memory collection that nobody else has; it is gone afterwards."""
    client = _client(":memory:", create=True)
    name = f"dream-passing-{uuid.uuid4().hex}"
    collection = open_collection(client, name, create=True)
    try:
        yield collection
    finally:
        client.delete_collection(name)


def _nothing() -> None:
    pass


def _client(location: str | os.PathLike[str], create: bool) -> ClientAPI:
    text = os.fspath(location)
    if text == ":memory:":
        return chromadb.EphemeralClient()
    if text.startswith(("http://", "https://")):
        url = urlsplit(text)
        secure = url.scheme == "https"
        try:
            settings = Settings(
                chroma_api_impl="chromadb.api.fastapi.FastAPI",
                chroma_server_host=url.hostname or "",
                chroma_server_http_port=url.port or (443 if secure else 80),
                chroma_server_ssl_enabled=secure,
            )
            return _LimitedClient(settings=settings)
        except (ValueError, ChromaError, httpx.HTTPError) as error:
            raise BankUnreachableError(f"no Chroma server answers at {text}: {error}") from None
    _check_directory(text, create)
    known = text in SharedSystemClient._identifier_to_system
    try:
        return chromadb.PersistentClient(path=text)
    except (ValueError, OSError, ChromaError) as error:
        _forget_failed(text, known)
        raise BankNotFoundError(f"cannot open the Chroma database in {text}: {error}") from None


def _check_directory(text: str, create: bool) -> None:
    try:
        found = (Path(text) / "chroma.sqlite3").is_file()
        is_file = Path(text).exists() and not Path(text).is_dir()
    except OSError as error:  # a name longer than the file system's, or a folder that may not be entered
        raise BankNotFoundError(f"{text[:80]} cannot be opened: {error.strerror}") from None
    if not create and not found:
        raise BankNotFoundError(f"{text} is not the directory of a Chroma database (no chroma.sqlite3 in it)")
    if is_file:
        raise BankNotFoundError(f"{text} is a file, and a Chroma database is a directory: name another")


def _forget_failed(identifier: str, known: bool) -> None:
    # chromadb keeps what did not start, and hands it out to whoever tries again
    users = getattr(SharedSystemClient, "_identifier_to_refcount", None)
    # before 1.5 it counts no users: what was there already may be in use
    unused = not known if users is None else identifier not in users
    if unused:
        SharedSystemClient._identifier_to_system.pop(identifier, None)


class _LimitedClient(Client):
    """A client that waits so long for its server and no longer, from its first question on.

    chromadb itself waits for ever, also for a server whose machine is gone. What these two methods ask is
    the first that each of a client's two connections is used for.
    """

    def get_user_identity(self) -> UserIdentity:
        _limit_waiting(self._server)
        return super().get_user_identity()

    def _validate_tenant_database(self, tenant: str, database: str) -> None:
        _limit_waiting(getattr(self._admin_client, "_server", None))
        super()._validate_tenant_database(tenant, database)


def _limit_waiting(server: object) -> None:
    session = getattr(server, "_session", None)
    if isinstance(session, httpx.Client):
        session.timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Raise chromadb's errors as ours; what this package does not know passes unchanged."""
    try:
        yield
    except InvalidArgumentError as error:
        if "dimension" in str(error):
            raise DimensionMismatchError(
                f"collection {name!r}: {error}: use the embedder the collection was filled with"
            ) from None
        raise ConfigError(f"collection {name!r}: {error}") from None
    except ValueError as error:
        if isinstance(error, DreamError):
            raise
        # chromadb checks filters itself, before it asks the back end
        raise ConfigError(f"collection {name!r}: {error}") from None
    except NotFoundError as error:
        raise BankNotFoundError(f"collection {name!r} is gone: {error}") from None
    except ChromaError as error:
        if UNKNOWN_TO_INDEX in str(error):
            raise StaleIndexError(f"collection {name!r}: {error}") from None
        if any(said in str(error) for said in CUT_OFF):
            raise DreamError(
                f"Chroma's index of collection {name!r} was cut off while it was written, as by a killed "
                "process: texts and metadata are whole, some embeddings may be wrong, even where Chroma "
                "answers again; run `dream doctor`, and restore a backup or add the texts anew"
            ) from error
        raise DreamError(f"Chroma failed on collection {name!r}: {error}") from error
    except httpx.HTTPError as error:
        raise BankUnreachableError(
            f"the Chroma server of collection {name!r} does not answer: {error}"
        ) from None
