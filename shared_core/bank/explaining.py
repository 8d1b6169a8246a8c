"""Why one memory is suspect: each term's view of it, what it resembles, and which runs changed it.

Joins the verdict of a sweep's terms to ids and to the journal; reads only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import exists, select

from shared_core.bank.deciding import FULL, read_decisions
from shared_core.bank.derived import is_derived, sources_of
from shared_core.bank.diagnosing import judge_bank
from shared_core.bank.schema import changes, contents, decisions, reading, runs
from shared_core.bank.stored_vectors import read_vectors
from shared_core.bank.sweeping import usable_rows
from shared_core.config import ForgettingConfig
from shared_core.dynamics.geometry import unit_rows
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.dynamics.terms import ScoredTerm
    from shared_core.types import FloatArray, MemoryState

NEAREST = 5
SHOWN_RUNS = 10


@dataclass(frozen=True, kw_only=True)
class TermExplanation:
    """What one term says of the memory. ``text``, ``span`` and ``payload`` hold the bank's text: hostile."""

    name: str
    summary: str
    """What the term looks at."""
    value: float
    """Its score, in its own unit; larger is more suspect."""
    standard: float
    """The score robustly standardised over the bank: 0 is the median, 1 about a standard deviation."""
    rank: int
    """1 is the most suspect of the bank; memories with equal scores share the last of their places."""
    level: float | None
    """The score from which it flags; None for a term that only ranks."""
    flagged: bool
    text: str | None
    """The evidence in words; None where there is none."""
    span: str
    """The stretch of the key that it is about, "" where there is none."""
    payload: str
    """The same of the value."""
    neighbours: list[str]
    """Ids of the memories that it was compared or grouped with."""
    details: dict[str, float]
    """What was measured, by name."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A memory near the explained one."""

    id: str
    similarity: float
    """Cosine of the embeddings."""


@dataclass(frozen=True, kw_only=True)
class QuotedSource:
    """A memory that a derived one quotes, and whose state it follows at the next sweep."""

    id: str
    weight: float
    """As retrieval sees it: 0 if softly deleted, or no longer in the bank."""
    suspicion: float
    flagged: bool
    """A sweep with this config would lower it now."""


@dataclass(frozen=True, kw_only=True)
class RunChange:
    """What one journalled run changed of the memory."""

    run_id: str
    kind: str
    status: str
    created_at: float
    """Unix time, seconds, UTC."""
    values: dict[str, tuple[float, float]]
    """Field to (before, after); empty where only text changed, or nothing but what a person decided."""
    rewrote: bool
    """It rewrote text, metadata or embedding."""
    decided: bool
    """It said what outlives it: that the memory is trusted, or no longer, or how far it may recover."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Everything that speaks for or against one memory."""

    id: str
    text: str = field(repr=False)
    value: str | None = field(repr=False)
    """Under ``value_key``; None where there is none."""
    state: MemoryState
    takes_part: bool
    """False: derived, softly deleted, or without a usable embedding; then the terms say nothing of it."""
    memories: int
    """How many take part in a sweep; ranks are out of so many."""
    flagged: bool
    """A sweep with this config would lower it now; a derived one, because it would lower a source.

    A trusted one is flagged like any other, and keeps its weight.
    """
    trusted: bool
    """Somebody restored it, and it is as it was then: no sweep and no repair lowers it."""
    ceiling: float
    """The weight above which no sweep lets it recover; below 1 where it was set by hand."""
    score: float | None
    """All terms together: 1 or more where it is flagged, below 1 otherwise; None where it takes no part."""
    rank: int | None
    """Of that score, as for a term."""
    terms: list[TermExplanation] = field(repr=False)
    quotes: list[QuotedSource] = field(repr=False)
    """Of a derived memory, what it quotes: it takes no part and follows these."""
    nearest: list[Neighbour] = field(repr=False)
    """The memories of most similar embedding, at most 5."""
    runs: list[RunChange] = field(repr=False)
    """The last runs that changed it, newest first, at most 10."""
    warnings: list[str] = field(repr=False)
    """What the terms could not see."""
    config: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def explain_memory(bank: MemoryBank, memory_id: str, config: ForgettingConfig) -> Explanation:
    """Judge the bank as a sweep would, without changing it, and tell what that says of one memory.

    Raises:
        MemoryNotFoundError: No such memory in this bank.
        ConfigError: See ``MemoryBank.sweep``.
    """
    if not isinstance(config, ForgettingConfig):
        raise ConfigError(f"explain takes a ForgettingConfig, not {type(config).__name__}")
    (memory,) = bank.get([memory_id])
    vectors = read_vectors(bank.content)
    gone = bank.state.columns().gather(vectors.ids, "deleted")
    part = vectors.only(usable_rows(vectors.ids, vectors.directed, gone))
    kept, matrix = part.ids, part.as_stored()
    decided = read_decisions(bank.content, bank.state)
    verdict, warnings, told = judge_bank(bank, kept, matrix, config, decided)
    row = kept.index(memory_id) if memory_id in kept else None
    value = None if told["value_key"] is None else memory.metadata.get(told["value_key"])
    score = None if row is None else float(verdict.score[row])
    suspects = {one for one, flagged in zip(kept, verdict.flagged, strict=True) if flagged}
    sources = sources_of(memory.metadata) if is_derived(memory_id) else ()
    quotes = _quotes(bank, sources, suspects.difference(decided.trusted)) if sources else []
    return Explanation(
        id=memory_id,
        text=memory.text,
        value=None if value is None else str(value),
        state=memory.state,
        takes_part=row is not None,
        memories=len(kept),
        flagged=memory_id in suspects or any(one.flagged for one in quotes),
        trusted=memory_id in decided.trusted,
        ceiling=decided.ceilings.get(memory_id, FULL),
        score=score,
        rank=None if score is None else int(np.count_nonzero(verdict.score >= score)),
        terms=[] if row is None else [_explained(one, row, kept) for one in verdict.terms],
        quotes=quotes,
        nearest=[] if row is None else _nearest(row, kept, matrix),
        runs=_runs(bank, memory_id),
        warnings=warnings,
        config=config.to_dict(),
    )


