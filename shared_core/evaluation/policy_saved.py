"""Rows of the policy benchmark in a file, so that it can be stopped and go on.

One JSON line per arm. The file is written anew, whole, after each bank and seed: a run that is killed leaves
no half line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from shared_core.errors import ConfigError
from shared_core.evaluation.policy_bench import RULES, PolicyRow

_NAMES = {one.name for one in fields(PolicyRow)}


class SavedPolicyRows:
    """The rows of a file, and those that are added.

    Args:
        path: The file; None keeps rows in memory only.

    Raises:
        ConfigError: The file holds something else than rows; it is left as it is.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.rows: list[PolicyRow] = [] if path is None or not path.exists() else _read(path)

    def find(self, bank: str, seed: int, settings: str, arms: Sequence[str]) -> list[PolicyRow] | None:
        """Return the rules' row and those of the arms, or None where one was not measured yet."""
        known = {
            row.arm: row for row in self.rows if (row.bank, row.seed, row.settings) == (bank, seed, settings)
        }
        if not {RULES, *arms} <= known.keys():
            return None
        return [row for arm, row in known.items() if arm in {RULES, *arms}]

    def append(self, rows: Sequence[PolicyRow]) -> None:
        """Keep rows; an earlier row of the same measurement gives way.

        Raises:
            ConfigError: The file cannot be written.
        """
        added = {_key(row) for row in rows}
        self.rows = [row for row in self.rows if _key(row) not in added] + list(rows)
        if self._path is None:
            return
        partial = self._path.with_name(f"{self._path.name}.{os.getpid()}.partial")
        try:
            partial.write_text(
                "".join(f"{json.dumps(row.to_dict(), allow_nan=False)}\n" for row in self.rows)
            )
            partial.replace(self._path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise ConfigError(f"cannot write {self._path}: {error}") from None


def _key(row: PolicyRow) -> tuple[str, int, str, str]:
    return row.bank, row.seed, row.settings, row.arm


def _read(path: Path) -> list[PolicyRow]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    return [_row(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def _row(line: str, where: str) -> PolicyRow:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or value.keys() != _NAMES or not _is_row(value):
        raise ConfigError(f"{where}, is no row of `dream eval policy`: {line[:60]!r}; name another file")
    return PolicyRow(**value)


def _is_row(value: dict[str, Any]) -> bool:
    texts = {"kind", "bank", "arm", "settings"}
    return all(isinstance(one, str if name in texts else (int, float)) for name, one in value.items())
