"""The memory graph of a bank at one instant: what a dream cycle reads, as arrays.

Nodes are the visible memories; edges are shared entities (by an index), the same session, and the explicit
ones that repairs made. Reads only.

Source: MemDream section 3.1: a node carries an embedding, an entity set, access statistics and w [S].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.conversation import SESSION, SPEAKER, TIME
from shared_core.bank.derived import is_derived, sources_of
from shared_core.bank.entity_index import EntityIndex
from shared_core.dynamics.geometry import unit_rows
from shared_core.language import EntityExtractor, RuleExtractor

if TYPE_CHECKING:
    from shared_core.bank.edges import Edge
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.bank.records import Record
    from shared_core.types import Array, BoolArray, FloatArray

NO_SESSION = -1


@dataclass(frozen=True, kw_only=True)
class GraphKeys:
    """Metadata fields that say where a memory belongs; the defaults are those of our own pages."""

    session: str = SESSION
    speaker: str = SPEAKER
    time: str = TIME
    """ISO 8601 text, or Unix time in seconds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryGraph:
    """N visible memories in order of insertion; every array has N rows."""

    ids: list[str]
    texts: list[str]
    unit: FloatArray
    """(N, d) unit embeddings."""
    weights: FloatArray
    suspicion: FloatArray
    successes: FloatArray
    last_access: FloatArray
    """Unix time of the last retrieval, else of the page; NaN where neither is known."""
    time: FloatArray
    """Unix time of what was said; NaN where unknown."""
    speakers: list[str | None]
    session: Array
    """Number of the session, -1 where unknown."""
    sessions: list[str]
    """Names of the sessions."""
    sources: dict[int, tuple[int, ...]]
    """Of each derived memory, what it quotes."""
    explicit: dict[int, set[int]]
    """Neighbours by explicit edges."""
    entities: EntityIndex = field(repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each id."""
        return {memory_id: row for row, memory_id in enumerate(self.ids)}

    @cached_property
    def derived(self) -> BoolArray:
        """(N,) written by a repair."""
        return np.fromiter(map(is_derived, self.ids), np.bool_, len(self.ids))

    @cached_property
    def in_session(self) -> dict[int, Array]:
        """Rows of each session, in order."""
        rows = np.arange(len(self))[self.session != NO_SESSION]
        if not len(rows):
            return {}
        order = rows[np.argsort(self.session[rows], kind="stable")]
        numbers, starts = np.unique(self.session[order], return_index=True)
        return dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True))

    def day(self, row: int) -> date | None:
        """Return the day on which a memory was said, where it is known."""
        moment = self.time[row]
        return None if np.isnan(moment) else datetime.fromtimestamp(float(moment), timezone.utc).date()

    def linked(self, row: int) -> Array:
        """Return the neighbours by shared entities and explicit edges, ascending."""
        extra = np.fromiter(self.explicit.get(row, ()), np.int64)
        return np.union1d(self.entities.neighbours(row), extra)

    def degrees(self) -> Array:
        """Return deg(v), shape (N,): neighbours by entity, session and explicit edge, each once (Eq. 3)."""
        found = np.zeros(len(self), np.int64)
        for row in range(len(self)):
            linked = self.linked(row)
            same = self.session[linked] == self.session[row] if self.session[row] != NO_SESSION else ()
            mates = len(self.in_session.get(int(self.session[row]), ())) - 1
            found[row] = len(linked) - int(np.count_nonzero(same)) + max(0, mates)
        return found


def read_graph(
    bank: MemoryBank, keys: GraphKeys | None = None, *, extractor: EntityExtractor | None = None
) -> MemoryGraph:
    """Read the visible memories of a bank as a graph; embeddings are the stored ones.

    Args:
        bank: The bank; softly deleted and unborn memories are left out.
        keys: Where session, speaker and time stand in the metadata.
        extractor: Finds entities; default: the rules, with the bank's speakers as known names.
    """
    keys = keys or GraphKeys()
    embedded, matrix = bank.content.embeddings()
    place = {memory_id: row for row, memory_id in enumerate(embedded)}
    records = [record for page in bank.content.records() for record in page if record.id in place]
    columns = bank.state.columns()
    known = columns.rows
    ids = [record.id for record in records]
    deleted = columns.gather(ids, "deleted")
    kept = [
        record
        for record, gone in zip(records, deleted, strict=True)
        if not gone and (record.id in known or not is_derived(record.id))
    ]
    ids = [record.id for record in kept]
    row_of = {memory_id: row for row, memory_id in enumerate(ids)}
    times = np.array([_moment(record.metadata.get(keys.time)) for record in kept], float)
    states = bank.state.get(ids)
    accessed = np.array([state.last_access or np.nan for state in states], float)
    session, sessions = _sessions(kept, keys.session)
    speakers = [_text(record.metadata.get(keys.speaker)) for record in kept]
    return MemoryGraph(
        ids=ids,
        texts=[record.text for record in kept],
        unit=unit_rows(matrix[[place[memory_id] for memory_id in ids]]) if ids else matrix,
        weights=columns.gather(ids, "weight"),
        suspicion=columns.gather(ids, "suspicion"),
        successes=columns.gather(ids, "successes"),
        last_access=np.fmax(accessed, times),
        time=times,
        speakers=speakers,
        session=session,
        sessions=sessions,
        sources=_sources(kept, row_of),
        explicit=_explicit(bank.state.edges(), row_of),
        entities=EntityIndex(_entities(kept, speakers, times, extractor)),
    )


def _entities(
    records: Sequence[Record],
    speakers: Sequence[str | None],
    times: FloatArray,
    extractor: EntityExtractor | None,
) -> list[list[str]]:
    names = {speaker for speaker in speakers if speaker}
    found: list[list[str]] = []
    for record, speaker, moment in zip(records, speakers, times, strict=True):
        day = None if np.isnan(moment) else datetime.fromtimestamp(float(moment), timezone.utc).date()
        extract = extractor or RuleExtractor(day=day, known_names=names)
        found.append(sorted({entity.norm for entity in extract(record.text, speaker=speaker)}))
    return found


def _sessions(records: Sequence[Record], key: str) -> tuple[Array, list[str]]:
    numbers: dict[str, int] = {}
    found = [_text(record.metadata.get(key)) for record in records]
    session = [NO_SESSION if name is None else numbers.setdefault(name, len(numbers)) for name in found]
    return np.asarray(session, np.int64), list(numbers)


def _sources(records: Sequence[Record], row_of: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
    return {
        row: tuple(row_of[source] for source in sources_of(record.metadata) if source in row_of)
        for row, record in enumerate(records)
        if is_derived(record.id)
    }


def _explicit(edges: Sequence[Edge], row_of: Mapping[str, int]) -> dict[int, set[int]]:
    linked: dict[int, set[int]] = defaultdict(set)
    for edge in edges:
        if edge.source in row_of and edge.target in row_of:
            linked[row_of[edge.source]].add(row_of[edge.target])
            linked[row_of[edge.target]].add(row_of[edge.source])
    return dict(linked)


def _moment(value: object) -> float:
    """Return Unix time; NaN for what says no time, since metadata are the user's."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return float("nan")
    if isinstance(value, (int, float)):
        return float(value)
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return float("nan")
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _text(value: object) -> str | None:
    return None if value is None else str(value)
