"""The attack case file: a memory, some of it poison, and queries with and without the trigger (design 6).

``poison`` is ground truth for scoring. It never reaches a defence: nothing here writes it to a collection.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shared_core.errors import ConfigError


class CaseMemory(BaseModel):
    """One memory of a case."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(min_length=1)
    key: str = Field(min_length=1)
    """The embedded text."""
    value: str = ""
    """Its solution, where there is one."""
    origin: str = ""
    """Who wrote it, where that is known."""
    poison: bool = False


class AttackCase(BaseModel):
    """One attack on one memory; unknown fields of the file are ignored."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(min_length=1)
    memories: Sequence[CaseMemory] = Field(min_length=1)
    triggered_queries: Sequence[str] = ()
    benign_queries: Sequence[str] = ()

    @model_validator(mode="after")
    def _ids_are_unique(self) -> AttackCase:
        ids = [memory.id for memory in self.memories]
        if len(set(ids)) != len(ids):
            twice = next(memory_id for memory_id in ids if ids.count(memory_id) > 1)
            raise ValueError(f"memory id {twice!r} is given twice")
        if not (self.triggered_queries or self.benign_queries):
            raise ValueError("there are no queries")
        return self

    @property
    def poison_ids(self) -> frozenset[str]:
        """Ids of the poison, for scoring."""
        return frozenset(memory.id for memory in self.memories if memory.poison)


Record = tuple[str, str]
"""A memory before it has an id: key and value."""


def assemble_case(
    name: str,
    benign: Sequence[Record],
    poison: Sequence[Record],
    *,
    triggered_queries: Sequence[str],
    benign_queries: Sequence[str],
    seed: int = 0,
) -> AttackCase:
    """Put poison at seeded places among benign memories, and number them all alike.

    Neither an id nor the order tells which memory is poison; the benign ones keep their order.

    Args:
        name: Of the case.
        benign: Key and value of each.
        poison: Key and value of each.
        triggered_queries: With the trigger, or about the victim.
        benign_queries: Without.
        seed: Of the places; the name is mixed in, so that cases differ.
    """
    total = len(benign) + len(poison)
    draw = random.Random(f"{name}/{seed}")  # noqa: S311 (a draw that can be repeated, no secret)
    places = set(draw.sample(range(total), len(poison)))
    hidden, open_ones = iter(draw.sample(list(poison), len(poison))), iter(benign)
    memories = []
    for row in range(total):
        key, value = next(hidden if row in places else open_ones)
        memories.append(CaseMemory(id=f"m{row:05}", key=key, value=value, poison=row in places))
    return AttackCase(
        name=name,
        memories=memories,
        triggered_queries=list(triggered_queries),
        benign_queries=list(benign_queries),
    )


def load_case(path: Path) -> AttackCase:
    """Read a case file.

    Raises:
        ConfigError: There is no such file, it is not JSON, or not a case; the message names the field.
    """
    return parse_case(read_json(path), str(path))


def bundled_case() -> AttackCase:
    """Return the small office memory that comes with the package, with an attack on it."""
    source = files("shared_core.samples") / "agent_memory.json"
    return parse_case(json.loads(source.read_text(encoding="utf-8")), "the bundled sample")


def parse_case(value: Any, source: str) -> AttackCase:
    """Validate a parsed case file.

    Raises:
        ConfigError: It is not a case; the message names ``source`` and the field.
    """
    try:
        return AttackCase.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the case"
        raise ConfigError(f"{source} is not an attack case: {where}: {first['msg']}") from None


def read_json(path: Path) -> Any:
    """Read a JSON file, or one JSON object per line where the name ends in .jsonl.

    Raises:
        ConfigError: There is no such file, or it is not JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
