"""Noticing what others add to or remove from the collection behind our back.

An embedded collection's file tells in microseconds whether anything was written; on a server the count
does, and a full comparison of ids every few seconds. That something was rewritten under the same id is
told by the file alone, and only that it was: neither what, nor beside an addition or a removal.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from shared_core.bank.chroma import ChromaContent
from shared_core.bank.file_mark import file_mark

RECHECK_SECONDS = 5.0


@dataclass(frozen=True)
class CollectionChange:
    """Ids that appeared and disappeared since the last look."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    touched: bool = False
    """Written to, while the ids stayed the same: a text or embedding may have been rewritten."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class CollectionWatch:
    """Remembers a bank's ids and tells what changed; one per reader, safe for threads."""

    def __init__(self, content: ChromaContent) -> None:
        self._content = content
        self._file = content.database_file()
        self._lock = threading.Lock()
        self._mark: object = self._fingerprint()
        self._checked = time.monotonic()
        self.ids: dict[str, None] = dict.fromkeys(content.ids())

    def poll(self, *, force: bool = False) -> CollectionChange:
        """Return what changed since the last call; cheap where nothing did."""
        with self._lock:
            mark = self._fingerprint()
            recheck = self._file is None and time.monotonic() - self._checked > RECHECK_SECONDS
            if mark == self._mark and not recheck and not force:
                return CollectionChange()
            change = None if recheck or force else self._appended()
            change = self._compared() if change is None else change
            # an addition does not count as rewriting: whoever holds a large bank would read it again for each
            if self._file is not None and mark != self._mark and not change:
                change = replace(change, touched=True)
            # only now: a read that failed must not swallow a change
            self._mark, self._checked = mark, time.monotonic()
            return change

    def _compared(self) -> CollectionChange:
        before, self.ids = self.ids, dict.fromkeys(self._content.ids())
        return CollectionChange(
            [i for i in self.ids if i not in before], [i for i in before if i not in self.ids]
        )

    def _appended(self) -> CollectionChange | None:
        """Return the new ids if records were only appended, else None; spares listing a large bank.

        Chroma lists in order of insertion: if the last id we know still stands where it stood, none before
        it went away.
        """
        if not self.ids:
            return None
        tail = self._content.ids(offset=len(self.ids) - 1)
        if not tail or tail[0] != next(reversed(self.ids)):
            return None
        self.ids.update(dict.fromkeys(tail[1:]))
        return CollectionChange(added=tail[1:])

    def _fingerprint(self) -> object:
        return self._content.count() if self._file is None else file_mark(self._file)
