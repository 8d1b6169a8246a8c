"""The memory graph of a bank at one instant: what a dream cycle reads, as arrays.

Nodes are the visible memories; edges are shared entities (by an index), the same session, and the explicit
ones that repairs made. Reads only.

Source: MemDream section 3.1: a node carries an embedding, an entity set, access statistics and w [S].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.bank.conversation import SESSION, SPEAKER, TIME
from shared_core.bank.derived import is_derived, sources_of
from shared_core.bank.entity_cache import RULES
from shared_core.bank.entity_index import EntityIndex
from shared_core.bank.tenants import Owner, owner_of
from shared_core.dynamics.geometry import unit_rows

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.columns import Columns
    from shared_core.bank.edges import Edge
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.bank.records import Record
    from shared_core.language import EntityExtractor
    from shared_core.types import Array, BoolArray, FloatArray

NO_SESSION = -1
FIRST_MOMENT, LAST_MOMENT = -62135596800.0, 253402300799.0
"""Unix time of the years 1 to 9999: what a date can say."""


@dataclass(frozen=True, kw_only=True)
class GraphKeys:
    """Metadata fields that say where a memory belongs; the defaults are those of our own pages."""

    session: str = SESSION
    speaker: str = SPEAKER
    time: str = TIME
    """ISO 8601 text, or Unix time in seconds."""


@dataclass(eq=False)
class FoundEntities:
    """The entities of some memories, searched for when they are first asked for."""

    texts: Sequence[str]
    speakers: Sequence[str | None]
    time: FloatArray
    extractor: EntityExtractor | None

    @cached_property
    def index(self) -> EntityIndex:
        """Filed both ways."""
        rows = zip(self.texts, self.speakers, map(_day, self.time.tolist()), strict=True)
        if self.extractor is not None:
            extract = self.extractor
            return EntityIndex(
                [sorted({entity.norm for entity in extract(text, speaker=who)}) for text, who, _ in rows]
            )
        rules = RULES.reading({speaker for speaker in self.speakers if speaker})
        return EntityIndex([rules.norms(*row) for row in rows])


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
    owners: list[Owner]
    """Whose each memory is, by the tenant keys that it was read with."""
    found: FoundEntities = field(repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def entities(self) -> EntityIndex:
        """What each memory mentions."""
        return self.found.index

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
        return _day(float(self.time[row]))

    def linked(self, row: int) -> Array:
        """Return the neighbours by shared entities and explicit edges, ascending."""
        extra = np.fromiter(self.explicit.get(row, ()), np.int64)
        return np.union1d(self.entities.neighbours(row), extra)

    def degrees(self) -> Array:
        """Return deg(v), shape (N,): neighbours by entity, session and explicit edge, each once (Eq. 3)."""
        return np.array([self.degree(row, self.linked(row)) for row in range(len(self))], np.int64)

    def degree(self, row: int, linked: Array) -> int:
        """Return deg(v) of one memory, given what ``linked`` returns for it."""
        same = self.session[linked] == self.session[row] if self.session[row] != NO_SESSION else ()
        mates = len(self.in_session.get(int(self.session[row]), ())) - 1
        return len(linked) - int(np.count_nonzero(same)) + max(0, mates)

    @cached_property
    def quoted_by(self) -> dict[int, list[int]]:
        """Derived memories that quote each row."""
        found: dict[int, list[int]] = defaultdict(list)
        for row, sources in self.sources.items():
            for source in dict.fromkeys(sources):
                found[source].append(row)
        return dict(found)


def read_graph(
    bank: MemoryBank,
    keys: GraphKeys | None = None,
    *,
    extractor: EntityExtractor | None = None,
    tenant_keys: Sequence[str] = (),
) -> MemoryGraph:
    """Read the visible memories of a bank as a graph; embeddings are the stored ones.

    Args:
        bank: The bank; softly deleted and unborn memories are left out.
        keys: Where session, speaker and time stand in the metadata.
        extractor: Finds entities; default: the rules, with the bank's speakers as known names.
        tenant_keys: Metadata fields that say whose a memory is.
    """
    content = read_content(bank.content, keys or GraphKeys(), tenant_keys)
    columns = bank.state.columns()
    rows = content.visible(columns)
    accessed = last_access(bank, [content.ids[row] for row in rows.tolist()])
    return graph_of(content, rows, columns, bank.state.edges(), accessed, extractor)


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphContent:
    """What a collection says of its N records, visible or not, in order of insertion."""

    ids: list[str]
    texts: list[str]
    sessions: list[str | None]
    speakers: list[str | None]
    time: FloatArray
    """Unix time; NaN where unknown."""
    sources: dict[str, tuple[str, ...]]
    """Of each derived memory, what it quotes."""
    unit: FloatArray
    """(N, d) unit embeddings."""
    owners: list[Owner]

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        matrix: FloatArray,
        keys: GraphKeys,
        tenant_keys: Sequence[str] = (),
    ) -> GraphContent:
        """Return the content of records and their embeddings, shape (N, d).

        A derived memory is part of no session and nobody said it, whatever it took from what it quotes.
        """
        return cls(
            ids=[record.id for record in records],
            texts=[record.text for record in records],
            sessions=[_said(record, keys.session) for record in records],
            speakers=[_said(record, keys.speaker) for record in records],
            time=np.array([_moment(record.metadata.get(keys.time)) for record in records], float),
            sources={r.id: sources_of(r.metadata) for r in records if is_derived(r.id)},
            unit=unit_rows(matrix) if len(records) else matrix,
            owners=[owner_of(record.metadata, tenant_keys) for record in records],
        )

    def __len__(self) -> int:
        return len(self.ids)

    def followed_by(self, added: GraphContent) -> GraphContent:
        """Return this content with records behind it."""
        if not len(self) or not len(added):
            return self if len(self) else added
        return GraphContent(
            ids=self.ids + added.ids,
            texts=self.texts + added.texts,
            sessions=self.sessions + added.sessions,
            speakers=self.speakers + added.speakers,
            time=np.concatenate([self.time, added.time]),
            sources={**self.sources, **added.sources},
            unit=np.concatenate([self.unit, added.unit]),
            owners=self.owners + added.owners,
        )

    def visible(self, columns: Columns) -> Array:
        """Return the rows that are neither softly deleted nor derived and not committed."""
        rows = np.flatnonzero(columns.gather(self.ids, "deleted") == 0.0)
        if not self.sources:
            return rows
        size = len(columns)
        born = [
            row
            for row in rows.tolist()
            if self.ids[row] not in self.sources or columns.rows.get(self.ids[row], size) < size
        ]
        return np.asarray(born, np.int64)


def read_content(stored: ChromaContent, keys: GraphKeys, tenant_keys: Sequence[str] = ()) -> GraphContent:
    """Read all records and embeddings of a bank."""
    embedded, matrix = stored.embeddings()
    place = {memory_id: row for row, memory_id in enumerate(embedded)}
    # a writer may have shifted the pages while they were read
    records = {record.id: record for page in stored.records() for record in page if record.id in place}
    rows = [place[memory_id] for memory_id in records]
    return GraphContent.of(list(records.values()), matrix[rows] if rows else matrix, keys, tenant_keys)


def last_access(bank: MemoryBank, ids: Sequence[str]) -> FloatArray:
    """Return the Unix time of each memory's last retrieval, NaN where there was none."""
    return np.array([state.last_access or np.nan for state in bank.state.get(ids)], float)


