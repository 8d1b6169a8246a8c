"""Embeddings of a large embedded collection in a file beside it: to open or sweep it need not read them anew.

The file is used only where it is whole (SHA-256) and of this very state of the collection: the number of
Chroma's last write to it, the database's inode, and the ids in order. Of a file of an earlier state those
rows are used that were not written to since, and the others are read, see ``current``. Anything else is as
good as no file: the embeddings are read from the collection and written anew. It may be deleted at any time.

Chroma tells nobody the numbers of its writes, so they are read from its database, in a process of its own: a
second SQLite in this one would release the locks of Chroma's. Where that fails nothing is cached.

Source: none, ours [O].
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.matrix_file import (
    CachedVectors,
    MatrixFile,
    RowMarks,
    marks_of,
    moments_of,
    read_file,
    write_file,
)

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.types import FloatArray

LEAST_ROWS = 5_000
"""Smaller banks are read as fast from Chroma."""
MOST_CHANGED = 0.25
"""Share of rows up to which those that changed are read one by one, and not the whole collection."""
FOLDER = "dream_vectors"
_ASK_SECONDS = 10.0
_LAST_WRITE = """
import array, json, sqlite3, sys
address, collection, rows = sys.argv[1:]
database = sqlite3.connect(address, uri=True, isolation_level=None)
database.execute("BEGIN")
segments = database.execute(
    "SELECT s.id, s.scope, m.seq_id, (SELECT max(e.id) FROM embeddings e WHERE e.segment_id = s.id) "
    "FROM segments s LEFT JOIN max_seq_id m ON m.segment_id = s.id WHERE s.collection = ? ORDER BY s.id",
    (collection,),
).fetchall()
last = database.execute(
    "SELECT seq_id, created_at FROM embeddings_queue WHERE topic LIKE '%/' || ? ORDER BY seq_id DESC LIMIT 1",
    (collection,),
).fetchall()
written = marks = None
known = [row for row in segments if row[1] == "METADATA"]
# a write that waits in the queue is in no row yet
if rows == "rows" and len(known) == 1 and not (last and last[0][0] > (known[0][2] or 0)):
    written = []
    marks = array.array("q")
    for memory_id, *mark in database.execute(
        "SELECT embedding_id, id, seq_id, CAST(strftime('%s', created_at) AS INTEGER) FROM embeddings "
        "WHERE segment_id = ? ORDER BY id",
        (known[0][0],),
    ):
        written.append(memory_id)
        marks.extend(mark)
print(json.dumps([segments, last, written]), flush=True)
if marks:
    # read as they are: a hundred thousand rows as text cost the asking process more than the query
    sys.stdout.buffer.write(marks)
