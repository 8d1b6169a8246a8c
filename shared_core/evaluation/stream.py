"""A stream of tasks over a real bank: retrieval, feedback, sweeps in between (source 3.3, appendix G) [O].

Tasks are drawn from a case's queries and retrieved for by the bank's own retriever. An oracle plays the
application: a task succeeds when it retrieved the benign memory that answers it and no poison. Some feedback
is wrong, some is missing. Two attackers can join in: one praises whatever a triggered query retrieved, one
blames whatever a benign query retrieved, both as often as they like, because an application that lets users
judge lets attackers judge.

Does not know: files, embedders, how a sweep decides. Ground truth is used by the oracle and for scoring only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from shared_core.bank.status import FORGOTTEN, WEAKENED
from shared_core.config import RetrievalConfig, checked_range, checked_whole
from shared_core.errors import ConfigError
from shared_core.evaluation.metrics import overlap_at_k, share_with_poison
from shared_core.evaluation.poison import TOP_K, retrieve
from shared_core.retrieval import BankRetriever

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.config import ConsolidationConfig, ForgettingConfig
    from shared_core.evaluation.cases import AttackCase
    from shared_core.evaluation.poison import Retrieved
    from shared_core.types import Hit

Attacker = Literal["none", "praise", "blame"]


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """How the stream runs.

    Raises:
        ConfigError: A number outside its range, or an unknown attacker.
    """

    tasks: int = 200
    triggered: float = 0.2
    """Share of the tasks whose query carries the trigger."""
    wrong: float = 0.1
    """Share of the feedback that says the opposite."""
    missing: float = 0.2
    """Share of the tasks without feedback."""
    sweep_every: int = 50
    """Tasks between two sweeps."""
    attacker: Attacker = "none"
    forged: int = 300
    """Feedbacks that the attacker gives before each sweep."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("triggered", "wrong", "missing"):
            checked_range(name, getattr(self, name), 0, 1)
        for name in ("tasks", "sweep_every"):
            checked_whole(name, getattr(self, name))
        checked_whole("forged", self.forged, 0)
        if not isinstance(self.attacker, str) or self.attacker not in get_args(Attacker):
            raise ConfigError(f"attacker={self.attacker!r} is not one of {', '.join(get_args(Attacker))}")


