"""What a long benchmark keeps on disk, so that it can be stopped and go on: rows as they come, triggers.

Rows are JSON lines, one per case, defence and embedder. A search for a trigger takes minutes: each is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from shared_core.errors import ConfigError

Row: TypeAlias = dict[str, Any]
"""A ``PoisonRow`` as JSON values, with what it was made from: family, injected, agent, seed, small."""
Key: TypeAlias = tuple[Any, ...]

KEYS = ("case", "defence", "embedder")
SETTINGS = ("agent", "seed", "small")
MEASURES = ("auroc", "asr_r", "asr_r_undefended", "benign_retention", "false_forget")
"""Numbers that every row has; undefined ones are null."""
BEGINNING = '{"case": '
"""Of every line that is written here; what begins otherwise is not ours to mend."""
TRIGGER_KEYS = ("embedder", "memory", "small", "seed")


def key_of(row: Row) -> Key:
    """Return what tells a row from every other; a row measured again has the same."""
    return tuple(row.get(name) for name in (*KEYS, *SETTINGS))


def read_rows(path: Path) -> list[Row]:
    """Read rows: one JSON object per line, or what ``dream eval poison --json`` printed.

    Raises:
        ConfigError: There is no such file, or a line is no row; the message names it.
    """
    rows: list[Row] = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        if not line.strip():
            continue
        value = _parsed(line)
        found = value["rows"] if isinstance(value, dict) and isinstance(value.get("rows"), list) else [value]
        for row in found:
            if not _is_row(row):
                raise ConfigError(f"{path}, line {number}, is no row of `dream eval poison`: {line[:60]!r}")
            rows.append(row)
    return rows


class SavedRows:
    """The rows of a file; a new one is appended and flushed at once.

    A line that a killed run left unfinished is cut off; nothing else of the file is ever changed.

    Args:
        path: The file; None keeps rows in memory only.

    Raises:
        ConfigError: The file holds something else than rows.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[Key, Row] = {}
        if path is not None and path.exists():
            _cut_unfinished(path)
            self._rows = {key_of(row): row for row in read_rows(path)}

    def find(self, key: Key) -> Row | None:
        """Return the row with a key; None where it was not measured yet."""
        return self._rows.get(key)

    def append(self, rows: Iterable[Row]) -> None:
        """Keep rows.

        Raises:
            ConfigError: The file cannot be written.
        """
        added = list(rows)
        self._rows.update((key_of(row), row) for row in added)
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(row, allow_nan=False)}\n" for row in added)
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error}") from None


class SavedTriggers:
    """Triggers of a file, by embedder, memory, size and seed; a new one is written at once.

    Args:
        path: The file; None keeps triggers in memory only.

    Raises:
        ConfigError: The file holds something else than triggers.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._entries: list[dict[str, Any]] = []
        if path is not None and path.exists():
            value = _parsed(_read(path))
            self._entries = value.get("triggers", []) if isinstance(value, dict) else []
            if not self._entries or not all(map(_is_trigger, self._entries)):
                raise ConfigError(f"{path} holds no triggers: name the file of an earlier run, or a new one")

    def of(self, embedder: str, *, small: bool = False, seed: int = 0) -> dict[str, str]:
        """Return the triggers found for an embedder by memory; what is set in it is written to the file."""

        def keep(memory: str, trigger: str) -> None:
            entry = dict(zip(TRIGGER_KEYS, (embedder, memory, small, seed), strict=True))
            self._entries.append({**entry, "trigger": trigger})
            self._write()

        asked = (embedder, small, seed)
        found = {
            entry["memory"]: entry["trigger"]
            for entry in self._entries
            if (entry["embedder"], entry["small"], entry["seed"]) == asked
        }
        return _Found(found, keep)

    def _write(self) -> None:
        if self._path is None:
            return
        unfinished = self._path.with_name(f"{self._path.name}.new")
        try:
            unfinished.write_text(json.dumps({"triggers": self._entries}, indent=1), encoding="utf-8")
            os.replace(unfinished, self._path)  # noqa: PTH105 (Path.replace is the same call)
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error}") from None


class _Found(dict[str, str]):
    """A dict that tells when something is set."""

    def __init__(self, known: dict[str, str], keep: Callable[[str, str], None]) -> None:
        super().__init__(known)
        self._keep = keep

    def __setitem__(self, memory: str, trigger: str) -> None:
        super().__setitem__(memory, trigger)
        self._keep(memory, trigger)


def _cut_unfinished(path: Path) -> None:
    """Cut a last line without a line break that is no whole row; end one that is whole."""
    text = _read(path)
    whole, last = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
    if not last:
        return
    if _is_row(_parsed(last)):
        whole = f"{text}\n"
    elif not last.startswith(BEGINNING):
        return
    with path.open("r+", encoding="utf-8", newline="") as file:
        file.write(whole)
        file.truncate()


def _is_row(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in KEYS)
        and all(name in value and isinstance(value[name], (int, float, type(None))) for name in MEASURES)
        and all(isinstance(value.get(name, 0), int) for name in ("poison", "injected"))
    )


def _is_trigger(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(TRIGGER_KEYS) <= set(value)
        and isinstance(value["memory"], str)
        and isinstance(value.get("trigger"), str)
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
