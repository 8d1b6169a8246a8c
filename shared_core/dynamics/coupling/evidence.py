"""How strongly a group of memories behaves as one planted rule: three ratios from re-embedded text.

Does: embeds each sampled key with and without the shared span, compares both with the memories outside the
group, and multiplies the ratios to one score.

Does not know: how groups are found, what is done with the score, which model embeds.

Source: none, ours [O]; constants in ``CouplingConfig``. All groups are compared with a block of the bank at
once, so that the bank is read once and memory does not grow with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from shared_core.config import CouplingConfig
    from shared_core.dynamics.coupling.groups import Proposal
    from shared_core.dynamics.coupling.ngrams import SharedNgrams
    from shared_core.types import Array, FloatArray

Embed: TypeAlias = "Callable[[list[str]], FloatArray]"
"""Texts in, unit vectors of shape (len(texts), d) out, by the model that embedded the bank."""
_NOBODY = -2.0
_SMALLEST_SPREAD = 1e-3
EMPTY = "."
_BLOCK = 4096
"""Memories that are compared at once."""
TYPICAL = 20_000
"""Memories up to which all cosines of the sampled ones give the median; above, so many of them [O]."""


@dataclass(frozen=True)
class Evidence:
    """What occlusion says about a group, in units of the bank's spread."""

    gain: float
    """How much nearer to other memories the keys come when the span is taken out."""
    unexplained: float
    """How much nearer the remainders are to other memories than to each other: what they have in common is
    the span, not their content."""


def spread(unit: FloatArray, rows: int, rng: np.random.Generator) -> float:
    """Return the scale of cosines in a bank: median nearest neighbour less median cosine, on a sample.

    Args:
        unit: (N, d) unit vectors, N at least 2.
        rows: How many are sampled.
        rng: Source of randomness.
    """
    sample = rng.choice(len(unit), min(len(unit), rows), replace=False)
    vectors = unit[sample]
    alone = [np.array([row]) for row in sample.tolist()]
    nearest = _nearest_outside(vectors, np.ones(len(sample), np.int64), alone, unit)
    size = len(unit)
    # a stream of its own: what is drawn after it does not depend on the bank's size
    among = np.arange(size) if size <= TYPICAL else rng.spawn(1)[0].choice(size, TYPICAL, replace=False)
    cosines = (vectors @ unit[among].T)[among != sample[:, None]]
    return max(_SMALLEST_SPREAD, float(np.median(nearest) - np.median(cosines)))


