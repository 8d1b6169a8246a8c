"""Options of the commands that run terms, ``forget`` and ``explain``, and the config that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from shared_core.cli import complete, options
from shared_core.config import CouplingConfig, ForgettingConfig
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.types import Embedder

Preset = Annotated[str, typer.Option(help="Parameters: paper or hardened.", autocompletion=complete.presets)]
Agent = Annotated[str, typer.Option(help="Whose: structured or open-ended.", autocompletion=complete.agents)]
Seed = Annotated[int, typer.Option(help="Seed of the noise.")]
EmbedderName = Annotated[
    Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
    typer.Option(
        "--embedder",
        help="For hardened: minilm, or the directory of the model that the collection was filled with; "
        "default: minilm where its dimension fits.",
        show_default=False,
        autocompletion=complete.embedders,
    ),
]
ValueKey = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help="For hardened: metadata field with the memories' values.",
        show_default=False,
    ),
]
OriginKey = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help="For hardened: metadata field that says who wrote a memory.",
        show_default=False,
    ),
]
TermNames = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--term",
        metavar="NAME",
        help="Only this term of the preset, or another one; may be repeated.",
        show_default=False,
    ),
]
Without = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        metavar="NAME", help="The preset's terms without this one; may be repeated.", show_default=False
    ),
]
Repeated = Annotated[
    str,
    typer.Option(
        help="For hardened: memories of different content that state the same long stretch of words: report, "
        "flag or ignore them."
    ),
]


def configured(
    preset: str,
    agent: str,
    terms: Sequence[str] | None,
    without: Sequence[str] | None,
    repeated: str,
    **overrides: Any,
) -> ForgettingConfig:
    """Return a preset with its terms chosen.

    Raises:
        ConfigError: A term is unknown, or left out and not among the preset's, or ``repeated`` is none of its
            three ways.
    """
    from shared_core.dynamics.terms import find_term

    overrides["coupling"] = CouplingConfig(repeated=repeated)  # type: ignore[arg-type]

    config = ForgettingConfig.preset(preset, agent.replace("-", "_"), **overrides)  # type: ignore[arg-type]
    chosen = tuple(dict.fromkeys(terms)) if terms else config.terms
    for name in [*chosen, *(without or [])]:
        find_term(name)
    for name in without or []:
        if name not in chosen:
            raise ConfigError(f"--without {name!r} is not among the terms {', '.join(chosen)}")
    chosen = tuple(name for name in chosen if name not in (without or []))
    if not chosen:
        raise ConfigError("--without leaves no term: keep at least one")
    return ForgettingConfig.preset(preset, agent.replace("-", "_"), **overrides, terms=chosen)  # type: ignore[arg-type]


def embedder_of(bank: MemoryBank, name: str | None, config: ForgettingConfig) -> Embedder | None:
    """Return the embedder that is named, or MiniLM where the collection may have been filled with it.

    Returns:
        None where no term of ``config`` needs one.

    Raises:
        ConfigError: No name is given and MiniLM does not fit; or as for ``options.open_embedder``.
    """
    from shared_core.dynamics.terms import find_term

    if not any("embedder" in find_term(term).needs for term in config.terms):
        return None
    return options.fitting_embedder(bank, name, "preset 'hardened' embeds parts of the memories again")
