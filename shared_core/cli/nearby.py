"""The next step after a name that is not there: what is like it, and where to look.

Names of other tenants are never offered: only what the bank itself shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from shared_core.errors import BankNotFoundError, JournalError, MemoryNotFoundError

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank

OFFERED = 3
COMPARED = 5_000
"""Names that are compared letter by letter; of more, those that begin alike."""
LATEST_RUNS = 1_000
FILE = "chroma.sqlite3"


def like(wanted: str, known: Iterable[str]) -> list[str]:
    """Return at most three known names that resemble one, the best first."""
    names = list(known)
    begun = [name for name in names if name.startswith(wanted)][:OFFERED] if wanted else []
    if len(names) > COMPARED:
        names = [name for name in names if name[:2] == wanted[:2]][:COMPARED]
    # an id that was copied incompletely is more likely meant than one that is spelt alike
    return list(dict.fromkeys([*begun, *get_close_matches(wanted, names, OFFERED)]))[:OFFERED]


def offer(wanted: str, known: Iterable[str]) -> str:
    """Return the end of an error: what was meant, perhaps; empty where nothing is like it."""
    found = like(wanted, known)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


@contextmanager
def runs_offered(bank: MemoryBank, run_id: str) -> Iterator[None]:
    """Add to an error about an unknown run the ids that are like it.

    Raises:
        JournalError: As the block raised it.
    """
    try:
        yield
    except JournalError as error:
        known = [run.run_id for run in bank.runs(LATEST_RUNS)]
        if run_id in known or not (more := offer(run_id, known)):
            raise
        raise JournalError(f"{error}{more}") from None


@contextmanager
def memories_offered(bank: MemoryBank, memory_id: str) -> Iterator[None]:
    """Add to an error about an unknown memory the ids that are like it.

    Raises:
        MemoryNotFoundError: As the block raised it.
    """
    try:
        yield
    except MemoryNotFoundError as error:
        if not (more := offer(memory_id, bank.ids())):
            raise
        raise MemoryNotFoundError(f"{error}{more}") from None


@contextmanager
def places_offered(location: str, collection: str) -> Iterator[None]:
    """Add to an error about a missing database or collection where there is one.

    Raises:
        BankNotFoundError: As the block raised it.
    """
    try:
        yield
    except BankNotFoundError as error:
        raise BankNotFoundError(f"{error}{_elsewhere(location, collection)}") from None


def _elsewhere(location: str, collection: str) -> str:
    place = Path(location)
    if location.startswith(("http://", "https://")):
        return "; `dream doctor URL` tells what is there"
    if (place / FILE).is_file():
        from shared_core.bank.checkup.content import read_database

        return offer(collection, read_database(place, None, deep=False).names)
    if place.name == FILE and place.is_file():
        return f": give its directory, {place.parent}"
    if inside := _databases(place):
        return f": there is one in {' and '.join(inside[:OFFERED])}"
    beside = {Path(found).name: found for found in _databases(place.parent)}
    meant = [beside[name] for name in like(place.name, beside)]
    return f": there is one in {' and '.join(meant)}" if meant else ""


def _databases(folder: Path) -> list[str]:
    try:
        return sorted(str(file.parent) for file in folder.glob(f"*/{FILE}"))
    except OSError:
        return []
