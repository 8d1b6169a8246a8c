"""One running dream cycle: rounds of probing, diagnosis, repair and verification over one snapshot.

Reads the graph once; every repair is supposed in the index, verified, and only then written. What changes
in the bank meanwhile is left alone.

Source: MemDream section 3.2, Eq. 3-7 [S]; one snapshot per cycle, and verification on every probe of the
cycle, are ours [O].
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.agents.associating import association_repairs
from shared_core.agents.associations import centred_rows, telling
from shared_core.agents.cycle_report import (
    Approve,
    EventKind,
    KeptRepair,
    OnEvent,
    ProposedRepair,
    RoundReport,
    StoppedBy,
    digest,
    proposed,
    tell,
)
from shared_core.agents.groundwork import GroundworkTrial
from shared_core.agents.probe_index import ProbeIndex
from shared_core.agents.protocol import Target
from shared_core.agents.rule_consolidator import restoration
from shared_core.agents.rule_dreamer import RuleDreamer, local_queries
from shared_core.agents.verification import HARM, Verifier
from shared_core.agents.weakness import (
    bridge_partner,
    usable,
    weak_targets,
    weakness_terms,
    worth_asking,
)
from shared_core.errors import InvalidMemoryError, MemoryNotFoundError
from shared_core.telemetry import told, traced

if TYPE_CHECKING:
    from shared_core.agents.dream_config import DreamConfig
    from shared_core.agents.protocol import Analyst, Consolidator, Diagnosis, Dreamer
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.keys import RetrievalKey
    from shared_core.bank.repairing import Repair
    from shared_core.types import Embedder, FloatArray

logger = logging.getLogger(__name__)

NOTHING, AGAIN = "nothing can be done without losing or inventing", "tried before"
HELPED = "an earlier repair helped its probe"
NOT_APPROVED, MEANWHILE = "not approved", "the memories changed meanwhile"
FULL = "as many derived memories as config.growth allows"
SEEDS_PER_CYCLE, LEAST_ROOM = 1000, 20
BRIDGE_LOOKS = 4
"""Memories beyond k among which a bridge partner is sought: a partner that k finds needs no bridge [O]."""

Write = Callable[["Repair"], str]
"""Writes one repair and returns its run id; raises ``InvalidMemoryError`` where the bank refuses it."""


def with_partners(
    graph: MemoryGraph, centred: FloatArray, index: ProbeIndex, targets: Sequence[Target], k: int
) -> list[Target]:
    """Return targets with their bridge partners (Eq. 4), by what their local queries retrieve.

    Args:
        graph: The snapshot.
        centred: As for ``bridge_partner``.
        index: What is searched.
        targets: Weak memories.
        k: How many memories a probe retrieves.
    """
    asked = {target.row: local_queries(graph, target.row) for target in targets}
    index.learn([query for queries in asked.values() for query in queries])
    return [
        replace(
            target,
            partner=bridge_partner(
                graph,
                centred,
                target.row,
                [index.retrieve(query, k + BRIDGE_LOOKS) for query in asked[target.row]],
            ),
        )
        for target in targets
    ]


@dataclass(eq=False, kw_only=True)
class Dreaming:
    """State of one cycle.

    Args:
        graph: The snapshot.
        embedder: The bank's.
        dreamer, analyst, consolidator: The agents.
        config: Options.
        write: Writes a repair; None for a dry run.
        keys: What earlier dreams wrote.
        earlier: How many cycles the bank has had.
        tenant: Metadata of whose memories they are, for the report.
        stop: Asked between repairs.
        on_event: Told of every step; what it raises is logged.
        approve: Asked before a repair is written.
        heed: Takes out of a repair the weights that a person decided otherwise; what is left is verified.
    """

    graph: MemoryGraph
    embedder: Embedder
    dreamer: Dreamer
    analyst: Analyst
    consolidator: Consolidator
    config: DreamConfig
    write: Write | None
    keys: Sequence[RetrievalKey] = ()
    earlier: int = 0
    tenant: Mapping[str, Any] = field(default_factory=dict)
    stop: Callable[[], bool] | None = None
    on_event: OnEvent | None = None
    approve: Approve | None = None
    heed: Callable[[Repair], Repair] = field(default=lambda repair: repair)
    rounds: list[RoundReport] = field(default_factory=list)
    kept: list[KeptRepair] = field(default_factory=list)
    _tried: set[str] = field(default_factory=set)
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.usable = usable(self.graph)
        self._value = telling(self.graph)
        self._asked = worth_asking(self.graph, self._value)
        self.verifier = Verifier(ProbeIndex(self.graph, self.embedder), self.config.k, self._late)
        self._centred = centred_rows(self.graph.unit) if len(self.graph) else self.graph.unit
        self._terms = weakness_terms(self.graph)
        self._seed = self.config.seed + SEEDS_PER_CYCLE * self.earlier
        own = int(np.count_nonzero(~self.graph.derived))
        self._room = max(LEAST_ROOM, int(self.config.growth * own)) - (len(self.graph) - own)

    def run(self) -> StoppedBy:
        """Dream until the memory answers its probes, or a budget is used up; returns what ended it."""
        if self.config.groundwork and (ended := self._timed(self._groundwork)) is not None:
            return ended
        parts = min(self.config.partitions, max(1, len(self._asked)))
        for number, part in enumerate(self._partitions(parts), start=1):
            if (ended := self._timed(partial(self._round, number, part))) is not None:
                return ended
            if number >= parts and self._answers(parts):
                return "converged"
        return "rounds"

    def tell(self, kind: EventKind, data: dict[str, Any]) -> None:
        """Tell the observer, whose failures are not the dream's."""
        tell(self.on_event, kind, self.rounds[-1].number if self.rounds else 0, data)

    @property
    def f1(self) -> tuple[float, float]:
        """Mean F1 of all probes, as first asked and as the memory is now."""
        first = self.verifier.first
        before = float(np.mean(list(first.values()))) if first else 1.0
        return before, self.verifier.mean_f1(list(first))

    # ---- inner

    @traced("dream.round", told.dream_round)
    def _timed(self, work: Callable[[], StoppedBy | None]) -> StoppedBy | None:
        began = time.monotonic()
        ended = work()
        self.rounds[-1].seconds = time.monotonic() - began
        self.tell("round", asdict(self.rounds[-1]))
        return ended

    def _groundwork(self) -> StoppedBy | None:
        """Restore what proved useful (Eq. 6), and write the associations of all pages: round 0."""
        rng = np.random.default_rng(self._seed)
        rows = rng.permutation(self._asked)[: self._most_targets].tolist()
        targets = [Target(row=row, partner=None, weakness="isolated", score=0.0) for row in rows]
        # asked in the rules' words: a model's would cost a call per page
        probes = RuleDreamer().probe(self.graph, targets, seed=self._seed)
        trial = GroundworkTrial(self.graph, self.keys, self.embedder, probes, self.config.k)
        report = RoundReport(
            number=0,
            pages=len(self.usable),
            targets=len(targets),
            probes=len(probes),
            failures=0,
            f1_before=trial.f1,
            tenant=dict(self.tenant),
        )
        self.rounds.append(report)
        for repair in map(self.heed, self._of_many()):
            if not repair.changes_something:
                continue
            if (ended := self._ended()) is not None:
                report.f1_after = trial.f1
                return ended
            if (refused := self._try_groundwork(repair, trial)) is None:
                report.kept += 1
            else:
                report.rejected[refused] = report.rejected.get(refused, 0) + 1
                self.tell("rejected", {"operation": repair.operation, "why": refused})
        report.f1_after = trial.f1
        return None

    def _of_many(self) -> Iterable[Repair]:
        if (useful := restoration(self.graph, self.config.eta)) is not None:
            yield useful
        yield from association_repairs(
            self.graph, self.keys, self.embedder, self.config.decay, value=self._value
        )

    @traced("dream.repair", told.repair)
    def _try_groundwork(self, repair: Repair, trial: GroundworkTrial) -> str | None:
        f1, good = trial.attempt(repair)
        if not good:
            return HARM
        offer = proposed(repair, None, trial.f1, f1)
        if (refused := self._write(repair, offer)) is not None:
            return refused
        trial.accept(f1)
        if repair.weights:
            self.verifier.index.suppose(repair, np.zeros((0, self.graph.unit.shape[1]), np.float32))
        return None

    def _partitions(self, parts: int) -> Iterator[list[int]]:
        """Yield the rows of each round: a new random split of the bank per pass."""
        rng = np.random.default_rng(self._seed)
        split: list[list[int]] = []
        for _ in range(self.config.rounds):
            if not split:
                order = rng.permutation(self._asked)
                split = [sorted(part.tolist()) for part in np.array_split(order, parts)]
            yield split.pop(0)

    def _answers(self, parts: int) -> bool:
        """Tell whether the probes of the last pass succeed (Eq. 7)."""
        last = self.rounds[-parts:]
        asked = sum(one.probes for one in last)
        return not asked or sum(one.f1_after * one.probes for one in last) >= self.config.tau * asked

    def _round(self, number: int, part: list[int]) -> StoppedBy | None:
        config = self.config
        targets = self._targets(part)
        probes = self.dreamer.probe(self.graph, targets, seed=self._seed + number)[: config.probes]
        outcomes = self.verifier.ask(probes)
        failures = [(p, o) for p, o in zip(probes, outcomes, strict=True) if o.f1 < 1.0]
        report = RoundReport(
            number=number,
            pages=len(part),
            targets=len(targets),
            probes=len(probes),
            failures=len(failures),
            f1_before=self.verifier.mean_f1(probes),
            tenant=dict(self.tenant),
        )
        self.rounds.append(report)
        diagnoses = self.analyst.diagnose(self.graph, failures)
        report.diagnoses = dict(Counter(diagnosis.category for diagnosis in diagnoses))
        rejected: Counter[str] = Counter()
        ended = None
        for diagnosis in diagnoses:
            if (ended := self._ended()) is not None:
                break
            refused = self._repair(diagnosis)
            if refused is None:
                report.kept += 1
            else:
                rejected[refused] += 1
        report.rejected = dict(rejected)
        report.f1_after = self.verifier.mean_f1(probes)
        return ended or self._ended()

    def _targets(self, part: list[int]) -> list[Target]:
        """Return the weak memories of a partition with their bridge partners (Eq. 3 and 4)."""
        weak = weak_targets(self._terms, part, self.config, self._most_targets)
        return with_partners(self.graph, self._centred, self.verifier.index, weak, self.config.k)

    @property
    def _most_targets(self) -> int:
        # a target gives about three probes
        return max(1, self.config.probes // 3)

    def _ended(self) -> StoppedBy | None:
        if self.stop is not None and self.stop():
            return "cancelled"
        if sum(one.round > 0 for one in self.kept) >= self.config.repairs:
            return "repairs"
        return "seconds" if self._late() else None

    def _late(self) -> bool:
        return time.monotonic() - self._started >= self.config.seconds

    def _repair(self, diagnosis: Diagnosis) -> str | None:
        """Propose, suppose, verify and write one repair; returns why it was not kept."""
        found = self._proposal(diagnosis)
        refused = found if isinstance(found, str) else self._try(found, diagnosis)
        if refused is not None:
            data = {"diagnosis": diagnosis.to_dict(), "query": diagnosis.probe.query, "why": refused}
            self.tell("rejected", data)
        return refused

    def _proposal(self, diagnosis: Diagnosis) -> Repair | str:
        """Return a repair to be tried, or why there is none."""
        if self.verifier.now[diagnosis.probe].f1 >= 1.0:
            return HELPED
        repair = self.consolidator.propose(self.graph, diagnosis)
        if repair is None or not (repair := self.heed(repair)).changes_something:
            return NOTHING
        if len(repair.memories) > self._room:
            return FULL
        if (sign := digest(repair)) in self._tried:
            return AGAIN
        self._tried.add(sign)
        return repair

    @traced("dream.repair", told.repair)
    def _try(self, repair: Repair, diagnosis: Diagnosis) -> str | None:
        """Suppose, verify and write a repair; returns why it was not kept."""
        repair, vectors = self._embedded(repair)
        trial = self.verifier.attempt(repair, vectors, diagnosis.probe)
        if trial.refused is not None:
            return trial.refused
        refused = self._write(repair, proposed(repair, diagnosis, trial.before, trial.after))
        if refused is not None:
            self.verifier.take_back(repair, trial)
            return refused
        self.verifier.accept(trial)
        return None

    def _write(self, repair: Repair, offer: ProposedRepair) -> str | None:
        """Write a repair that was found good; returns why it was not written."""
        run_id = None
        if self.write is not None:
            if self.approve is not None and not self.approve(offer):
                return NOT_APPROVED
            measured = {"f1_before": offer.f1_before, "f1_after": offer.f1_after, "proposal": offer.id}
            try:
                run_id = self.write(replace(repair, details={**repair.details, **measured}))
            except (InvalidMemoryError, MemoryNotFoundError) as error:
                logger.info("a repair was not written: %s", error)
                return MEANWHILE
        self._room -= len(repair.memories)
        kept = KeptRepair(run_id=run_id, round=self.rounds[-1].number, proposal=offer, repair=repair)
        self.kept.append(kept)
        self.tell("repair", kept.to_dict())
        return None

    def _embedded(self, repair: Repair) -> tuple[Repair, FloatArray]:
        """Return a repair whose derived memories carry their embeddings: each text is embedded once."""
        if not repair.memories:
            return repair, np.zeros((0, self.graph.unit.shape[1]), np.float32)
        vectors = self.verifier.index.embed([memory.text for memory in repair.memories])
        memories = tuple(
            replace(memory, embedding=vector) for memory, vector in zip(repair.memories, vectors, strict=True)
        )
        return replace(repair, memories=memories), vectors
