"""What a memory must be before it is written: checked here, refused whole, nothing written.

Knows the rules of Chroma and of tenants; writes nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shared_core.bank.derived import is_derived
from shared_core.dynamics.geometry import LARGEST_NORM, SMALLEST_NORM
from shared_core.errors import ConfigError, DimensionMismatchError, InvalidMemoryError
from shared_core.types import BoolArray, Embedder, FloatArray, Metadata, Where

_RESERVED = ("chroma:", "$", "#")
SMALLEST_USABLE, LARGEST_USABLE = 2 * SMALLEST_NORM, LARGEST_NORM / 2
"""Norms that stay inside what a sweep takes, whatever single precision rounds."""
_SMALLEST_INT, _LARGEST_INT = -(2**63), 2**63 - 1
_LARGEST_SPAN = 2**32 - 1


def as_rows(
    ids: Sequence[str],
    texts: Sequence[str],
    metadatas: Sequence[Metadata] | None,
    values: Sequence[str] | None,
    value_key: str | None,
    where: Where | None,
) -> list[Metadata]:
    """Return the metadata of memories that are to be added, values and the tenant's filter filled in.

    Raises:
        ConfigError, InvalidMemoryError: As ``with_values``, ``in_scope`` and ``check_memories`` say.
    """
    given = [None] * len(texts) if metadatas is None else as_list("metadatas", metadatas)
    rows = with_values(given, None if values is None else as_list("values", values), value_key)
    rows = [in_scope(row, where) for row in rows]
    check_memories(ids, texts, rows)
    return rows


def check_memories(
    ids: Sequence[str], texts: Sequence[str], metadatas: Sequence[Metadata], *, derived: bool = False
) -> None:
    """Refuse malformed memories.

    Args:
        ids: Of new memories.
        texts: One per id.
        metadatas: One per id.
        derived: Whether a repair wrote them; only then may an id have the prefix of derived memories.

    Raises:
        InvalidMemoryError: Counts differ, an id is repeated, empty or not text, a text is empty or not valid
            Unicode, or metadata is what Chroma refuses or erases.
    """
    if not len(ids) == len(texts) == len(metadatas):
        raise InvalidMemoryError(
            f"{len(texts)} texts, {len(ids)} ids, {len(metadatas)} metadatas: give as many of each"
        )
    seen: set[str] = set()
    for memory_id, text, metadata in zip(ids, texts, metadatas, strict=True):
        if not isinstance(memory_id, str) or not memory_id or "\0" in memory_id:
            raise InvalidMemoryError(f"id {memory_id!r} is not a non-empty string without null bytes")
        if memory_id in seen:
            raise InvalidMemoryError(f"id {memory_id!r} is given twice")
        if is_derived(memory_id) and not derived:
            raise InvalidMemoryError(f"id {memory_id!r} begins like that of a derived memory: use another")
        seen.add(memory_id)
        check_text(memory_id, text)
        check_metadata(metadata)


def check_text(memory_id: str, text: str) -> None:
    """Refuse a text that cannot be stored or found.

    Raises:
        InvalidMemoryError: It is empty, not a string, or not valid Unicode.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidMemoryError(f"the text of {memory_id!r} is empty or not a string")
    _check_encodable("id", memory_id)
    _check_encodable(f"the text of {memory_id!r}", text)


def check_metadata(metadata: Metadata) -> None:
    """Refuse metadata that Chroma refuses, or erases without a word.

    Raises:
        InvalidMemoryError: A key or value Chroma cannot hold; NaN and infinities among them.
    """
    _check_mapping(metadata)
    for key, value in metadata.items():
        if not isinstance(key, str) or not key or key.startswith(_RESERVED):
            raise InvalidMemoryError(
                f"metadata key {key!r} must be a non-empty string that does not start with "
                f"{', '.join(_RESERVED)}: Chroma keeps those to itself"
            )
        _check_encodable("metadata key", key)
        items = value if isinstance(value, list) else [value]
        if not items or len({type(item) for item in items}) > 1:
            raise InvalidMemoryError(f"metadata {key!r} is an empty or mixed list: {value!r}")
        for item in items:
            if not isinstance(item, (str, int, float, bool)) or isinstance(item, np.generic):
                raise InvalidMemoryError(
                    f"metadata {key!r} has a {type(item).__name__}: Chroma takes str, int, float and bool"
                )
            if isinstance(item, str):
                _check_encodable(f"metadata {key!r}", item)
            if isinstance(item, int) and not _SMALLEST_INT <= item <= _LARGEST_INT:
                raise InvalidMemoryError(
                    f"metadata {key!r} is {item}: Chroma would round it to a float, use a string"
                )
            if isinstance(item, float) and not math.isfinite(item):
                raise InvalidMemoryError(f"metadata {key!r} is {item!r}: Chroma would erase the key")