"""

logger = logging.getLogger(__name__)


class MatrixCache:
    """The cached embeddings of one collection; does nothing where it is not embedded, or is one tenant's.

    Args:
        content: The collection.
    """

    def __init__(self, content: ChromaContent) -> None:
        self._content = content
        self._database = None if content.where else content.database_file()
        self._key = content.key
        self._file = Path(FOLDER, f"{self._key}.f32")
        if self._database is not None:
            self._file = self._database.with_name(FOLDER) / self._file.name

    def covers(self, rows: int) -> bool:
        """Tell whether a bank of so many memories is cached."""
        return self._database is not None and rows >= LEAST_ROWS

    def exists(self) -> bool:
        """Tell whether there is a file, of whatever state."""
        return self._file.is_file()

    def version(self) -> str | None:
        """Return what changes with every write to the collection; None where that cannot be told."""
        return self._ask()[0]

    def load(self, ids: Sequence[str]) -> tuple[FloatArray, str] | None:
        """Return the unit embeddings, (N, d), of all ids of the bank, in order, and their version.

        None where they are not cached, or a write has come since.
        """
        if not self.covers(len(ids)) or not self._file.is_file():
            return None
        version = self.version()
        held = self._read() if version is not None else None
        if version is None or held is None or held.version != version or held.vectors.ids != list(ids):
            logger.debug("%s is of another state of the collection", self._file)
            return None
        return held.vectors.unit, version

    def current(self, ids: Sequence[str]) -> CachedVectors | None:
        """Return the embeddings of all ids of the bank, in order; what was written since is read from it.

        The file is brought up to date. None where there is none to begin with, or too much has changed.
        """
        if not self.covers(len(ids)) or not self._file.is_file():
            return None
        version, _ = self._ask()
        held = self._read() if version is not None else None
        if held is None:
            return None
        if held.version == version and held.vectors.ids == list(ids):
            return held.vectors
        version, written = self._ask(rows=True)
        if version is None or written is None:
            return None
        found = self._extended(held, list(ids), written)
        if found is not None and self.version() == version:
            self._write(found, written, version)
        return found

    def save(self, vectors: CachedVectors, version: str) -> bool:
        """Keep the embeddings of all memories of the bank, in order; tell whether they are of this version.

        A file that cannot be written is logged, and costs time only.

        Args:
            vectors: As read by a client that was opened after ``version`` was read.
            version: From ``version``; nothing is kept if it is another by now.
        """
        if not self.covers(len(vectors.ids)):
            return False
        now, written = self._ask(rows=True)
        if now != version:
            return False
        self._write(vectors, written or RowMarks(), version)
        return True

    # ---- inner

    def _extended(self, held: MatrixFile, ids: list[str], written: RowMarks) -> CachedVectors | None:
        """Return the vectors of these ids: the held ones that were not written to since, the others read."""
        before = held.vectors
        row_of = {memory_id: row for row, memory_id in enumerate(before.ids)}
        rows = np.array([row_of.get(memory_id, -1) for memory_id in ids], np.intp)
        marks = marks_of(ids, written)
        same = (rows >= 0) & (marks[:, 0] >= 0) & (held.marks[rows] == marks).all(axis=1)
        wanted = [ids[row] for row in np.flatnonzero(~same)]
        if len(wanted) > MOST_CHANGED * len(ids):
            return None
        read: dict[str, FloatArray] = {}
        if wanted:
            # our own index may hold what another process has rewritten since
            with self._content.anew() as fresh:
                read = fresh.get_embeddings(wanted)
        if len(read) < len(wanted):
            return None
        unit = np.empty((len(ids), before.unit.shape[1]), np.float32)
        norms = np.empty(len(ids))
        unit[same], norms[same] = before.unit[rows[same]], before.norms[rows[same]]
        gone = np.ones(len(before.ids), bool)
        gone[rows[same]] = False
        moments = before.moments.without(moments_of(before.unit[gone], before.norms[gone]))
        if wanted:
            came = CachedVectors.of(wanted, np.array([read[memory_id] for memory_id in wanted], np.float32))
            unit[~same], norms[~same] = came.unit, came.norms
            moments = moments.merged(came.moments)
        return CachedVectors(ids, unit, norms, moments)

    def _ask(self, *, rows: bool = False) -> tuple[str | None, RowMarks | None]:
        """Return the version, and of each id by which writes it came and was last changed, if asked for."""
        if self._database is None:
            return None, None
        address = f"{self._database.resolve().as_uri()}?mode=ro"
        command = [sys.executable, "-I", "-S", "-c", _LAST_WRITE, address, self._key, "rows" if rows else ""]
        try:
            done = subprocess.run(  # noqa: S603
                command, check=True, capture_output=True, timeout=_ASK_SECONDS, stdin=subprocess.DEVNULL
            )
            told, _, marks = done.stdout.partition(b"\n")
            segments, last, written = json.loads(told)
            # a collection nobody wrote to has no number, and neither has a Chroma that counts otherwise
            if not any(isinstance(seq_id, int) for _, _, seq_id, _ in segments):
                return None, None
            version = json.dumps([segments, last, self._database.stat().st_ino])
            return version, None if written is None else RowMarks.read(written, marks)
        except (OSError, ValueError, TypeError, subprocess.SubprocessError):
            logger.debug(
                "the collection's last write cannot be told: its embeddings are not cached", exc_info=True
            )
            return None, None

    def _read(self) -> MatrixFile | None:
        try:
            return read_file(self._file)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            logger.warning("%s cannot be read, and is written anew", self._file)
            return None

    def _write(self, vectors: CachedVectors, written: RowMarks, version: str) -> None:
        try:
            write_file(self._file, MatrixFile(vectors, marks_of(vectors.ids, written), version))
        except OSError:
            logger.warning("%s cannot be written: the next opening reads the collection", self._file)