def _explained(scored: ScoredTerm, row: int, ids: Sequence[str]) -> TermExplanation:
    evidence = scored.result.evidence(row)
    return TermExplanation(
        name=scored.term.name,
        summary=scored.term.summary,
        value=float(scored.result.score[row]),
        standard=float(scored.standard[row]),
        rank=scored.rank(row),
        level=scored.result.level,
        flagged=bool(scored.flagged[row]),
        text=None if evidence is None else evidence.text,
        span="" if evidence is None else evidence.span,
        payload="" if evidence is None else evidence.payload,
        neighbours=[] if evidence is None else [ids[other] for other in evidence.neighbours],
        details={} if evidence is None else dict(evidence.details),
    )


def _quotes(bank: MemoryBank, sources: Sequence[str], suspects: Collection[str]) -> list[QuotedSource]:
    held = set(bank.content.matching(None, None, list(sources)))
    weights = bank.weights(list(sources)).tolist()
    suspicion = bank.state.columns().gather(sources, "suspicion").tolist()
    return [
        QuotedSource(
            id=one,
            weight=w if one in held else 0.0,
            suspicion=s if one in held else 0.0,
            flagged=one in suspects,
        )
        for one, w, s in zip(sources, weights, suspicion, strict=True)
    ]


def _nearest(row: int, ids: Sequence[str], embeddings: FloatArray) -> list[Neighbour]:
    unit = unit_rows(np.asarray(embeddings, np.float32))
    cosines = unit @ unit[row]
    order = [int(other) for other in np.argsort(-cosines, kind="stable") if other != row]
    return [Neighbour(id=ids[other], similarity=float(cosines[other])) for other in order[:NEAREST]]


def _runs(bank: MemoryBank, memory_id: str) -> list[RunChange]:
    """Return what the journal says of one memory, from the runs that this bank may see."""
    state = bank.state
    states, texts, decided = (
        exists().where(table.c.run_id == runs.c.run_id, table.c.memory_id == memory_id)
        for table in (changes, contents, decisions)
    )
    # its index begins with the bank
    decided = decided.where(decisions.c.bank_id == state.bank_id)
    query = select(runs.c.run_id, runs.c.kind, runs.c.status, runs.c.created_at)
    query = query.add_columns(texts.label("rewrote"), decided.label("decided"))
    query = query.where(runs.c.bank_id == state.bank_id, states | texts | decided)
    if state.scope:
        query = query.where(runs.c.scope == state.scope)
    query = query.order_by(runs.c.version.desc(), runs.c.created_at.desc()).limit(SHOWN_RUNS)
    with reading(state.engine) as connection:
        found = connection.execute(query).all()
        of_memory = select(changes).where(
            changes.c.memory_id == memory_id, changes.c.run_id.in_([row.run_id for row in found])
        )
        values: dict[str, dict[str, tuple[float, float]]] = {row.run_id: {} for row in found}
        for change in connection.execute(of_memory):
            values[change.run_id][change.field] = (change.before, change.after)
    return [
        RunChange(
            run_id=row.run_id,
            kind=row.kind,
            status=row.status,
            created_at=row.created_at,
            values=values[row.run_id],
            rewrote=bool(row.rewrote),
            decided=bool(row.decided),
        )
        for row in found
    ]
