"""Options of the commands that dream, ``cycle`` and ``train policy``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from shared_core.cli import complete

if TYPE_CHECKING:
    from shared_core.bank.graph import GraphKeys

Rounds = Annotated[int, typer.Option(help="Rounds at most.")]
Probes = Annotated[int, typer.Option(help="Questions per round at most.")]
Partitions = Annotated[
    int, typer.Option(help="Each round asks about another of so many parts of the memory.")
]
EmbedderName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--embedder",
        help="minilm, or the directory of the model that the collection was filled with; "
        "default: minilm where its dimension fits.",
        show_default=False,
        autocompletion=complete.embedders,
    ),
]
SessionKey = Annotated[
    Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
    typer.Option(
        metavar="NAME",
        help="Metadata field that names a memory's session; default: dream_session.",
        show_default=False,
    ),
]
SpeakerKey = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help="Metadata field that says who said it; default: dream_speaker.",
        show_default=False,
    ),
]
TimeKey = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help="Metadata field that says when, ISO 8601 or Unix time; default: dream_time.",
        show_default=False,
    ),
]
TenantKeys = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--tenant-key",
        metavar="NAME",
        help="Metadata field that says whose a memory is: each owner's memories dream by themselves. May be "
        "given several times; default: those of an earlier dream.",
        show_default=False,
    ),
]


def graph_keys_of(**given: str | None) -> GraphKeys:
    """Return the metadata fields that were named, the rest by default."""
    from shared_core.bank.graph import GraphKeys

    return GraphKeys(**{name: key for name, key in given.items() if key is not None})
