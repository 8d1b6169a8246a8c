"""Rewards of the three agents and of their joint training, every term a function of its own.

Terms are in [0, 1] unless they say otherwise. Nothing here asks a memory: scores of retrieval come in.

Source: MemDream Eq. 8-10 and 12 and the sentences under them [S]. The paper names each term, gives no formula
and no weight (it points to an appendix that has none): the formulas and weights are ours [O]. Weights follow
the paper's rule, the primary objective above the regularizers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import get_args

import numpy as np

from shared_core.agents.protocol import QueryType, RepairOperation
from shared_core.config import checked_whole
from shared_core.errors import ConfigError
from shared_core.language import Source, content_words, resolve_dates, split_sentences, unsupported
from shared_core.types import FloatArray

QUERY_TYPES: tuple[str, ...] = get_args(QueryType)
OPERATIONS: tuple[str, ...] = get_args(RepairOperation)


@dataclass(frozen=True, kw_only=True)
class _Weights:
    def __post_init__(self) -> None:
        """Check that the weights are 0 or more and sum to 1."""
        values = astuple(self)
        each = all(isinstance(value, (int, float)) and 0 <= value <= 1 for value in values)
        if not each or not np.isclose(sum(values), 1.0):
            raise ConfigError(f"{type(self).__name__}{values} must be 0 or more each, and sum to 1")


@dataclass(frozen=True, kw_only=True)
class DreamerWeights(_Weights):
    """Of Eq. 8 [O].

    Raises:
        ConfigError: A weight is negative, or they do not sum to 1; so for the other weights.
    """

    discrimination: float = 0.4
    downstream: float = 0.4
    coverage: float = 0.2


@dataclass(frozen=True, kw_only=True)
class AnalystWeights(_Weights):
    """Of Eq. 9 [O]."""

    actionable: float = 0.5
    diversity: float = 0.15
    size: float = 0.15
    structure: float = 0.2


@dataclass(frozen=True, kw_only=True)
class ConsolidatorWeights(_Weights):
    """Of Eq. 10 [O]; the last two weigh grounding and deduplication in a merge or synthesis."""

    qa: float = 0.5
    coverage: float = 0.2
    temporal: float = 0.15
    concise: float = 0.15


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """Weights of Eq. 8-10, and where r_size peaks [all O]."""

    dreamer: DreamerWeights = field(default_factory=DreamerWeights)
    analyst: AnalystWeights = field(default_factory=AnalystWeights)
    consolidator: ConsolidatorWeights = field(default_factory=ConsolidatorWeights)
    moderate: int = 6
    """Repairs per cycle at which r_size is 1."""

    def __post_init__(self) -> None:
        """Check the peak."""
        checked_whole("moderate", self.moderate)


# ---- Eq. 8: the Dreamer


def discrimination(f1: Sequence[float], weakness: Sequence[float]) -> float:
    """Return r_disc: mean weakness of what failed, less that of what was answered, in [-1, 1].

    Args:
        f1: Of each probe, in [0, 1]; it counts as failed for 1 - F1.
        weakness: phi(v) of each probe's target (Eq. 3), in [0, 1].
    """
    good, weak = _same_length(f1, weakness)
    failed = 1.0 - good
    if failed.sum() == 0 or good.sum() == 0:
        return 0.0
    return float(np.average(weak, weights=failed) - np.average(weak, weights=good))


def downstream(before: Sequence[float], after: Sequence[float]) -> float:
    """Return r_down: mean gain of F1 that repairs for these probes brought, in [-1, 1]."""
    return joint(before, after)


def query_coverage(query_types: Sequence[str]) -> float:
    """Return r_cov of the Dreamer: distinct query types, of all there are."""
    return len(set(query_types) & set(QUERY_TYPES)) / len(QUERY_TYPES)


def dreamer_reward(terms: Mapping[str, float], weights: DreamerWeights | None = None) -> float:
    """Return r_D (Eq. 8) of terms by name.

    Raises:
        ConfigError: The terms are not exactly those of the weights; so for the other agents.
    """
    return _weighted(terms, weights or DreamerWeights())


# ---- Eq. 9: the Analyst


def actionable(targets: Sequence[Collection[str]], known: Collection[str]) -> float:
    """Return r_act: share of the repairs whose targets are all in the bank; 0 where there is none."""
    held = set(known)
    return float(np.mean([bool(one) and set(one) <= held for one in targets])) if targets else 0.0


def diversity(operations: Sequence[str]) -> float:
    """Return r_div: distinct repair types, of as many as so many repairs could have."""
    if not operations:
        return 0.0
    return len(set(operations) & set(OPERATIONS)) / min(len(operations), len(OPERATIONS))


def size(repairs: int, moderate: int = 6) -> float:
    """Return r_size: n/m * exp(1 - n/m), which is 0 without repairs, 1 at m, and falls slowly behind it."""
    share = repairs / moderate
    return float(share * np.exp(1.0 - share))


def structure(well_formed: Sequence[bool]) -> float:
    """Return r_struct: share of the outputs that could be parsed and checked; 0 where there is none."""
    return float(np.mean(well_formed)) if well_formed else 0.0


def analyst_reward(terms: Mapping[str, float], weights: AnalystWeights | None = None) -> float:
    """Return r_A (Eq. 9) of terms by name."""
    return _weighted(terms, weights or AnalystWeights())


# ---- Eq. 10: the Consolidator


def answered(f1: Sequence[float]) -> float:
    """Return r_qa: mean F1 of the affected questions; 0 where there is none."""
    return float(np.mean(f1)) if len(f1) else 0.0


def retained(text: str, sources: Sequence[Source]) -> float:
    """Return r_cov of the Consolidator: share of the sources' content words that a derived text keeps."""
    wanted = {word for source in sources for word in content_words(source.text)}
    return len(wanted & set(content_words(text))) / len(wanted) if wanted else 1.0


