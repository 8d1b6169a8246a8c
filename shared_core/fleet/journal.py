"""The fleet's own journal: one JSON line per bank that ended, on the disk before the next one is begun.

A second run with the same file dreams only what is left. The banks' dreams do not depend on it: it is a list
of what need not be repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from shared_core.errors import ConfigError
from shared_core.fleet.config import FleetConfig
from shared_core.fleet.outcome import FleetOutcome, parsed_outcome

HEADER = "dream_fleet"
FORMAT = 1
_BEGINNINGS = (f'{{"{HEADER}": '.encode(), b'{"id": "')


class FleetJournal:
    """A file of outcomes, open for appending; a context manager.

    A last line that a killed run left unfinished is cut off; nothing else of the file is ever changed.

    Args:
        path: The file; None keeps nothing.
        config: Its options must be those of the earlier runs.

    Raises:
        ConfigError: The file is no journal, or of other options, or cannot be written.
    """

    def __init__(self, path: str | Path | None, config: FleetConfig) -> None:
        self.path = None if path is None else Path(path)
        self.latest: dict[str, FleetOutcome] = {}
        """By job, from earlier runs."""
        self._file: BinaryIO | None = None
        if self.path is None:
            return
        header = {HEADER: FORMAT, **config.to_dict()}
        try:
            # unbuffered: one write per line
            self._file = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot write the journal {self.path}: {error}") from None
        try:
            if not self._read(header):
                self._append(header)
        except BaseException:
            self._file.close()
            raise

    def append(self, outcome: FleetOutcome) -> None:
        """Keep an outcome; on the disk when this returns.

        Raises:
            ConfigError: The file cannot be written.
        """
        if self._file is not None:
            self._append(outcome.to_dict())

    def __enter__(self) -> FleetJournal:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    # ---- inner

    def _read(self, header: Mapping[str, Any]) -> bool:
        """Read what earlier runs wrote; returns False where the file is new."""
        assert self._file is not None  # noqa: S101
        self._file.seek(0)
        whole, newline, torn = self._file.read().rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        for number, line in enumerate(lines, start=1):
            value = self._parsed(line, number)
            if number == 1:
                self._check(value, header)
                continue
            try:
                outcome = parsed_outcome(value)
            except ConfigError as error:
                raise ConfigError(f"{self.path}, line {number}: {error}") from None
            self.latest[outcome.id] = outcome
        if torn:
            if not torn.startswith(_BEGINNINGS[1 if lines else 0][: len(torn)]):
                raise ConfigError(f"{self.path} is no journal of a fleet: name another file")
            self._file.truncate(len(whole) + len(newline))
        return bool(lines)

    def _check(self, value: Any, header: Mapping[str, Any]) -> None:
        if not isinstance(value, dict) or HEADER not in value:
            raise ConfigError(f"{self.path} is no journal of a fleet: name another file")
        if value != json.loads(json.dumps(header)):
            raise ConfigError(
                f"{self.path} is the journal of a fleet with other options: name another file, or dream with "
                "the options that its first line tells"
            )

    def _parsed(self, line: bytes, number: int) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            raise ConfigError(
                f"{self.path}, line {number}, is no line of a fleet's journal: name another file"
            ) from None

    def _append(self, value: Mapping[str, Any]) -> None:
        assert self._file is not None  # noqa: S101
        line = memoryview((json.dumps(value, allow_nan=False) + "\n").encode())
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ConfigError(f"cannot write the journal {self.path}: {error}") from None