def measure(
    proposals: Sequence[Proposal],
    keys: SharedNgrams,
    unit: FloatArray,
    embed: Embed,
    scale: float,
) -> list[Evidence]:
    """Return the evidence for each group (occlusion by embedding again).

    Args:
        proposals: Groups with at least two sampled members.
        keys: The bank's keys.
        unit: (N, d) their unit embeddings.
        embed: See ``Embed``.
        scale: See ``spread``.
    """
    texts: list[str] = []
    for proposal in proposals:
        texts += [text or EMPTY for text in proposal.remainders]
        texts += [" ".join(keys.tokens[row]) or EMPTY for row in proposal.sample]
    if not texts:
        return []
    vectors = embed(texts)
    sizes = np.array([2 * len(proposal.sample) for proposal in proposals], np.int64)
    nearest = _nearest_outside(vectors, sizes, [one.candidate.members for one in proposals], unit)
    ends = np.cumsum(sizes)[:-1]
    return [
        _occlusion(part[: len(part) // 2], outside, scale)
        for part, outside in zip(np.split(vectors, ends), np.split(nearest, ends), strict=True)
    ]


def _nearest_outside(
    vectors: FloatArray, sizes: Array, groups: Sequence[Array], unit: FloatArray
) -> FloatArray:
    """Return for each vector its largest cosine with a memory outside its group.

    Args:
        vectors: (V, d) of all groups, one group after the other.
        sizes: (G,) vectors of each group.
        groups: G times the rows of its memories, ascending.
        unit: (N, d) the bank.
    """
    ends = np.cumsum(sizes)
    edges = np.append(np.arange(0, len(unit), _BLOCK), len(unit))
    borders = np.array([np.searchsorted(group, edges) for group in groups])
    nearest = np.full(len(vectors), _NOBODY, vectors.dtype)
    for block, (begin, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        cosines = vectors @ unit[begin:end].T
        for group in np.flatnonzero(borders[:, block] < borders[:, block + 1]).tolist():
            members = groups[group][borders[group, block] : borders[group, block + 1]]
            cosines[ends[group] - sizes[group] : ends[group], members - begin] = _NOBODY
        np.maximum(nearest, cosines.max(axis=1), out=nearest)
    return nearest


def _occlusion(remainder: FloatArray, outside: FloatArray, scale: float) -> Evidence:
    """Return what the keys without the span say, by the nearest memories outside without and with it."""
    without, within = outside[: len(remainder)], outside[len(remainder) :]
    others = ~np.eye(len(remainder), dtype=np.bool_)
    among = (remainder @ remainder.T)[others].reshape(len(remainder), -1)
    return Evidence(
        gain=float(np.median(without - within)) / scale,
        unexplained=float(np.median(without - np.median(among, axis=1))) / scale,
    )


@dataclass(frozen=True)
class Ratios:
    """The factors of a score; the first three in [0, ``cap``]."""

    payload: float
    """((payload + 2) / 9)^1.25."""
    trigger: float
    """Largest of gain / 0.10, ``cap`` * extended and (named - 6) / 4."""
    unexplained: float
    """unexplained / 0.30; 0 where the members' content explains why they stand together."""
    size: float
    """min(1, (M - 1) / 4); 0 where too few memories lie outside the group to compare with."""

    @property
    def score(self) -> float:
        """Their product."""
        return self.payload * self.trigger * self.unexplained * self.size


def ratios(proposal: Proposal, evidence: Evidence, count: int, config: CouplingConfig) -> Ratios:
    """Return how much a group looks planted, factor by factor.

    A trigger shows in one of three ways: the keys move nearer to others without it, they continue other keys,
    or the values name it in a long rule that all of them state.

    Args:
        proposal: The group.
        evidence: Its evidence.
        count: N, memories in the comparison.
        config: The constants.
    """
    named = named_ratio(proposal, config)
    unexplained = evidence.unexplained / config.unexplained_unit
    sure = proposal.extended >= config.variants or named >= 1.0
    if evidence.unexplained < config.min_unexplained and not sure:
        unexplained = 0.0
    trigger = max(evidence.gain / config.gain_unit, config.cap * proposal.extended, named)
    return Ratios(
        payload=payload_ratio(proposal, config),
        trigger=min(max(0.0, trigger), config.cap),
        unexplained=min(max(0.0, unexplained), config.cap),
        size=size_ratio(proposal, count, config),
    )


def score(proposal: Proposal, evidence: Evidence, count: int, config: CouplingConfig) -> float:
    """Return the product of the ``ratios``, in [0, ``cap``^3]."""
    return ratios(proposal, evidence, count, config).score


def most(proposal: Proposal, count: int, config: CouplingConfig) -> float:
    """Return the score that a group has at most, whatever its evidence."""
    return payload_ratio(proposal, config) * size_ratio(proposal, count, config) * config.cap**2


def payload_ratio(proposal: Proposal, config: CouplingConfig) -> float:
    """Return the first factor."""
    words = (proposal.payload + config.payload_offset) / config.payload_unit
    return float(min(config.cap, words**config.payload_power))


def named_ratio(proposal: Proposal, config: CouplingConfig) -> float:
    """Return how far the values name the trigger."""
    return float(max(0.0, proposal.named - config.named_offset) / config.named_unit)


def size_ratio(proposal: Proposal, count: int, config: CouplingConfig) -> float:
    """Return the last factor."""
    members = len(proposal.candidate.members)
    enough = count - members >= config.min_outside
    return min(1.0, (members - 1) / config.size_unit) if enough else 0.0
