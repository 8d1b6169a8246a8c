"""Records that were retrieved lately, kept in memory for as long as nobody writes to the collection.

Where searches go on asking for others, all records of the collection are read ahead, a page beside each such
search, as far as there is room.

Serves embedded collections, whose file changes with every write of any process; others are read each time.
A held record is served only while the file is the one from before it was read. A file written to within the
last two seconds proves nothing, since a further write may leave the same time on it: until it has settled,
everything is read.

Source: none, ours [O].
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from shared_core.bank.file_mark import FileMark, file_mark
from shared_core.bank.records import Record

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent

SETTLED_SECONDS = 2.0
"""The coarsest time stamps of file systems in use."""
HOT_CHARACTERS = 64_000_000
"""Characters of text that are held at most, overhead included; the longest unused ones go first."""
OVERHEAD = 500
"""Counted per record beside its text: about the bytes that one takes."""
PAGE_AHEAD = 1_000
"""Records that are read ahead at once: some hundredths of a second in the background."""
AHEAD_AFTER = 16
"""Searches that had to read records, since the file was last written to, before any are read ahead."""
_RECENT = 0.05
"""Weight of the last reading in the share of records that were not held."""

logger = logging.getLogger(__name__)


class HotRecords:
    """The records of one collection that are asked for again and again; safe for threads.

    Args:
        content: The collection, seen through the tenant's filter.
    """

    def __init__(self, content: ChromaContent) -> None:
        self._content = content
        self._file = content.database_file()
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Record] = OrderedDict()
        self._characters = 0
        self._mark: FileMark | None = None
        self._unproven: set[str] = set()
        self._missed = 1.0
        self._waits = self._offset = 0
        self._more_ahead = True
        self._reading_ahead: threading.Thread | None = None

    def settled_mark(self) -> FileMark | None:
        """Return what tells this state of the file from every later one; None where nothing does."""
        if self._file is None:
            return None
        mark = file_mark(self._file)
        return mark if time.time() - mark.newest > SETTLED_SECONDS else None

    @property
    def mostly_cold(self) -> bool:
        """Whether most records asked for lately were not held, and are better read along with a search."""
        return self._file is not None and self._missed > 0.5

    def get(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the records of those ids that are in the bank, as the collection holds them now."""
        mark = self.settled_mark()
        if mark is None:
            return self._content.get(ids)
        found = self._taken(ids, mark)
        if missing := [memory_id for memory_id in ids if memory_id not in found]:
            read = self._content.get(missing)
            self.put(read.values(), mark)
            found.update(read)
            self._read_ahead(mark)
        return found

    def put(self, records: Iterable[Record], mark: FileMark, *, unasked: bool = False) -> None:
        """Hold records that were read after ``mark`` was the file's.

        Args:
            records: The records.
            mark: From ``settled_mark``, before they were read.
            unasked: They were read along, before anyone needed them.
        """
        with self._lock:
            self._forget_unless(mark)
            for record in records:
                # the caller may change what it was given
                if self._hold(_copied(record)) and unasked:
                    self._unproven.add(record.id)
            while self._characters > HOT_CHARACTERS and self._held:
                memory_id, record = self._held.popitem(last=False)
                self._unproven.discard(memory_id)
                self._characters -= _size(record)
        if unasked:
            # a search that reads records along takes longer for it
            self._read_ahead(mark)

    def _hold(self, record: Record) -> bool:
        if record.id in self._held:
            return False
        self._held[record.id] = record
        self._characters += _size(record)
        return True

    def _read_ahead(self, mark: FileMark) -> None:
        with self._lock:
            self._waits += 1
            busy = self._reading_ahead is not None and self._reading_ahead.is_alive()
            if busy or not self._more_ahead or self._waits < AHEAD_AFTER or mark != self._mark:
                return
            # not a daemon: an interpreter that ends waits for this one page
            self._reading_ahead = threading.Thread(
                target=self._read_page, args=(self._offset, mark), name="dream-records"
            )
            self._reading_ahead.start()

    def _read_page(self, offset: int, mark: FileMark) -> None:
        try:
            page = self._content.page(offset, PAGE_AHEAD)
        except Exception:
            logger.debug("records could not be read ahead", exc_info=True)
            page = []
        with self._lock:
            if mark != self._mark:
                return
            self._offset += len(page)
            self._more_ahead = len(page) == PAGE_AHEAD
            for record in page:
                if self._characters + _size(record) > HOT_CHARACTERS:
                    self._more_ahead = False
                    break
                if self._hold(record):
                    # one that nobody asked for yet goes before those that somebody did
                    self._held.move_to_end(record.id, last=False)

    def _taken(self, ids: Sequence[str], mark: FileMark) -> dict[str, Record]:
        found, warm = {}, 0
        with self._lock:
            self._forget_unless(mark)
            for memory_id in ids:
                if memory_id in self._held:
                    self._held.move_to_end(memory_id)
                    found[memory_id] = _copied(self._held[memory_id])
                    # what a search read along is no sign that memories are asked for again
                    warm += memory_id not in self._unproven
            self._unproven.difference_update(ids)
            if ids:
                self._missed += _RECENT * (1.0 - warm / len(ids) - self._missed)
        return found

    def _forget_unless(self, mark: FileMark) -> None:
        if mark != self._mark:
            self._held.clear()
            self._unproven.clear()
            self._mark, self._characters = mark, 0
            self._waits = self._offset = 0
            self._more_ahead = True


def _copied(record: Record) -> Record:
    metadata = {
        key: list(value) if isinstance(value, list) else value for key, value in record.metadata.items()
    }
    return Record(record.id, record.text, metadata)


def _size(record: Record) -> int:
    metadata = record.metadata.values()
    return (
        OVERHEAD + len(record.text) + sum(len(value) for value in metadata if isinstance(value, (str, list)))
    )
