"""The terms ``dominance`` and ``hearsay``: one source against the others who write about the same subject.

Does: for each memory, how much of its neighbourhood its own source wrote, and whether that source quotes
where the others do not. False claims planted in a shared memory come from one agent, support each other, and
lean on what somebody is said to have said.

Does not know: what a claim says, whether it is true, any language; whether an origin is who it says it is.

Source: none, ours [O]. Both only rank, and flag nobody: an honest specialist dominates a subject, too, and an
honest reporter quotes. A source that writes no more than the others, or several that act together, are seen
less well, or not at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.terms.registry import activation_term
from shared_core.dynamics.terms.view import BankView, TermEvidence, TermResult
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.types import Array, BoolArray, FloatArray

OPENING_QUOTE = re.compile(r"""(?<!\w)["'“„‚‘‹›](?=\w)|[«»「『《〈]""")
"""A quotation mark before a word; an apostrophe stands inside or after one."""
PRIOR_VARIANCE = 0.05
"""Added to the variance of a difference of rates, so that two memories prove little."""


@activation_term("dominance", needs={"origins"})
def dominance(view: BankView) -> TermResult:
    """Which share of a memory's nearest memories its own source wrote.

    A memory of unknown origin gets the mean of the others.

    Args:
        view: Its origins and embeddings are used.

    Returns:
        Score in [0, 1].
    """
    own, known = _own(view)
    near = view.nearest
    share = own.mean(axis=1) if near.shape[1] else np.zeros(len(view))
    if known.any():
        share = np.where(known, share, share[known].mean())

    def evidence(row: int) -> TermEvidence | None:
        written = near[row][own[row]]
        if not len(written):
            return None
        return TermEvidence(
            text=f"{len(written)} of the {near.shape[1]} nearest memories are by the same source",
            neighbours=tuple(int(other) for other in written),
            details={"share": float(share[row])},
        )

    return TermResult(score=share, evidence=evidence)


@activation_term("hearsay", needs={"origins"})
def hearsay(view: BankView) -> TermResult:
    """How much more often a memory's source quotes than the others who write about the same subject.

    The difference between two rates of memories with a quotation mark, of the source (the memory itself and
    those of its nearest that the source wrote) and of the rest of the nearest, over its standard error. It is
    0 where nobody else writes about the subject, and for a memory of unknown origin.

    Args:
        view: Its keys, origins and embeddings are used.

    Returns:
        Score around 0, in standard errors.
    """
    own, known = _own(view)
    near = view.nearest
    quotes = np.array([OPENING_QUOTE.search(key) is not None for key in view.keys], np.bool_)
    others = near.shape[1] - own.sum(axis=1)
    ours = 1 + own.sum(axis=1)
    quoting = quotes[near]
    quoted_by_us = quotes + (quoting & own).sum(axis=1)
    quoted_by_others = (quoting & ~own).sum(axis=1)
    score = _rate_difference(quoted_by_us, ours, quoted_by_others, others)
    score = np.where(known & (others > 0), score, 0.0)

    def evidence(row: int) -> TermEvidence | None:
        if score[row] <= 0:
            return None
        counts = [int(count[row]) for count in (quoted_by_us, ours, quoted_by_others, others)]
        return TermEvidence(
            text="its source quotes in {} of {} memories about this subject, others in {} of {}".format(
                *counts
            ),
            neighbours=tuple(int(other) for other in near[row][own[row]]),
            details={"standard_errors": float(score[row])},
        )

    return TermResult(score=score, evidence=evidence)


def _own(view: BankView) -> tuple[BoolArray, BoolArray]:
    """Return who of ``view.nearest`` has a memory's own origin, and (N,) whose origin is known."""
    if view.origins is None:
        raise ConfigError(
            "terms 'dominance' and 'hearsay' compare sources: open the bank with origin_key=..."
        )
    number = {origin: place for place, origin in enumerate(dict.fromkeys(view.origins))}
    source = np.array([number[origin] for origin in view.origins], np.int32)
    known = np.array([bool(origin.strip()) for origin in view.origins], np.bool_)
    return (source[view.nearest] == source[:, None]) & known[:, None], known


def _rate_difference(first: Array, of_first: Array, second: Array, of_second: Array) -> FloatArray:
    """Return first/of_first - second/of_second over its standard error; of_second 0 counts as 1."""
    of_second = np.maximum(of_second, 1)
    rate = (first + second) / (of_first + of_second)
    variance = rate * (1 - rate) * (1 / of_first + 1 / of_second) + PRIOR_VARIANCE
    difference: FloatArray = (first / of_first - second / of_second) / np.sqrt(variance)
    return difference
