"""The file of cached embeddings: unit vectors, norms, moments, ids, and which write last touched each row.

A line of JSON, then the columns one after another, and the ids as JSON; one SHA-256 over all of it. Knows
neither Chroma nor when a file is stale, see ``matrix_cache``.

Source: none, ours [O].
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.dynamics.blocks import blocks
from shared_core.dynamics.geometry import unit_rows
from shared_core.dynamics.running_moments import Moments

if TYPE_CHECKING:
    from shared_core.types import Array, FloatArray

FORMAT = 2
_ALIGNMENT = 64
_UNFINISHED = ".dream-"
_LEFT_SECONDS = 600.0
"""Age from which an unfinished file is one that a dead process left: writing takes seconds."""
_BLOCK_ELEMENTS = 1 << 16
"""Half a megabyte in double precision: the temporaries stay in cache."""
_NEVER = (-1, -1, -1)
"""Mark of a row that Chroma's table does not have, or no longer."""


@dataclass(frozen=True, eq=False)
class CachedVectors:
    """The embeddings of N memories."""

    ids: list[str]
    unit: FloatArray
    """(N, d) float32 rows of norm 1; zeros where an embedding has no direction."""
    norms: FloatArray
    """(N,) float64, of the stored embeddings."""
    moments: Moments
    """Of the rows of ``unit`` that are not zero."""

    @classmethod
    def of(cls, ids: list[str], embeddings: FloatArray) -> CachedVectors:
        """Return embeddings as stored, (N, d) float32, in this form; they are overwritten."""
        norms = np.empty(len(ids))
        for part in blocks(len(ids), max(1, _BLOCK_ELEMENTS // embeddings.shape[1])):
            norms[part] = np.linalg.norm(embeddings[part].astype(np.float64), axis=1)
            embeddings[part] = unit_rows(embeddings[part])
        return cls.divided(ids, embeddings, norms)

    @classmethod
    def divided(cls, ids: Sequence[str], unit: FloatArray, norms: FloatArray) -> CachedVectors:
        """Return unit vectors, (N, d), of embeddings with these norms in this form."""
        return cls(list(ids), unit, norms, moments_of(unit, norms))


@dataclass(frozen=True, eq=False)
class RowMarks:
    """What Chroma's table says of the writes to its rows."""

    ids: list[str] = field(default_factory=list)
    """M ids."""
    marks: Array = field(default_factory=lambda: np.empty((0, len(_NEVER)), np.int64))
    """(M, 3) int64: the row's number in the table, its last write, and its creation in Unix seconds."""

    @classmethod
    def read(cls, ids: list[str], marks: bytes) -> RowMarks:
        """Return ids and the bytes of their marks in this form.

        Raises:
            ValueError: They do not belong together.
        """
        return cls(ids, np.frombuffer(marks, np.int64).reshape(len(ids), len(_NEVER)))


@dataclass(frozen=True, eq=False)
class MatrixFile:
    """What a file holds."""

    vectors: CachedVectors
    marks: Array
    """(N, 3) int64, see ``marks_of``."""
    version: str
    """Of the collection when the vectors were read."""


def marks_of(ids: Sequence[str], written: RowMarks) -> Array:
    """Return what changes when a row is written to, (N, 3) int64; negative where nothing is known of it."""
    if list(ids) == written.ids:
        return written.marks
    row_of = {memory_id: row for row, memory_id in enumerate(written.ids)}
    rows = [row_of.get(memory_id, -1) for memory_id in ids]
    # -1 is the row that is appended
    return np.vstack([written.marks, np.array([_NEVER], np.int64)])[np.array(rows, np.intp)]


def moments_of(unit: FloatArray, norms: FloatArray) -> Moments:
    """Return the moments of those unit vectors, (N, d), that have a direction, by their norms, (N,)."""
    directed = (norms > 0.0) & np.isfinite(norms)
    return Moments.of(unit if directed.all() else unit[directed])


def read_file(path: Path) -> MatrixFile:
    """Return what a file holds; its arrays cannot be written to.

    Raises:
        OSError: It cannot be read.
        ValueError, TypeError, KeyError: It is damaged, or of another format.
    """
    data = path.read_bytes()
    start = data.index(b"\n") + 1
    header = dict(json.loads(data[:start]))
    if header.pop("sha256") != _digest(header, [memoryview(data)[start:]]) or header["format"] != FORMAT:
        raise ValueError(f"{path} is damaged, or of another format")
    columns: dict[str, FloatArray] = {}
    for name, (kind, shape) in _layout(header["rows"], header["dimension"]).items():
        columns[name] = np.frombuffer(data, kind, int(np.prod(shape)), start).reshape(shape)
        start += columns[name].nbytes
    moments = Moments(header["directed"], columns["mean"], columns["scatter"])
    vectors = CachedVectors(json.loads(data[start:]), columns["unit"], columns["norms"], moments)
    return MatrixFile(vectors, columns["marks"], header["version"])


def write_file(path: Path, held: MatrixFile) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(exist_ok=True)
    _remove_left(path.parent)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_UNFINISHED, delete=False) as file:
        try:
            for part in _encoded(held):
                file.write(part)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _remove_left(folder: Path) -> None:
    """Remove what processes left that were killed while they wrote: each would be as large as the cache."""
    for file in folder.glob(f"{_UNFINISHED}*"):
        with suppress(FileNotFoundError):  # of two that clear up, one is later
            if time.time() - file.stat().st_mtime > _LEFT_SECONDS:
                file.unlink()


def _layout(rows: int, dim: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        "unit": ("<f4", (rows, dim)),
        "norms": ("<f8", (rows,)),
        "mean": ("<f8", (dim,)),
        "scatter": ("<f8", (dim,)),
        "marks": ("<i8", (rows, len(_NEVER))),
    }


def _encoded(held: MatrixFile) -> list[Any]:
    vectors, moments = held.vectors, held.vectors.moments
    rows, dim = vectors.unit.shape
    columns = {"unit": vectors.unit, "norms": vectors.norms, "marks": held.marks}
    columns |= {"mean": moments.mean, "scatter": moments.scatter}
    parts: list[Any] = [
        np.ascontiguousarray(columns[name], kind).data for name, (kind, _) in _layout(rows, dim).items()
    ]
    parts.append(json.dumps(vectors.ids).encode())
    header = {
        "format": FORMAT,
        "version": held.version,
        "rows": rows,
        "dimension": dim,
        "directed": moments.count,
    }
    head = json.dumps({**header, "sha256": _digest(header, parts)}).encode()
    # numbers that begin at a multiple of their size are multiplied where they lie
    return [head.ljust(len(head) + -(len(head) + 1) % _ALIGNMENT) + b"\n", *parts]


def _digest(header: Mapping[str, Any], parts: Sequence[Any]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
