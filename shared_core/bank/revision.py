"""What an update asks for, apart from what the memory is: applied to the record as it stands under the lock.

Embedding may take long and so happens before; reading the record before would undo what others write
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared_core.bank import intake
from shared_core.bank.records import Record
from shared_core.types import FloatArray, Metadata, Where


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A new text, metadata or embedding for one memory; None keeps what is stored."""

    text: str | None
    metadata: Metadata | None
    embedding: FloatArray | None
    """Shape (1, d)."""
    embed: Callable[[list[str]], FloatArray]

    @classmethod
    def of(
        cls,
        record: Record,
        text: str | None,
        metadata: Metadata | None,
        embedding: FloatArray | None,
        *,
        embed: Callable[[list[str]], FloatArray],
        where: Where | None,
    ) -> Revision:
        """Return a revision of a record as it is now, its new text embedded where no embedding is given.

        Raises:
            InvalidMemoryError: The text or metadata is malformed, or outside the tenant ``where``.
        """
        if text is not None:
            intake.check_text(record.id, text)
        if metadata is not None:
            metadata = intake.in_scope(metadata, where)
        matrix = None if embedding is None else intake.as_matrix([embedding])
        if matrix is None and text not in (None, record.text):
            matrix = embed([str(text)])
        return cls(text=text, metadata=metadata, embedding=matrix, embed=embed)

    def apply(self, record: Record, old: FloatArray, collection: str) -> tuple[Record, FloatArray]:
        """Return the record and embedding, shape (d,), that shall be stored.

        Raises:
            InvalidMemoryError: Metadata or embedding cannot be stored.
            DimensionMismatchError: The embedding does not fit the collection.
        """
        after = Record(
            record.id,
            record.text if self.text is None else self.text,
            record.metadata if self.metadata is None else self.metadata,
        )
        intake.check_metadata(after.metadata)
        matrix = self.embedding
        if matrix is None:
            if after.text == record.text:
                return after, old
            matrix = self.embed([after.text])  # the text was the same before another rewrote it
        intake.check_embeddings(matrix, 1, len(old), collection)
        return after, matrix[0]