@dataclass(frozen=True, kw_only=True)
class StreamRow:
    """The bank at one moment of the stream."""

    moment: str
    """start; ``tasks`` before a sweep; ``sweep`` after it; ``undone`` after undoing what the attacker did."""
    tasks: int
    success: float | None
    """Share of the tasks since the last sweep that succeeded, by the oracle; None where there were none."""
    asr_r: float
    """Share of all triggered queries that retrieve a poison now."""
    retained: float
    """Overlap of the benign-only top-4 of the benign queries with that of the start."""
    poison_c: float
    poison_w: float
    poison_forgotten: float
    """Share of the poison with w < 0.1."""
    benign_c: float
    benign_c_low: float
    """Share of the benign memories with c <= 0.5, which a sweep lets fade."""
    benign_w: float
    false_forget: float
    """Share of the benign memories with w < 0.5."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


class _Stream:
    """One run; holds the retriever, the oracle's answers and the draws."""

    def __init__(
        self, bank: MemoryBank, case: AttackCase, config: StreamConfig, learning: ConsolidationConfig | None
    ) -> None:
        self._bank = bank
        self._case = case
        self._config = config
        self._learning = learning
        self._retriever = BankRetriever(bank, RetrievalConfig(backend="scan"), track_access=False)
        self._draw = random.Random(f"{case.name}/{config.seed}")  # noqa: S311 (repeatable, no secret)
        self._at_first: Retrieved = retrieve(bank, case)
        self._answers = {q: self._answer(q) for q in (*case.triggered_queries, *case.benign_queries)}
        self._outcomes: list[bool] = []

    def task(self) -> None:
        """Ask one query, judge what came, and tell the bank, or not."""
        config, draw = self._config, self._draw
        triggered = bool(self._case.triggered_queries) and draw.random() < config.triggered
        query = draw.choice(self._case.triggered_queries if triggered else self._case.benign_queries)
        hits = self._retriever.search(query, k=TOP_K)
        found = {hit.id for hit in hits}
        success = self._answers[query] in found and not found & self._case.poison_ids
        self._outcomes.append(success)
        told = success != (draw.random() < config.wrong)
        if hits and draw.random() >= config.missing:
            self._feedback(hits, told)

    def attack(self) -> None:
        """Give the attacker's feedback."""
        if self._config.attacker == "none":
            return
        praise = self._config.attacker == "praise"
        queries = self._case.triggered_queries if praise else self._case.benign_queries
        for turn in range(self._config.forged):
            if hits := self._retriever.search(queries[turn % len(queries)], k=TOP_K):
                self._feedback(hits, praise)

    def row(self, moment: str, tasks: int) -> StreamRow:
        """Measure the bank as it is now; what succeeded since the last row is counted once."""
        ids = [memory.id for memory in self._case.memories]
        bad = np.array([memory_id in self._case.poison_ids for memory_id in ids])
        weight = self._bank.weights(ids)
        c = self._bank.state.columns().gather(ids, "consolidation")
        now = retrieve(self._bank, self._case)
        outcomes, self._outcomes = self._outcomes, []
        return StreamRow(
            moment=moment,
            tasks=tasks,
            success=float(np.mean(outcomes)) if outcomes else None,
            asr_r=share_with_poison(now.triggered, self._case.poison_ids),
            retained=overlap_at_k(self._at_first.benign_only, now.benign_only),
            poison_c=float(c[bad].mean()),
            poison_w=float(weight[bad].mean()),
            poison_forgotten=float((weight[bad] < FORGOTTEN).mean()),
            benign_c=float(c[~bad].mean()),
            benign_c_low=float((c[~bad] <= 0.5).mean()),
            benign_w=float(weight[~bad].mean()),
            false_forget=float((weight[~bad] < WEAKENED).mean()),
        )

    def _answer(self, query: str) -> str:
        """Return the benign memory that answers a query: the best one at full weights."""
        poison = self._case.poison_ids
        hits = self._retriever.search(query, k=1 + len(poison))
        return next(hit.id for hit in hits if hit.id not in poison)

    def _feedback(self, hits: Sequence[Hit], success: bool) -> None:
        ids, scores = [hit.id for hit in hits], [hit.score for hit in hits]
        self._bank.feedback(ids, scores, float(success), self._learning)


def run_stream(
    bank: MemoryBank,
    case: AttackCase,
    sweep: ForgettingConfig,
    config: StreamConfig | None = None,
    learning: ConsolidationConfig | None = None,
) -> list[StreamRow]:
    """Run tasks over a filled bank, with a sweep after every ``sweep_every`` of them.

    Args:
        bank: Holds exactly the case's memories, with full weights.
        case: At least one poison, and benign queries.
        sweep: Every sweep; its seed grows by one each time.
        config: The stream.
        learning: Momentum and temperature of the consolidation.

    Returns:
        One row at the start, before and after every sweep; with an attacker a last one after all sweeps and
        all of the attacker's feedback were undone.

    Raises:
        ConfigError: The case has no benign query, or no poison.
    """
    config = config or StreamConfig()
    if not case.benign_queries or not case.poison_ids:
        raise ConfigError(f"case {case.name!r} needs benign queries and poison for a stream of tasks")
    stream = _Stream(bank, case, config, learning)
    rows = [stream.row("start", 0)]
    began = len(bank.runs())
    for done in range(1, config.tasks + 1):
        stream.task()
        if done % config.sweep_every == 0:
            stream.attack()
            rows.append(stream.row("tasks", done))
            bank.sweep(replace(sweep, seed=sweep.seed + done // config.sweep_every))
            rows.append(stream.row("sweep", done))
    if config.attacker != "none":
        for run in bank.runs(len(bank.runs()) - began):
            bank.undo(run.run_id)
        rows.append(stream.row("undone", config.tasks))
    return rows