def as_matrix(embeddings: Any) -> FloatArray:
    """Return embeddings as float32, whatever they were given as.

    Raises:
        InvalidMemoryError: They are not numbers, or not all of one dimension.
    """
    try:
        with np.errstate(over="ignore"):  # becomes infinity, which is refused
            return np.asarray(embeddings, np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidMemoryError(f"embeddings are not a matrix of numbers: {error}") from None


def embedded_once(embedder: Embedder, texts: Sequence[str]) -> FloatArray:
    """Embed every distinct text once; float32, shape (len(texts), d).

    Raises:
        InvalidMemoryError: The embedder returns no matrix, or not one row for each text it was given.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    matrix = as_matrix(embedder.embed_documents(list(row_of)))
    if len(row_of) == len(texts):
        return matrix
    if matrix.ndim != 2 or len(matrix) != len(row_of):
        raise InvalidMemoryError(f"embeddings of shape {matrix.shape} do not fit {len(row_of)} texts")
    return matrix[[row_of[text] for text in texts]]


def as_list(name: str, values: Iterable[Any]) -> list[Any]:
    """Return a list of anything that is iterated once.

    Raises:
        ConfigError: It is one string (which would be read as letters), or one mapping.
    """
    # an array without a dimension says that it can be iterated
    single = isinstance(values, (str, bytes, Mapping)) or getattr(values, "ndim", 1) == 0
    if single or not isinstance(values, Iterable):
        raise ConfigError(f"{name}={values!r} must be a list, not one {type(values).__name__}")
    return list(values)


def as_ids(ids: Iterable[Any]) -> list[str]:
    """Return a list of ids that are asked for.

    Raises:
        ConfigError: It is no list, or holds what is no string.
    """
    found = as_list("ids", ids)
    for memory_id in found:
        if not isinstance(memory_id, str):
            raise ConfigError(f"id {memory_id!r} is a {type(memory_id).__name__}: ids are strings")
    return found


def as_weights(weights: Mapping[str, float]) -> list[str]:
    """Return the ids that are to get new weights.

    Raises:
        ConfigError: It is no mapping, or one of its keys is no string.
    """
    if not isinstance(weights, Mapping):
        raise ConfigError(f"weights={weights!r} is no mapping: give {{id: weight}}")
    return as_ids(list(weights))


def check_span(name: str, value: object, least: int) -> None:
    """Refuse what counts no rows of a database.

    Raises:
        ConfigError: It is no whole number, or one below ``least`` or beyond what Chroma takes.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= int(value) <= _LARGEST_SPAN:  # type: ignore[call-overload]
        raise ConfigError(f"{name}={value!r} must be a whole number from {least} to {_LARGEST_SPAN}")


def check_embeddings(matrix: FloatArray, rows: int, dimension: int | None, collection: str) -> None:
    """Refuse embeddings that do not fit.

    Args:
        matrix: Shape (rows, d).
        rows: How many texts there are.
        dimension: The collection's d, None while it is empty.
        collection: Its name, for the message.

    Raises:
        InvalidMemoryError: Not a matrix of that many rows, NaN or infinity in it, or a norm beyond any
            embedder's (zero vectors pass: sweeps skip them).
        DimensionMismatchError: d is not the collection's.
    """
    if matrix.ndim != 2 or len(matrix) != rows or not matrix.shape[1]:
        raise InvalidMemoryError(f"embeddings of shape {matrix.shape} do not fit {rows} texts")
    if not np.all(np.isfinite(matrix)):
        raise InvalidMemoryError("embeddings hold NaN or infinity")
    # Chroma would normalise it to NaN without a word
    absurd = np.flatnonzero(matrix.any(axis=1) & ~has_direction(matrix))
    if len(absurd):
        norm = float(np.linalg.norm(matrix[absurd[0]].astype(float)))
        raise InvalidMemoryError(
            f"the embedding in row {absurd[0]} has norm {norm:g}, expected one from {SMALLEST_USABLE:g} to "
            f"{LARGEST_USABLE:g}: embed it again"
        )
    if dimension is not None and dimension != matrix.shape[1]:
        raise DimensionMismatchError(
            f"embeddings of dimension {matrix.shape[1]} do not fit collection {collection!r} of dimension "
            f"{dimension}: use the embedder it was filled with"
        )


def has_direction(embeddings: FloatArray) -> BoolArray:
    """Tell which rows of a matrix (N, d) a sweep can use, shape (N,): norm neither zero nor absurd."""
    squares = np.einsum("ij,ij->i", embeddings, embeddings, dtype=np.float64)
    usable: BoolArray = (squares >= SMALLEST_USABLE**2) & (squares <= LARGEST_USABLE**2)
    return usable


def with_values(
    metadatas: Sequence[Metadata | None], values: Sequence[str] | None, value_key: str | None
) -> list[Metadata]:
    """Put each memory's value under its metadata key.

    Raises:
        ConfigError: Values are given and the bank has no value_key.
        InvalidMemoryError: Not one value per memory, or metadata that is no mapping.
    """
    for row in metadatas:
        if row is not None:
            _check_mapping(row)
    rows = [dict(row or {}) for row in metadatas]
    if values is None:
        return list(rows)
    if value_key is None:
        raise ConfigError("values need a value_key: open the bank with value_key='...'")
    if len(values) != len(rows):
        raise InvalidMemoryError(f"{len(values)} values for {len(rows)} texts: give one each")
    return [{**row, value_key: value} for row, value in zip(rows, values, strict=True)]


def in_scope(metadata: Metadata, where: Where | None) -> Metadata:
    """Return metadata that lies inside a tenant's filter, filling in what the filter demands.

    Raises:
        ConfigError: The filter is more than plain equalities, so nothing can be written through it.
        InvalidMemoryError: The metadata contradicts the filter, or is no mapping.
    """
    _check_mapping(metadata)
    if not where:
        return metadata
    plain = {key: value for key, value in where.items() if isinstance(value, (str, int, float, bool))}
    if plain.keys() != where.keys() or any(key.startswith("$") for key in plain):
        raise ConfigError(f"a bank with the filter {where!r} is read-only for texts: use plain equalities")
    for key, value in plain.items():
        if metadata.get(key, value) != value:
            raise InvalidMemoryError(f"metadata {key}={metadata[key]!r} lies outside this bank ({where!r})")
    return {**metadata, **plain}


def _check_mapping(metadata: object) -> None:
    if not isinstance(metadata, Mapping):
        raise InvalidMemoryError(
            f"metadata {metadata!r} is a {type(metadata).__name__}: give a mapping or None"
        )


def _check_encodable(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMemoryError(f"{what} is not valid Unicode: {error.reason} at {error.start}") from None