def temporal(text: str, sources: Sequence[Source]) -> float:
    """Return r_temp: share of the sources' time expressions that a derived text keeps, letter by letter."""
    cues = {mention.text for source in sources for mention in resolve_dates(source.text, source.day)}
    return sum(cue in text for cue in cues) / len(cues) if cues else 1.0


def concise(text: str, sources: Sequence[Source]) -> float:
    """Return r_concise: 1 up to half the words of the sources, falling to 0 at one and a half times them."""
    words = sum(len(source.text.split()) for source in sources)
    return float(np.clip(1.5 - len(text.split()) / words, 0.0, 1.0)) if words else 0.0


def grounded(text: str, sources: Sequence[Source]) -> float:
    """Return 1 where every name, number and date of a text stands in its sources, else 0."""
    return float(not unsupported(text, sources))


def deduplicated(text: str) -> float:
    """Return the share of distinct sentences; 0 for an empty text."""
    said = [" ".join(sentence.casefold().split()) for sentence in split_sentences(text)]
    return len(set(said)) / len(said) if said else 0.0


def consolidator_terms(
    operation: RepairOperation, f1: Sequence[float], text: str, sources: Sequence[Source]
) -> dict[str, float]:
    """Return the terms of Eq. 10 for one repair.

    Extract has the paper's four [S]; merge and synthesize have grounding for ``temporal`` and deduplication
    for ``concise`` ("analogous rewards" [S], which is whose place is ours [O]); prune writes no text and
    loses none, so that all but ``qa`` are 1 [O].
    """
    terms = {"qa": answered(f1), "coverage": 1.0, "temporal": 1.0, "concise": 1.0}
    if operation == "prune":
        return terms
    terms["coverage"] = retained(text, sources)
    if operation == "extract":
        return {**terms, "temporal": temporal(text, sources), "concise": concise(text, sources)}
    return {**terms, "temporal": grounded(text, sources), "concise": deduplicated(text)}


def consolidator_reward(terms: Mapping[str, float], weights: ConsolidatorWeights | None = None) -> float:
    """Return r_C (Eq. 10) of terms by name."""
    return _weighted(terms, weights or ConsolidatorWeights())


# ---- Eq. 8-10 for one rollout


def rollout_discrimination(f1: float, weakness: float, mean: float, spread: float) -> float:
    """Return r_disc of one probe, in [0, 1]: what it adds to ``discrimination`` [O].

    A failed probe (F1 = 0) earns how far its target is weaker than the bank's mean, an answered one
    (F1 = 1) how far it is stronger; 0.5 is neutral. Never below 0, so that no usable reply is worth less
    than an unusable one.

    Args:
        f1: Of the probe, in [0, 1].
        weakness: phi(v) of its target.
        mean: Of phi over the bank.
        spread: Largest distance of phi from that mean; 0 where all are equal.
    """
    distance = float(np.clip((weakness - mean) / spread, -1.0, 1.0)) if spread > 0 else 0.0
    return (1.0 + (1.0 - 2.0 * f1) * distance) / 2.0


def rollout_shares(kinds: Sequence[str]) -> list[float]:
    """Return r_cov or r_div of each rollout of a group: 1 / how many are of its kind [O].

    Summed over a group this counts the distinct kinds, which ``query_coverage`` and ``diversity`` do for a
    batch.
    """
    return [1.0 / kinds.count(kind) for kind in kinds]


def rollout_actionable(targets_known: bool, *, helps: bool) -> float:
    """Return r_act of one diagnosis: half for targets that exist [S], half for a repair that helps [O].

    That the targets exist is checked before a reply is used at all; alone it would be 1 for all of them.
    """
    return (float(targets_known) + float(helps)) / 2.0


def rollout_size(named: int, needed: int) -> float:
    """Return r_size of one diagnosis: 1 where it names as many memories as its operation needs [O].

    The curve is that of ``size``; what is moderate in one diagnosis is its memories, not its repairs.
    """
    return size(named, max(1, needed))


# ---- Eq. 12: joint


def joint(before: Sequence[float], after: Sequence[float]) -> float:
    """Return r_joint (Eq. 12): mean of F1(q, G') - F1(q, G) over fresh probes, in [-1, 1]; 0 without any.

    Args:
        before: F1 of each probe on the memory before consolidation.
        after: The same probes' F1 after it.
    """
    old, new = _same_length(before, after)
    return float((new - old).mean()) if len(old) else 0.0


# ---- inner


def _weighted(terms: Mapping[str, float], weights: _Weights) -> float:
    names = list(weights.__dataclass_fields__)
    if set(terms) != set(names):
        raise ConfigError(f"terms {sorted(terms)} must be exactly {sorted(names)}")
    return float(sum(getattr(weights, name) * terms[name] for name in names))


def _same_length(one: Sequence[float], other: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    if len(one) != len(other):
        raise ConfigError(f"{len(one)} and {len(other)} values: give one of each per probe")
    return np.asarray(one, float), np.asarray(other, float)
