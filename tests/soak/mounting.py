"""File systems that a test makes, where it may."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(*options: str, at: Path) -> Iterator[None]:
    """Mount something, or skip where that is not allowed."""
    done = subprocess.run(["mount", *options, str(at)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs to mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
