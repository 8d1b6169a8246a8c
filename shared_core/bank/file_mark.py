"""What tells one state of an embedded database's files from another, without opening them.

Opening and closing the file would release the locks that Chroma's own SQLite holds on it in this process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class FileMark:
    """Time, size and identity of a database's file and of its write-ahead log; equal unless written to."""

    marks: tuple[tuple[int, int, int], ...]

    @property
    def newest(self) -> float:
        """Time of the last write, seconds since the epoch; infinite where there is no file."""
        return max((mark[0] / 1e9 for mark in self.marks), default=float("inf"))


def file_mark(file: Path) -> FileMark:
    """Return the mark of a SQLite database as it is now."""
    marks = []
    for suffix in ("", "-wal"):
        try:
            # asked for at every search: a Path made anew costs ten times the call
            found = os.stat(f"{file}{suffix}")  # noqa: PTH116
        except FileNotFoundError:
            continue
        marks.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return FileMark(tuple(marks))
