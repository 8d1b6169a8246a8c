"""Repairs of a memory that are only supposed: what one brings, and what it harms.

After every question, and every repair that was tried, the index ranks as it did before: what is supposed is
committed to the index of words by itself, and goes with its statistics when it is taken back.

Source: MemDream Eq. 12 [S]; standing probes, and fresh ones by other cue words, are ours [O].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.probe_index import ProbeIndex
from shared_core.agents.protocol import Probe, Retrieval, Target
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.agents.rule_dreamer import RuleDreamer
from shared_core.agents.verification import Verifier
from shared_core.agents.weakness import worth_asking
from shared_core.bank.derived import PREFIX
from shared_core.training import rewards
from shared_core.training.rehearsal import fresh_probes

if TYPE_CHECKING:
    from shared_core.agents.dream_config import DreamConfig
    from shared_core.bank.graph import MemoryGraph
    from shared_core.bank.repairing import Repair
    from shared_core.types import Embedder, FloatArray

STANDING = 12
"""Memories about which the rules ask standing probes, which no repair may make worse [O]."""
OTHERS = 8
"""Memories about which fresh probes tell whether a repair harms what it does not touch [O]."""

EMBEDDED = 1000
"""Derived texts whose embeddings are held: rollouts repeat each other."""


class Trials:
    """A memory on which repairs are tried and taken back; not safe for threads.

    Args:
        graph: The snapshot.
        embedder: Embeds queries and derived texts.
        config: k, gamma and the seed are used.
    """

    def __init__(self, graph: MemoryGraph, embedder: Embedder, config: DreamConfig) -> None:
        self.graph = graph
        self.config = config
        self.consolidator = RuleConsolidator(config.gamma)
        self._embedded: dict[tuple[str, ...], FloatArray] = {}
        self.verifier = Verifier(ProbeIndex(graph, embedder), config.k)
        self.verifier.ask(self._standing())

    def ask(self, probe: Probe) -> Retrieval:
        """Return what a probe retrieves."""
        return self.verifier.index.ask(probe, self.config.k)

    def f1(self, probes: Sequence[Probe]) -> list[float]:
        """Return the F1 of each probe as the memory is now."""
        self.verifier.index.learn([probe.query for probe in probes])
        return [self.ask(probe).f1 for probe in probes]

    def fresh(self, probe: Probe, ids: Sequence[str], seed: int) -> list[Probe]:
        """Return fresh questions about a probe's targets together, and about each of some memories."""
        return fresh_probes(self.graph, [probe, *map(_about, ids)], self.config.seed + seed)

    @contextmanager
    def supposed(self, repair: Repair) -> Iterator[None]:
        """Take up a repair for a block, whatever it brings."""
        index, repair = self.verifier.index, _renamed(repair)
        weights, vectors = index.weights.copy(), self._vectors(repair)
        index.suppose(repair, vectors)
        try:
            yield
        finally:
            index.forget(repair, weights)

    def verified(self, probe: Probe, outcome: Retrieval, repair: Repair) -> float:
        """Return the F1 that a repair gains on a probe; 0 where it does not help or harms another."""
        verifier, repair = self.verifier, _renamed(repair)
        vectors = self._vectors(repair)
        standing = probe in verifier.now
        verifier.now[probe] = outcome
        try:
            trial = verifier.attempt(repair, vectors, probe)
            if trial.refused is not None:
                return 0.0
            verifier.take_back(repair, trial)
            return trial.after - trial.before
        finally:
            if not standing:
                del verifier.now[probe]

    def repair_of(self, probe: Probe) -> tuple[Repair | None, float]:
        """Return the rules' repair for a question, and the F1 it gains on that question.

        None and 0 where the question is answered, where the rules have no repair, or where their repair
        does not help the question or makes a standing probe worse.
        """
        outcome = self.ask(probe)
        if outcome.f1 >= 1.0:
            return None, 0.0
        for diagnosis in RuleAnalyst().diagnose(self.graph, [(probe, outcome)]):
            repair = self.consolidator.propose(self.graph, diagnosis)
            if repair is not None and (gained := self.verified(probe, outcome, repair)) > 0:
                return repair, gained
        return None, 0.0

    def gain(self, probe: Probe, repair: Repair | None) -> float:
        """Return r_joint (Eq. 12), in [-1, 1]: mean of F1(q, G') - F1(q, G) over fresh probes.

        Fresh are questions about the probe's targets, about each memory that the repair quotes or weighs
        anew, and about a fixed sample of other memories, so that harm counts; all in words that no question
        of the single agents' training used [O].

        Args:
            probe: The question that the repair is made for.
            repair: Not verified, only supposed; None changes nothing and has 0.
        """
        if repair is None:
            return 0.0
        touched = dict.fromkeys([*_quoted(repair), *repair.weights])
        about = self.fresh(probe, [one for one in touched if one in self.graph.row_of], seed=1)
        fresh = list(dict.fromkeys([*about, *self._others]))
        before = self.f1(fresh)
        with self.supposed(repair):
            after = self.f1(fresh)
        return rewards.joint(before, after)

    # ---- inner

    @cached_property
    def _others(self) -> list[Probe]:
        rows = self._sample(OTHERS, draw=2)
        about = [_about(self.graph.ids[row]) for row in rows]
        return fresh_probes(self.graph, about, self.config.seed + 1)

    def _standing(self) -> list[Probe]:
        targets = [
            Target(row=row, partner=None, weakness="isolated", score=0.0)
            for row in self._sample(STANDING, draw=1)
        ]
        return RuleDreamer().probe(self.graph, targets, seed=self.config.seed)

    def _sample(self, count: int, draw: int) -> list[int]:
        rng = np.random.default_rng([self.config.seed, draw])
        rows: list[int] = rng.permutation(worth_asking(self.graph))[:count].tolist()
        return rows

    def _vectors(self, repair: Repair) -> FloatArray:
        texts = tuple(memory.text for memory in repair.memories)
        if not texts:
            return np.zeros((0, self.graph.unit.shape[1]), np.float32)
        if texts not in self._embedded:
            if len(self._embedded) >= EMBEDDED:
                self._embedded.clear()
            self._embedded[texts] = self.verifier.index.embed(texts)
        return self._embedded[texts]


def _about(memory_id: str) -> Probe:
    """Return what ``fresh_probes`` needs to ask about one memory."""
    return Probe(query="", expected_answer="", targets=(memory_id,), query_type="fact", weakness="isolated")


def _quoted(repair: Repair) -> list[str]:
    return [source for memory in repair.memories for source in memory.sources]


def _renamed(repair: Repair) -> Repair:
    """Return a repair with ids that are the same in every try: equal scores are ordered by id."""
    named = [replace(memory, id=f"{PREFIX}{at}") for at, memory in enumerate(repair.memories)]
    return replace(repair, memories=tuple(named))
