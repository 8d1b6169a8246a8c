"""Dry dream cycles over a part of a bank's memories: what to learn from, and what a policy is judged by.

Everything is only supposed in a ``ProbeIndex``, by the cycle's own code; nothing is written.

Source: MemDream Eq. 12: F1 on fresh questions before and after consolidation [S]; fresh ones by other cue
words, and the split by memories, are ours [O].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.dreaming import Dreaming
from shared_core.agents.probe_index import ProbeIndex
from shared_core.agents.protocol import Diagnosis, Probe, Retrieval, Target
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.agents.rule_dreamer import CUES, RuleDreamer
from shared_core.agents.weakness import worth_asking
from shared_core.language import content_words
from shared_core.language.pages import line_of
from shared_core.training.features import CHOICES, SKIP, Case, Scene

if TYPE_CHECKING:
    from shared_core.agents.dream_config import DreamConfig
    from shared_core.agents.protocol import Analyst
    from shared_core.agents.verification import Verifier
    from shared_core.bank.graph import MemoryGraph
    from shared_core.types import Embedder, FloatArray, Progress

FRESH = 2
"""Fresh questions per memory, or pair of memories, that a cycle asked about [O]."""


@dataclass(frozen=True)
class Only:
    """A dreamer that asks about some memories only; satisfies ``Dreamer``."""

    rows: frozenset[int]

    def probe(self, graph: MemoryGraph, targets: Sequence[Target], *, seed: int) -> list[Probe]:
        """Return the rules' probes; a partner outside is left out, so that parts share no memory."""
        own = [
            target if target.partner in self.rows else replace(target, partner=None)
            for target in targets
            if target.row in self.rows
        ]
        return RuleDreamer().probe(graph, own, seed=seed)


