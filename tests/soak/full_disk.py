"""A disk that is full, as one process sees it."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any, Literal

How = Literal["limit", "ballast"]
SMALLEST = 4_096


class Disk:
    """Full when no file may grow any more ("limit"), or when another file has taken what is left ("ballast").

    Args:
        folder: On the disk.
        how: See above.
    """

    def __init__(self, folder: str, how: How) -> None:
        self._ballast, self._how = Path(folder) / "ballast", how

    def fill(self, *_: Any) -> None:
        """Let every write that needs more room fail from now on."""
        if self._how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (SMALLEST, resource.RLIM_INFINITY))
            return
        with self._ballast.open("wb", buffering=0) as file:
            for size in (2**16, 2**10, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Make room again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self._ballast.unlink(missing_ok=True)
