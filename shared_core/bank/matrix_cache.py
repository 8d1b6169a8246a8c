"""Unit embeddings of a large embedded collection in one file beside it: opening need not read them anew.

The file is used only where it is whole (SHA-256) and of this very state of the collection: the number of
Chroma's last write to it, the database's inode, and the ids in order. Anything else is as good as no file:
the embeddings are read from the collection and written anew. It may be deleted at any time.

Chroma tells nobody the number of its last write, so it is read from its database, in a process of its own: a
second SQLite in this one would release the locks of Chroma's. Where that fails nothing is cached.

Source: none, ours [O].
"""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.types import FloatArray

LEAST_ROWS = 5_000
"""Smaller banks are read as fast from Chroma."""
FOLDER = "dream_vectors"
_FORMAT = 1
_ALIGNMENT = 64
_ASK_SECONDS = 10.0
_LAST_WRITE = """
import json, pathlib, sqlite3, sys
file, collection = sys.argv[1:]
database = sqlite3.connect(pathlib.Path(file).as_uri() + "?mode=ro", uri=True)
print(json.dumps([
    database.execute(
        "SELECT s.id, s.scope, m.seq_id, (SELECT max(e.id) FROM embeddings e WHERE e.segment_id = s.id) "
        "FROM segments s LEFT JOIN max_seq_id m ON m.segment_id = s.id WHERE s.collection = ? ORDER BY s.id",
        (collection,),
    ).fetchall(),
    database.execute(
        "SELECT seq_id, created_at FROM embeddings_queue WHERE topic LIKE '%/' || ? "
        "ORDER BY seq_id DESC LIMIT 1",
        (collection,),
    ).fetchall(),
]))
"""

logger = logging.getLogger(__name__)


class MatrixCache:
    """The cached embeddings of one collection; does nothing where it is not embedded, or is one tenant's.

    Args:
        content: The collection.
    """

    def __init__(self, content: ChromaContent) -> None:
        self._database = None if content.where else content.database_file()
        self._key = content.key
        self._file = Path(FOLDER, f"{self._key}.f32")
        if self._database is not None:
            self._file = self._database.with_name(FOLDER) / self._file.name

    def covers(self, rows: int) -> bool:
        """Tell whether a bank of so many memories is cached."""
        return self._database is not None and rows >= LEAST_ROWS

    def version(self) -> str | None:
        """Return what changes with every write to the collection; None where that cannot be told."""
        if self._database is None:
            return None
        command = [sys.executable, "-I", "-S", "-c", _LAST_WRITE, str(self._database.resolve()), self._key]
        try:
            done = subprocess.run(  # noqa: S603
                command,
                check=True,
                capture_output=True,
                text=True,
                timeout=_ASK_SECONDS,
                stdin=subprocess.DEVNULL,
            )
            segments, last = json.loads(done.stdout)
            # a collection nobody wrote to has no number, and neither has a Chroma that counts otherwise
            if not any(isinstance(seq_id, int) for _, _, seq_id, _ in segments):
                return None
            return json.dumps([segments, last, self._database.stat().st_ino])
        except (OSError, ValueError, TypeError, subprocess.SubprocessError):
            logger.debug(
                "the collection's last write cannot be told: its embeddings are not cached", exc_info=True
            )
            return None

    def load(self, ids: Sequence[str]) -> tuple[FloatArray, str] | None:
        """Return the unit embeddings, (N, d), of all ids of the bank, in order, and their version.

        None where they are not cached.
        """
        if not self.covers(len(ids)) or not self._file.is_file():
            return None
        version = self.version()
        if version is None:
            return None
        try:
            data = self._file.read_bytes()
            start = data.index(b"\n") + 1
            header = json.loads(data[:start])
            matrix = np.frombuffer(data, "<f4", offset=start).reshape(header["rows"], header["dimension"])
        except (OSError, ValueError, TypeError, KeyError):
            logger.warning("%s cannot be read, and is written anew", self._file)
            return None
        if header != _header(version, ids, matrix):
            logger.debug("%s is of another state of the collection, or damaged", self._file)
            return None
        return matrix, version

    def save(self, ids: Sequence[str], matrix: FloatArray, version: str) -> bool:
        """Keep unit embeddings; tell whether they are of this version.

        A file that cannot be written is logged, and costs time only.

        Args:
            ids: All ids of the bank, in order.
            matrix: Shape (N, d), as read by a client that was opened after ``version`` was read.
            version: From ``version``; nothing is kept if it is another by now.
        """
        if not self.covers(len(ids)) or version != self.version():
            return False
        matrix = np.ascontiguousarray(matrix, "<f4")
        head = json.dumps(_header(version, ids, matrix)).encode()
        # numbers that begin at a multiple of their size are multiplied where they lie
        head = head.ljust(len(head) + -(len(head) + 1) % _ALIGNMENT)
        try:
            self._file.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, prefix=".", delete=False) as file:
                try:
                    file.write(head + b"\n")
                    file.write(matrix.data)
                    file.close()
                    Path(file.name).replace(self._file)
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError:
            logger.warning("%s cannot be written: the next opening reads the collection", self._file)
        return True


def _header(version: str, ids: Sequence[str], matrix: FloatArray) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": version,
        "rows": matrix.shape[0],
        "dimension": matrix.shape[1],
        "sha256": hashlib.sha256(matrix.data).hexdigest(),
        "ids": hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest(),
    }