@dataclass
class Recorder:
    """An analyst that repairs nothing, and keeps what failed; satisfies ``Analyst``."""

    failures: list[tuple[Probe, Retrieval]] = field(default_factory=list)

    def diagnose(self, graph: MemoryGraph, failures: Sequence[tuple[Probe, Retrieval]]) -> list[Diagnosis]:  # noqa: ARG002
        """Return nothing."""
        known = {probe for probe, _ in self.failures}
        self.failures += [one for one in failures if one[0] not in known]
        return []


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a dry cycle would bring on its own and on fresh probes, all counted alike."""

    probes: int
    """Asked by the cycle."""
    fresh: int
    """Asked only afterwards."""
    f1_before: float
    """Mean over both kinds."""
    f1_after: float
    fresh_before: float
    """Mean over the fresh ones (Eq. 12)."""
    fresh_after: float
    repairs: int

    @property
    def gain(self) -> float:
        """Mean gain of F1 over both kinds."""
        return self.f1_after - self.f1_before


@dataclass(frozen=True, kw_only=True, eq=False)
class Lessons:
    """Cases with the reward of every choice."""

    cases: Sequence[Case]
    rewards: FloatArray
    """Shape (cases, len(CHOICES)); 0 where a choice cannot be made."""
    tried: int
    """Repairs that were supposed."""

    @property
    def features(self) -> FloatArray:
        """Shape (cases, features)."""
        return np.stack([case.features for case in self.cases])

    @property
    def allowed(self) -> FloatArray:
        """Shape (cases, len(CHOICES))."""
        return np.stack([case.allowed for case in self.cases])


def split_rows(graph: MemoryGraph, shares: Sequence[float], seed: int) -> list[frozenset[int]]:
    """Return disjoint random parts of the memories that are worth asking about, one per share.

    Args:
        graph: The snapshot.
        shares: Of the memories, summing to 1.
        seed: Of the split.
    """
    order = np.random.default_rng(seed).permutation(worth_asking(graph))
    ends = np.round(np.cumsum(shares) * len(order)).astype(int)
    return [frozenset(part.tolist()) for part in np.split(order, ends[:-1])]


def rehearse(
    graph: MemoryGraph, embedder: Embedder, rows: frozenset[int], analyst: Analyst, config: DreamConfig
) -> Outcome:
    """Dream about some memories, writing nothing, and ask fresh questions before and after.

    Args:
        graph: The snapshot.
        embedder: The bank's.
        rows: What may be asked about.
        analyst: Decides on repairs.
        config: Of the cycle; its groundwork is left out.
    """
    dreaming = _dreaming(graph, embedder, rows, analyst, config)
    dreaming.run()
    asked = list(dreaming.verifier.first)
    fresh = fresh_probes(graph, asked, config.seed)
    # not the cycle's first answers: later rounds ask a memory that is repaired already
    before, old = _asked(ProbeIndex(graph, embedder), asked, fresh, config.k)
    after, new = _asked(dreaming.verifier.index, asked, fresh, config.k)
    return Outcome(
        probes=len(asked),
        fresh=len(fresh),
        f1_before=_mean(before + old),
        f1_after=_mean(after + new),
        fresh_before=_mean(old),
        fresh_after=_mean(new),
        repairs=len(dreaming.kept),
    )


def lessons(
    graph: MemoryGraph,
    embedder: Embedder,
    rows: frozenset[int],
    config: DreamConfig,
    *,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> Lessons:
    """Suppose every choice of every failed probe alone, and measure what it brings.

    The reward is the F1 gained on the case's own probe and on the fresh ones about its memories, less what
    all other fresh ones lose. What others gain is theirs: counted here too, one repair would be rewarded in
    many cases and be made once. Skipping has 0, and so has what verification refuses: it harms nobody.

    Args:
        graph: The snapshot.
        embedder: The bank's.
        rows: What may be asked about.
        config: Of the cycle; its groundwork is left out.
        stop: Asked between cases; those that are left are left out.
        progress: Called as ``progress("try repairs", done, cases)``.
    """
    recorder = Recorder()
    dreaming = _dreaming(graph, embedder, rows, recorder, config)
    dreaming.run()
    cases = Scene(graph).cases(recorder.failures, RuleAnalyst().diagnose(graph, recorder.failures))
    fresh = fresh_probes(graph, list(dreaming.verifier.first), config.seed)
    trials = _Trials(graph, dreaming.verifier, RuleConsolidator(config.gamma), fresh)
    found: list[FloatArray] = []
    for done, case in enumerate(cases, start=1):
        if stop is not None and stop():
            break
        found.append(trials.rewards(case))
        if progress is not None:
            progress("try repairs", done, len(cases))
    rewards = np.stack(found) if found else np.zeros((0, len(CHOICES)))
    return Lessons(cases=cases[: len(found)], rewards=rewards, tried=trials.tried)


def fresh_probes(graph: MemoryGraph, asked: Sequence[Probe], seed: int) -> list[Probe]:
    """Return questions about the same memories in other words: ``CUES`` random words, not the rarest.

    Args:
        graph: The snapshot.
        asked: What a cycle asked; none of its queries comes again.
        seed: Of the words.
    """
    rng = np.random.default_rng([seed, 1])
    known = {probe.query for probe in asked}
    about = {probe.targets: probe for probe in asked}
    found: dict[str, Probe] = {}
    for targets, probe in about.items():
        row = graph.row_of[targets[-1]]
        speaker, said = line_of(graph.texts[row], graph.speakers[row])
        words = list(dict.fromkeys(content_words(said)))
        for _ in range(FRESH if len(words) > CUES else 0):
            cues = " and ".join(words[at] for at in sorted(rng.choice(len(words), CUES, replace=False)))
            query = f"Tell me what {speaker or 'anybody'} mentioned about {cues}."
            if query not in known:
                found[query] = replace(probe, query=query)
    return list(found.values())


# ---- inner


class _Trials:
    """What choices bring when each is made alone."""

    def __init__(
        self,
        graph: MemoryGraph,
        verifier: Verifier,
        consolidator: RuleConsolidator,
        fresh: Sequence[Probe],
    ) -> None:
        self.tried = 0
        self._graph = graph
        self._verifier = verifier
        self._consolidator = consolidator
        self._fresh = fresh
        verifier.index.learn([probe.query for probe in fresh])
        self._before = self._ask_fresh()

    def rewards(self, case: Case) -> FloatArray:
        found = np.zeros(len(CHOICES))
        for choice, diagnosis in case.options.items():
            if choice != SKIP:
                found[choice] = self._reward(diagnosis)
        return found

    def _reward(self, diagnosis: Diagnosis) -> float:
        repair = self._consolidator.propose(self._graph, diagnosis)
        if repair is None:
            return 0.0
        self.tried += 1
        index = self._verifier.index
        texts = [memory.text for memory in repair.memories]
        vectors = index.embed(texts) if texts else np.zeros((0, self._graph.unit.shape[1]), np.float32)
        trial = self._verifier.attempt(repair, vectors, diagnosis.probe)
        if trial.refused is not None:
            return 0.0
        gained = self._ask_fresh() - self._before
        self._verifier.take_back(repair, trial)
        own = np.array([probe.targets == diagnosis.probe.targets for probe in self._fresh], bool)
        return trial.after - trial.before + float(np.where(own, gained, np.minimum(gained, 0.0)).sum())

    def _ask_fresh(self) -> FloatArray:
        return np.array([self._verifier.index.ask(probe, self._verifier.k).f1 for probe in self._fresh])


def _dreaming(
    graph: MemoryGraph, embedder: Embedder, rows: frozenset[int], analyst: Analyst, config: DreamConfig
) -> Dreaming:
    return Dreaming(
        graph=graph,
        embedder=embedder,
        dreamer=Only(rows),
        analyst=analyst,
        consolidator=RuleConsolidator(config.gamma),
        config=replace(config, groundwork=False),
        write=None,
    )


def _asked(
    index: ProbeIndex, probes: Sequence[Probe], fresh: Sequence[Probe], k: int
) -> tuple[list[float], list[float]]:
    """Return the F1 of a cycle's probes and of fresh ones."""
    index.learn([probe.query for probe in (*probes, *fresh)])
    return [index.ask(one, k).f1 for one in probes], [index.ask(one, k).f1 for one in fresh]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 1.0
