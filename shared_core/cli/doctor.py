"""``dream doctor``: what is wrong with the set-up, and how to mend it."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.text import Text

from shared_core.cli import complete, options
from shared_core.cli.console import emit, safe, say
from shared_core.cli.setup_checks import setup_checks
from shared_core.errors import ConfigError, DreamError
from shared_core.types import Check

STYLES = {"ok": "green", "skip": "dim", "warn": "yellow", "fail": "bold red"}
"""In the order in which they are shown: what is worst stands last, next to the prompt."""
WANTED = {"warn", "fail"}
FAILED = 1
"""Exit code where a check failed; 2 is bad input, as everywhere."""
LINE = 500
DIMENSIONS = {"minilm": options.MINILM_DIMENSION, "wordllama": 256, "e5": 384, "bge": 384}
PROBE = "does it load"


def doctor(
    location: Annotated[
        Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
        typer.Argument(
            metavar="[PATH]",
            envvar="DREAM_PATH",
            help="Directory of the Chroma database, or URL of a Chroma server; without it only what is "
            "installed is checked.",
            show_default=False,
        ),
    ] = None,
    collection: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--collection",
            "-c",
            metavar="NAME",
            envvar="DREAM_COLLECTION",
            help="The collection.",
            show_default=False,
            autocompletion=complete.collections,
        ),
    ] = None,
    embedder: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help=f"{options.EMBEDDER_HELP} Compared with the collection's dimension.",
            show_default=False,
            autocompletion=complete.embedders,
        ),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Load the embedder too, and let SQLite check its files: seconds, minutes."
        ),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Show also what is in order.")] = False,
    state: options.State = None,
    as_json: options.AsJson = False,
) -> None:
    """Check the set-up, and say how to mend what is wrong. Changes nothing.

    Exits 0 when no check failed, 1 when one did; warnings do not count.

    Example: dream doctor ./chroma --collection memories --embedder minilm
    """
    if location is None and (collection is not None or state is not None):
        raise ConfigError("--collection and --state belong to a PATH: give it too")
    checks, dimension = _embedder(embedder, deep)
    checks = [*setup_checks(), *checks, *_bank(location, collection, state, dimension, deep)]
    counts: Counter[str] = Counter(check.status for check in checks)
    failed = counts["fail"] > 0
    if as_json:
        emit(
            {
                "ok": not failed,
                "counts": {status: counts[status] for status in STYLES},
                "checks": [asdict(check) for check in checks],
            }
        )
    else:
        _show(checks, counts, every)
    if failed:
        raise typer.Exit(FAILED)


def _bank(
    location: str | None, collection: str | None, state: str | None, dimension: int | None, deep: bool
) -> list[Check]:
    if location is None:
        todo = "dream doctor PATH --collection NAME"
        return [Check(name="bank", status="skip", found="no PATH was given", todo=todo)]
    try:
        from shared_core.bank.checkup import examine
    except ImportError as error:
        found = f"the bank cannot be loaded: {type(error).__name__}: {error}"
        return [Check(name="bank", status="fail", found=found, todo="mend the packages first")]
    return examine(location, collection, state_url=state, dimension=dimension, deep=deep).checks


def _embedder(name: str | None, deep: bool) -> tuple[list[Check], int | None]:
    """Return the check of an embedder, and its dimension where it is known."""
    if name is None:
        return [], None
    if not deep:
        return [], DIMENSIONS.get(name, _dimension_of(Path(name)))
    started = time.perf_counter()
    try:
        given = len(options.open_embedder(name).embed_query(PROBE))
    except DreamError as error:
        return [Check(name="embedder", status="fail", found=str(error), todo="name another")], None
    except Exception as error:  # a model library may raise anything, and that is what is asked
        found = f"{name} does not load: {type(error).__name__}: {error}"
        return [
            Check(name="embedder", status="fail", found=found, todo="reinstall it, or name another")
        ], None
    seconds = time.perf_counter() - started
    return [
        Check(name="embedder", status="ok", found=f"{name} gives {given} numbers, loaded in {seconds:.1f} s")
    ], given


def _dimension_of(folder: Path) -> int | None:
    """Return what the files of a sentence-transformers model say; None where they do not."""
    for file, key in (("1_Pooling/config.json", "word_embedding_dimension"), ("config.json", "hidden_size")):
        try:
            found: Any = json.loads((folder / file).read_text(encoding="utf-8"))[key]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(found, int):
            return found
    return None


def _show(checks: list[Check], counts: Counter[str], every: bool) -> None:
    for check in sorted(checks, key=lambda check: list(STYLES).index(check.status)):
        if not every and check.status not in WANTED:
            continue
        line = Text(f"{check.status:5}", STYLES[check.status])
        say(line.append(f" {check.name}: ", "none").append(safe(check.found, LINE)))
        if check.todo:
            say(Text("      ").append(safe(check.todo, LINE)))
    say(
        f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} failed, {counts['skip']} skipped"
        + ("" if every else "; --all shows those too")
    )
