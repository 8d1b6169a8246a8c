"""Arguments and options that several commands share, and opening a bank from them."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from shared_core.cli import complete
from shared_core.cli.nearby import offer, places_offered
from shared_core.errors import ConfigError, DreamError

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.chat import ChatModel
    from shared_core.types import Embedder

Location = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        envvar="DREAM_PATH",
        help="Directory of the Chroma database, or URL of a Chroma server.",
        show_default=False,
    ),
]
Collection = Annotated[
    str,
    typer.Option(
        "--collection",
        "-c",
        metavar="NAME",
        envvar="DREAM_COLLECTION",
        help="The collection.",
        show_default=False,
        autocompletion=complete.collections,
    ),
]
State = Annotated[
    Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
    typer.Option(
        "--state",
        metavar="URL",
        envvar="DREAM_STATE_URL",
        help="Database of weights and journal, sqlite:///... or postgresql://...; "
        "default: beside an embedded collection.",
        show_default=False,
    ),
]
Where = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--where",
        metavar="JSON",
        help='Only memories whose metadata match, for example \'{"user": "ada"}\'.',
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def open_bank(location: str, collection: str, state: str | None, where: str | None, **options: Any) -> Any:
    """Open the bank a command works on.

    Raises:
        DreamError: Anything that is wrong with the arguments, said in one line.
    """
    from shared_core.bank import MemoryBank

    wanted = _filter(where)
    with places_offered(location, collection):
        return MemoryBank.open(location, collection, state_url=state, where=wanted, **options)


EMBEDDER_HELP = "minilm, wordllama, e5, bge, or the directory of a model."


def open_embedder(name: str) -> Any:
    """Return an embedder by name, or a sentence-transformers model of a directory.

    Raises:
        ConfigError: No embedder is called so, there is no such directory, or ``bge`` is not on this machine.
        MissingExtraError: The extra is not installed.
    """
    from shared_core import embedding

    named = {
        "minilm": embedding.packaged_embedder,
        "wordllama": embedding.WordLlamaEmbedder,
        "e5": embedding.E5Embedder,
        "bge": embedding.bge_embedder,
    }
    if name in named:
        return named[name]()
    if not _is_folder(name):
        raise ConfigError(
            f"--embedder {shortened(name)!r} is neither {', '.join(named)} nor the directory of a model"
            f"{offer(name, named)}"
        )
    return embedding.SentenceTransformerEmbedder(name)


MINILM_DIMENSION = 384


def fitting_embedder(bank: MemoryBank, name: str | None, why: str) -> Embedder:
    """Return the embedder that is named, or MiniLM where the collection may have been filled with it.

    Args:
        bank: The bank.
        name: As for ``open_embedder``; None where the user named none.
        why: What needs one, as the beginning of a sentence.

    Raises:
        ConfigError: No name is given and MiniLM does not fit; or as for ``open_embedder``.
    """
    if name is None and (dimension := bank.content.dimension()) not in {None, MINILM_DIMENSION}:
        raise ConfigError(
            f"{why}, and the collection has dimension {dimension}, minilm has {MINILM_DIMENSION}: give "
            "--embedder DIR, the directory of its model"
        )
    model: Embedder = open_embedder(name or "minilm")
    return model


def open_model(name: str) -> ChatModel:
    """Return a chat model by name or import path; the directory the user stands in is searched too.

    Raises:
        ConfigError: There is none, or importing it fails.
        MissingExtraError: The model's extra is not installed.
    """
    from shared_core.chat import open_chat

    # an installed command does not look where the user stands, `python -m` does
    if ":" in name and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        return open_chat(name)
    except DreamError:
        raise
    except Exception as error:
        # a module of the user's may raise anything, a missing password for one
        raise ConfigError(f"cannot open the model {name!r}: {type(error).__name__}: {error}") from error


def sort_out(item: str, location: str) -> tuple[str, str]:
    """Return (item, location) of two positional arguments that people give in either order."""
    return (location, item) if _is_place(item) and not _is_place(location) else (item, location)


def command(
    verb: str, item: str, location: str, collection: str, state: str | None, where: str | None
) -> str:
    """Return a command line that can be copied into a shell; a password in ``state`` is masked."""
    words = ["dream", verb, item, location, "--collection", collection]
    return shlex.join([*words, *_state_and_where(state, where)])


def place(location: str, collection: str, state: str | None, where: str | None) -> list[str]:
    """Return the words that name a bank in a command which may be run from any directory.

    A password in ``state`` is masked.
    """
    anywhere = str(Path(location).resolve()) if _is_folder(location) else location
    return [anywhere, "--collection", collection, *_state_and_where(state, where)]


def _state_and_where(state: str | None, where: str | None) -> list[str]:
    named = ["--state", _without_password(state)] if state else []
    return [*named, "--where", where] if where else named


def shortened(text: str, limit: int = 80) -> str:
    """Return text that fits into one line of an error."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}{separator}{name}:***{at}{host}" if at and colon else url


def _is_place(text: str) -> bool:
    return text.startswith(("http://", "https://")) or _is_folder(text)


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except OSError:  # longer than a path may be
        return False


def _position(text: str, error: Exception) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return ""
    rest = text[error.pos :]
    return f" from character {error.pos + 1} on, at {shortened(rest, 12)!r}" if rest else ": it breaks off"


def _filter(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"--where {shortened(text)!r} is not JSON{_position(text, error)} ({error}): "
            'write \'{"user": "ada"}\''
        ) from None
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"--where {shortened(text)!r} must be a JSON object with at least one key")
    return value
