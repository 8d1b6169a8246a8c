"""What a shell completes: names that are cheap to know, and those of collections beside a path.

A completion must never fail or wait: where something cannot be told it offers nothing.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import typer

EMBEDDERS = ("minilm", "wordllama", "e5", "bge")
PRESETS = ("hardened", "paper")
AGENTS = ("structured", "open-ended")
MOST = 100


def embedders(incomplete: str) -> list[str]:
    """Return the embedders that have names."""
    return _of(EMBEDDERS, incomplete)


def presets(incomplete: str) -> list[str]:
    """Return the presets of a sweep."""
    return _of(PRESETS, incomplete)


def agents(incomplete: str) -> list[str]:
    """Return whose parameters a preset has."""
    return _of(AGENTS, incomplete)


def collections(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the collections of the embedded database that stands on the line, or in DREAM_PATH."""
    # what stands before an option without its value is not told apart yet: it is among the arguments
    named = (ctx.params.get("location"), ctx.params.get("source"), *ctx.args, os.environ.get("DREAM_PATH"))
    files = (Path(str(place)) / "chroma.sqlite3" for place in named if place)
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return []
    try:
        # this process ends with the completion, so that no lock of Chroma's can be lost by it
        database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=0.2)
        try:
            rows = database.execute("SELECT name FROM collections ORDER BY name LIMIT ?", (MOST,)).fetchall()
        finally:
            database.close()
    except sqlite3.Error:
        return []
    return _of([str(row[0]) for row in rows], incomplete)


def _of(names: tuple[str, ...] | list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
