"""What the operating system says of Ray's worker processes (Linux only)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

TITLE = "ray::RayWorker"
DREAMING = "ray::RayWorker.dream"


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def descendants(root: int) -> dict[int, str]:
    """Return the processes below ``root``, and how each calls itself."""
    parents: dict[int, int] = {}
    titles: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        pid = int(folder.name)
        try:
            parents[pid] = int(_status(pid)["PPid"])
            titles[pid] = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            )
        except (OSError, KeyError):
            continue  # it has ended meanwhile

    def below(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == root:
                return True
        return False

    return {pid: title for pid, title in titles.items() if below(pid)}


def workers(title: str = TITLE) -> list[int]:
    """Return the workers below this process; with ``DREAMING`` those in mid-dream."""
    return sorted(pid for pid, shown in descendants(os.getpid()).items() if shown.startswith(title))


@dataclass
class Costs:
    """Most memory and processor time that was seen of each worker, and of Ray's own processes together."""

    worker_bytes: dict[int, int] = field(default_factory=dict)
    worker_seconds: dict[int, float] = field(default_factory=dict)
    own_bytes: int = 0
    own_processes: int = 0

    def look(self) -> None:
        """Read them now; called often."""
        own = 0
        found = descendants(os.getpid())
        for pid, title in found.items():
            try:
                if title.startswith(TITLE):
                    self.worker_bytes[pid] = int(_status(pid)["VmHWM"].split()[0]) * 1024
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
                    self.worker_seconds[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                else:
                    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().split("Pss:")[1]
                    own += int(rollup.split()[0]) * 1024
            except (OSError, KeyError, IndexError):
                continue
        self.own_bytes = max(self.own_bytes, own)
        self.own_processes = max(self.own_processes, sum(not one.startswith(TITLE) for one in found.values()))
