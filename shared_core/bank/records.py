"""What is read from and written to a collection, and in which portions; knows nothing of chromadb."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared_core.types import FloatArray, Metadata, Where

BATCH_BYTES = 16_000_000
"""Of one write; a Chroma server refuses requests above 40 MB."""
Space = str
"""Distance space of a collection: ``cosine``, ``l2`` or ``ip``."""


@dataclass(frozen=True)
class Record:
    """One stored record; ``text`` is "" where the collection holds none."""

    id: str
    text: str
    metadata: Metadata

    @property
    def digest(self) -> str:
        """SHA-256 of text and metadata, as hexadecimal digits: another text, value or owner has another."""
        metadata = {name: _rounded(value) for name, value in self.metadata.items()}
        told = json.dumps([self.text, metadata], sort_keys=True, default=repr)
        return hashlib.sha256(told.encode()).hexdigest()


def _rounded(value: Any) -> Any:
    """Return a metadata value as a digest tells it: Chroma gives back a float a digit off, and -0 as 0."""
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return {"float": f"{value + 0.0:.12g}"} if isinstance(value, float) else value


@dataclass(frozen=True)
class Neighbours:
    """What the index returned, most similar first.

    ``similarity`` has shape (n,); ``unit`` tells whether the index's order is the order of cosines.
    ``records`` holds the records themselves, where they were asked for.
    """

    ids: list[str]
    similarity: FloatArray
    unit: bool
    records: list[Record] = field(default_factory=list)


def one_operator(where: Where | None) -> dict[str, Any] | None:
    """Return a filter as Chroma takes it: it refuses several keys side by side."""
    if not where:
        return None
    return dict(where) if len(where) == 1 else {"$and": [{key: value} for key, value in where.items()]}


def batches(sizes: Sequence[int], rows: int) -> Iterator[slice]:
    """Yield slices of at most ``rows`` rows and BATCH_BYTES, at least one row each."""
    start, total = 0, 0
    for row, size in enumerate(sizes):
        if row > start and (row - start == rows or total + size > BATCH_BYTES):
            yield slice(start, row)
            start, total = row, 0
        total += size
    if sizes:
        yield slice(start, len(sizes))
