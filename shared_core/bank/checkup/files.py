"""Whether the files of an embedded bank can be read and written, and where they lie."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection
from pathlib import Path

from shared_core.language.counting import counted
from shared_core.types import Check

NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "ncpfs"}
NETWORK_FUSE = ("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.glusterfs", "fuse.goofys")
LEAST_FREE = 64 * 2**20
LOW_FREE = 512 * 2**20
"""Bytes; below the first SQLite may fail in the middle of a run, which rolls it back."""
MOUNTS = Path("/proc/self/mountinfo")
CACHES = "dream_*"


def file_checks(folder: Path, state: Path | None, keys: Collection[str]) -> list[Check]:
    """Check the files of an embedded bank.

    Args:
        folder: Chroma's directory.
        state: The state database's file, where it is one.
        keys: UUIDs of all collections.
    """
    database = folder / "chroma.sqlite3"
    places = [folder, *([state.parent] if state is not None and state.parent != folder else [])]
    return [
        _permissions([*places, database, *([state] if state is not None else [])]),
        *(_space(place, database) for place in places if place.exists()),
        *(_kind(place) for place in places if place.exists()),
        _caches(folder, database, keys),
    ]


def _permissions(paths: list[Path]) -> Check:
    denied = [path for path in paths if path.exists() and not os.access(path, os.R_OK | os.W_OK)]
    if not denied:
        return Check(name="permissions", status="ok", found="directory and databases can be read and written")
    named = ", ".join(map(str, denied))
    return Check(
        name="permissions",
        status="fail",
        found=f"not readable and writable by this user: {named}",
        todo="give this user the rights; SQLite writes to the directory too, even where one only searches",
    )


def _space(place: Path, database: Path) -> Check:
    free = shutil.disk_usage(place).free
    found = f"{free / 2**30:.1f} GiB free on the disk of {place}"
    wanted = max(LOW_FREE, database.stat().st_size)
    if free >= wanted:
        return Check(name="disk", status="ok", found=found)
    return Check(
        name="disk",
        status="fail" if free < LEAST_FREE else "warn",
        found=found,
        todo=f"free {(wanted - free) / 2**20:.0f} MiB: as much as Chroma's database, and 512 MiB at least",
    )


def _kind(place: Path) -> Check:
    kind = filesystem(place)
    if kind is None:
        return Check(name="file system", status="skip", found="its kind can be told on Linux only")
    if kind in NETWORK or kind.startswith(NETWORK_FUSE):
        return Check(
            name="file system",
            status="warn",
            found=f"{place} is on {kind}, a network file system, where SQLite's locks may not hold",
            todo="move it to a local disk, or use a Chroma server and PostgreSQL",
        )
    return Check(name="file system", status="ok", found=f"{place} is on {kind}")


def filesystem(place: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the kind of file system that a path lies on; None where the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    resolved, best, found = place.resolve(), -1, None
    for line in lines:
        before, _, after = line.partition(" - ")
        mounted = Path(before.split()[4].replace("\\040", " "))
        if resolved.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, found = len(mounted.parts), after.split()[0]
    return found


def _caches(folder: Path, database: Path, keys: Collection[str]) -> Check:
    held = [
        (file, file.stat())
        for cache in sorted(folder.glob(CACHES))
        if cache.is_dir()
        for file in sorted(cache.rglob("*"))
        if file.is_file()
    ]
    if not held:
        return Check(name="caches", status="ok", found="none; large banks get one when they are searched")
    size = sum(stat.st_size for _, stat in held) / 2**20
    written = database.stat().st_mtime
    foreign = [file for file, _ in held if not any(key in str(file.relative_to(folder)) for key in keys)]
    older = sum(stat.st_mtime < written for file, stat in held if file not in foreign)
    found = f"{counted(len(held), 'file')}, {size:.1f} MiB"
    if foreign:
        return Check(
            name="caches",
            status="warn",
            found=f"{found}; {len(foreign)} of collections that are gone, such as {foreign[0]}",
            todo="delete those files: nothing reads them any more",
        )
    told = f"; {older} older than Chroma's last write, and checked before they are used" if older else ""
    return Check(name="caches", status="ok", found=found + told)
