"""The diagnosis ``coupling`` for a stored bank: its texts and embedder in, flags, warnings and reasons out.

Joins ``dynamics.coupling`` (which knows no storage) to a bank's content; reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics import CouplingResult, Group, find_coupling
from shared_core.dynamics.geometry import unit_rows
from shared_core.errors import ConfigError, DimensionMismatchError

if TYPE_CHECKING:
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.config import ForgettingConfig
    from shared_core.types import Embedder, FloatArray

SHOWN_SPAN = 80
CHECKED_KEYS = 5
SAME_MODEL = 0.5
"""Median cosine of keys embedded anew with their stored embeddings, below which the model is another [O]."""


@dataclass(frozen=True)
class Diagnosed:
    """What a sweep needs of the diagnosis; empty for preset ``paper``."""

    coupling: CouplingResult | None = None
    warnings: list[str] = field(default_factory=list)

    def reason(self, row: int) -> str | None:
        """Return why a memory was flagged, in words; None where it was not."""
        group = self.coupling.group_of(row) if self.coupling is not None else None
        return None if group is None else _reason(group)


def diagnose(
    bank: MemoryBank, ids: Sequence[str], embeddings: FloatArray, config: ForgettingConfig
) -> Diagnosed:
    """Find coupling among the memories that take part in a sweep; nothing for another diagnosis.

    Args:
        bank: Its texts, its values (metadata field ``value_key``) and its embedder are used.
        ids: N ids.
        embeddings: (N, d) as stored, every row with a direction.
        config: Diagnosis, constants and seed.

    Raises:
        ConfigError: The bank has no embedder, or one that does not give the stored embeddings.
        DimensionMismatchError: The embedder's vectors have another dimension than the stored ones.
    """
    if config.diagnosis != "coupling":
        return Diagnosed()
    if bank.embedder is None:
        raise ConfigError(
            "preset 'hardened' embeds parts of the memories again and this bank has no embedder: open it "
            "with embedder=..., the one that it was filled with (dream forget: --embedder minilm, or "
            "the directory of a model)"
        )
    keys, values = _texts(bank, ids)
    warnings = _warnings(bank, len(ids), values, config)
    unit = unit_rows(np.asarray(embeddings, np.float32))
    embed = _embedding(bank.embedder, unit.shape[1])
    _check_model(keys, unit, embed)
    found = find_coupling(keys, values, unit, embed, replace(config.coupling, seed=config.seed))
    return Diagnosed(found, warnings + _limits(found, config))


def _texts(bank: MemoryBank, ids: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return keys, and values where any memory has one."""
    records = bank.content.get(ids)
    # removed by another process since the embeddings were read: nothing to compare
    keys = [records[memory_id].text if memory_id in records else "" for memory_id in ids]
    if bank.value_key is None:
        return keys, None
    stored = [records[i].metadata.get(bank.value_key) if i in records else None for i in ids]
    values = ["" if value is None else str(value) for value in stored]
    return keys, values if any(values) else None


def _warnings(bank: MemoryBank, count: int, values: list[str] | None, config: ForgettingConfig) -> list[str]:
    if not count:
        return ["the bank is empty: there is nothing to diagnose"]
    found = []
    if values is None:
        why = (
            "the bank has no value_key (dream forget: --value-key NAME)"
            if bank.value_key is None
            else f"no memory has a value under {bank.value_key!r}"
        )
        found.append(f"{why}: without values only a span that extends several existing keys can be found")
    least = config.coupling.min_outside
    if count < least + config.coupling.min_members:
        found.append(
            f"the bank has {count} memories: a group is compared with at least {least} others, so that "
            "nothing can be flagged"
        )
    return found


def _limits(found: CouplingResult, config: ForgettingConfig) -> list[str]:
    """Return warnings about what was found, or was not looked at, because of a limit."""
    limits = [
        f"{len(group.members)} memories share {_span(group.key_span)!r} and were NOT flagged: with them more "
        f"than {config.coupling.max_flagged:.0%} of the bank would be; look at them yourself"
        for group in found.groups
        if not group.flagged
    ]
    if found.unexamined:
        limits.append(
            f"{found.unexamined} sets of similar memories were not looked at: the bank shares more text than "
            "max_candidates, max_measured and max_work allow for"
        )
    return limits


def _reason(group: Group) -> str:
    others = len(group.members) - 1
    if not group.payload_span:
        return f"shares {_span(group.key_span)!r} with {others} others, which extend other memories' requests"
    return (
        f"shares {_span(group.key_span)!r} in its request and {_span(group.payload_span)!r} in its value "
        f"with {others} others"
    )


def _span(span: str) -> str:
    text = span.strip(" .,;:!?()[]'\"") or span
    return text if len(text) <= SHOWN_SPAN else f"{text[: SHOWN_SPAN - 3]}..."


def _embedding(embedder: Embedder, dimension: int) -> Callable[[list[str]], FloatArray]:
    def embed(texts: list[str]) -> FloatArray:
        matrix = np.asarray(embedder.embed_documents(texts), np.float32)
        if matrix.shape != (len(texts), dimension):
            raise DimensionMismatchError(
                f"the embedder gives an array of shape {matrix.shape} for {len(texts)} texts and the "
                f"collection has dimension {dimension}: pass the embedder that the collection was filled with"
            )
        if not np.isfinite(matrix).all():
            raise ConfigError("the embedder gives values that are not finite for parts of the memories")
        return unit_rows(matrix)

    return embed


def _check_model(keys: list[str], unit: FloatArray, embed: Callable[[list[str]], FloatArray]) -> None:
    """Embed a few keys again: another model of the same dimension would be wrong without a word."""
    rows = [row for row, key in enumerate(keys) if key.strip()]
    rows = rows[:: max(1, len(rows) // CHECKED_KEYS)][:CHECKED_KEYS]
    if not rows:
        return
    cosines = np.einsum("ij,ij->i", embed([keys[row] for row in rows]), unit[rows])
    if (agreement := float(np.median(cosines))) < SAME_MODEL:
        raise ConfigError(
            f"the embedder does not give the stored embeddings (median cosine {agreement:.2f} on {len(rows)} "
            f"keys, expected {SAME_MODEL} or more): pass the embedder that the collection was filled with"
        )