def graph_of(
    content: GraphContent,
    rows: Array,
    columns: Columns,
    edges: Sequence[Edge],
    accessed: FloatArray,
    extractor: EntityExtractor | None = None,
) -> MemoryGraph:
    """Return the graph of some records.

    Args:
        content: The records.
        rows: Which of them are visible, ascending.
        columns: Their state.
        edges: Explicit edges.
        accessed: See ``last_access``, of the visible ones.
        extractor: See ``read_graph``.
    """
    place = rows.tolist()
    ids, texts = [content.ids[row] for row in place], [content.texts[row] for row in place]
    speakers, time = [content.speakers[row] for row in place], content.time[rows]
    session, sessions = _numbered([content.sessions[row] for row in place])
    row_of = {memory_id: row for row, memory_id in enumerate(ids)}
    return MemoryGraph(
        ids=ids,
        texts=texts,
        unit=content.unit if len(rows) == len(content) else content.unit[rows],
        **_state(columns, ids),
        last_access=np.fmax(accessed, time),
        time=time,
        speakers=speakers,
        session=session,
        sessions=sessions,
        sources={
            row_of[i]: tuple(row_of[source] for source in sources if source in row_of)
            for i, sources in content.sources.items()
            if i in row_of
        },
        explicit=explicit_edges(edges, row_of),
        owners=[content.owners[row] for row in place],
        found=FoundEntities(texts, speakers, time, extractor),
    )


def reweighted(graph: MemoryGraph, columns: Columns) -> MemoryGraph:
    """Return a graph of the same memories with their state as it is now."""
    return replace(graph, **_state(columns, graph.ids))


def explicit_edges(edges: Sequence[Edge], row_of: Mapping[str, int]) -> dict[int, set[int]]:
    """Return each row's neighbours by edges between visible memories."""
    linked: dict[int, set[int]] = defaultdict(set)
    for edge in edges:
        if edge.source in row_of and edge.target in row_of:
            linked[row_of[edge.source]].add(row_of[edge.target])
            linked[row_of[edge.target]].add(row_of[edge.source])
    return dict(linked)


def _state(columns: Columns, ids: Sequence[str]) -> dict[str, Any]:
    names = {"weights": "weight", "suspicion": "suspicion", "successes": "successes"}
    return {attribute: columns.gather(ids, name) for attribute, name in names.items()}


def _numbered(names: Sequence[str | None]) -> tuple[Array, list[str]]:
    numbers: dict[str, int] = {}
    session = [NO_SESSION if name is None else numbers.setdefault(name, len(numbers)) for name in names]
    return np.asarray(session, np.int64), list(numbers)


def _day(moment: float) -> date | None:
    return None if np.isnan(moment) else datetime.fromtimestamp(moment, timezone.utc).date()


def _moment(value: object) -> float:
    """Return Unix time; NaN for what says no time, since metadata are the user's."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return float("nan")
    if isinstance(value, (int, float)):
        return float(value) if FIRST_MOMENT <= value <= LAST_MOMENT else float("nan")
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return float("nan")
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    # a time zone, or rounding, may carry the first and the last day out of what a date can say
    return seconds if FIRST_MOMENT <= seconds <= LAST_MOMENT else float("nan")


def _said(record: Record, key: str) -> str | None:
    value = None if is_derived(record.id) else record.metadata.get(key)
    return None if value is None else str(value)
