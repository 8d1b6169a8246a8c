"""The next step after a name that is not there: what is like it, and where to look.

Names of other tenants are never offered: only what the bank itself shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from shared_core.errors import BankNotFoundError, DreamError, JournalError, MemoryNotFoundError

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


def runs_offered(bank: MemoryBank, run_id: str) -> AbstractContextManager[None]:
    """Add to a ``JournalError`` about an unknown run the ids that are like it."""

    def more() -> str:
        known = [run.run_id for run in bank.runs(LATEST_RUNS)]
        return "" if run_id in known else offer(run_id, known)

    return _adding(JournalError, more)


def memories_offered(bank: MemoryBank, memory_id: str) -> AbstractContextManager[None]:
    """Add to a ``MemoryNotFoundError`` the ids that are like the one that is not there."""
    return _adding(MemoryNotFoundError, lambda: offer(memory_id, bank.ids()))


def places_offered(location: str, collection: str) -> AbstractContextManager[None]:
    """Add to a ``BankNotFoundError`` about a database or collection where there is one."""
    return _adding(BankNotFoundError, lambda: _elsewhere(location, collection))


@contextmanager
def _adding(kind: type[DreamError], more: Callable[[], str]) -> Iterator[None]:
    """Raise an error of that kind again with more behind its message; as it came where there is no more."""
    try:
        yield
    except kind as error:
        if not (said := more()):
            raise
        raise type(error)(f"{error}{said}") from None


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
