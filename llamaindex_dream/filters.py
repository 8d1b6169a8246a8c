"""LlamaIndex's metadata filters as a Chroma ``where``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilters,
)

from shared_core.errors import ConfigError

_OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
}
_CONDITIONS = {FilterCondition.AND: "$and", FilterCondition.OR: "$or"}


def to_where(filters: MetadataFilters | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a filter as Chroma takes it; one that is written for Chroma already is passed through.

    Args:
        filters: LlamaIndex's filters, nested as deep as you like, or a Chroma ``where``.

    Raises:
        ConfigError: An operator or condition that Chroma does not have; a weaker one is never used instead.
    """
    if filters is None:
        return None
    if isinstance(filters, MetadataFilters):
        return _group(filters)
    if isinstance(filters, Mapping):
        return dict(filters) or None
    raise ConfigError(f"filters is a {type(filters).__name__}: give MetadataFilters, or a Chroma filter")


def _group(filters: MetadataFilters) -> dict[str, Any] | None:
    condition = filters.condition or FilterCondition.AND
    if condition not in _CONDITIONS:
        raise ConfigError(f"Chroma has no condition {condition.value!r} for metadata filters: use and, or")
    parts = [
        _group(part) if isinstance(part, MetadataFilters) else _one(part.key, part.operator, part.value)
        for part in filters.filters
    ]
    found = [part for part in parts if part]
    if len(found) < 2:
        return found[0] if found else None
    return {_CONDITIONS[condition]: found}


def _one(key: str, operator: FilterOperator | None, value: Any) -> dict[str, Any]:
    asked = operator or FilterOperator.EQ
    if asked not in _OPERATORS:
        raise ConfigError(
            f"Chroma has no operator {asked.value!r} for metadata ({key!r}): use one of "
            f"{', '.join(known.value for known in _OPERATORS)}"
        )
    return {key: {_OPERATORS[asked]: value}}
