"""From the scores of several terms to one verdict, without labels.

Does: runs the named terms on a bank, standardises each robustly, and combines them: who is flagged, and how
suspect everybody is.

Does not know: what any term looks at, storage, weights, suspicion.

Source: none, ours [O]; DREAM's Eq. 5 is a plain sum of three terms. Robust statistics, because poison is part
of the bank that gives the scale, and a few extreme scores must not hide the next ones. Terms that decide come
first and terms that only rank break their ties: a plain sum of both measured worse where coupling is weak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.diagnosis import moments
from shared_core.dynamics.terms.registry import Term, evaluate_term, find_term
from shared_core.dynamics.terms.view import BankView, SharedWords, TermEvidence, TermResult
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.types import Array, BoolArray, FloatArray

MAD_TO_STD = 1.4826
"""Median absolute deviation to standard deviation, where the scores are normal."""
MEAN_TO_STD = 1.2533
"""Mean absolute deviation to standard deviation, the same."""
LARGEST_STANDARD = 10.0
"""Standardised scores beyond it count as it: no term can drown others of its kind [O]."""
DECIDING_WEIGHT = 100.0
"""Of terms that decide, among those that nobody flags; terms that only rank have 1 [O]."""
_RELATIVE_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ScoredTerm:
    """One term's result on a bank of N memories, with the numbers that make terms comparable."""

    term: Term
    result: TermResult
    standard: FloatArray
    """(N,) robustly standardised score, see ``standardise``."""

    @property
    def flagged(self) -> BoolArray:
        """(N,) whom this term flags; nobody where it only ranks."""
        flagged = self.result.flagged
        return np.zeros(len(self.standard), np.bool_) if flagged is None else flagged

    def rank(self, row: int) -> int:
        """Return how many memories are at least as suspect by this term; 1 is the most suspect, alone."""
        return int(np.count_nonzero(self.result.score >= self.result.score[row]))


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the terms say together."""

    score: FloatArray
    """(N,) how suspect each memory is: 1 or more where a term flags it, in units of that term's level;
    below 1, in (0, 1), where none does."""
    flagged: BoolArray
    """(N,) some deciding term flags it."""
    held: BoolArray | None = None
    """(N,) who would be flagged but for a term's cap; None where nobody is."""
    terms: tuple[ScoredTerm, ...] = ()
    """In the order of ``config.terms``, without those that were skipped."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Each term for which the bank lacks something, and what."""

    @property
    def warnings(self) -> list[str]:
        """Return what the terms could not see, each once."""
        return list(dict.fromkeys(line for scored in self.terms for line in scored.result.warnings))

    @property
    def shared(self) -> list[SharedWords]:
        """Return the words that terms only report, strongest of each term first."""
        return [one for scored in self.terms for one in scored.result.shared]

    def values(self, row: int) -> dict[str, float]:
        """Return each term's score of one memory."""
        return {scored.term.name: float(scored.result.score[row]) for scored in self.terms}

    def evidence(self, row: int) -> TermEvidence | None:
        """Return the evidence of the term that flags a memory most strongly; None where none does."""
        results = [scored.result for scored in self.terms]
        flagging = [result for result in results if result.flagged is not None and result.flagged[row]]
        strongest = max(flagging, key=lambda result: _levels(result.score[row], result), default=None)
        return None if strongest is None else strongest.evidence(row)


def judge(view: BankView) -> Verdict:
    """Run the terms that ``view.config.terms`` names and combine them.

    A memory is flagged where a deciding term flags it, and then its score is the largest of those terms'
    scores in units of their level. All others are ranked below 1: by the standardised scores of the deciding
    terms, and where these say nothing by those of the others. So a term that only ranks never flags, and a
    group that was refused never passes a flagged one.

    With the diagnosis ``threshold`` no term has a level: flagged is whose summed response, averaged over the
    iterations, lies below mean - eta * std, and the score 1 plus by how
    many deviations.

    Args:
        view: The bank, and the config.

    Raises:
        ConfigError: An unknown name, a term that needs an embedder in a bank without, or a term that failed.
    """
    terms = [find_term(name) for name in view.config.terms]
    able, skipped = _sort_out(terms, view)
    if not len(view):
        return Verdict(np.zeros(0), np.zeros(0, np.bool_), skipped=skipped)
    scored = []
    for term in able:
        result = evaluate_term(term, view)
        scored.append(ScoredTerm(term, result, standardise(result.score)))
    if view.config.diagnosis == "threshold":
        return Verdict(*_below_threshold(scored, view.config.eta), terms=tuple(scored), skipped=skipped)
    return Verdict(*combine(scored, len(view)), terms=tuple(scored), skipped=skipped)


def combine(scored: Sequence[ScoredTerm], count: int) -> tuple[FloatArray, BoolArray, BoolArray]:
    """Return the combined score (N,), the flags (N,) and who is held (N,), see ``judge``."""
    flagged, strength, total = np.zeros(count, np.bool_), np.ones(count), np.zeros(count)
    held = np.zeros(count, np.bool_)
    for one in scored:
        standard = np.clip(one.standard, -LARGEST_STANDARD, LARGEST_STANDARD) / LARGEST_STANDARD
        total += (DECIDING_WEIGHT if one.term.decides else 1.0) * standard
        if one.term.decides:
            flagged |= one.flagged
            held |= False if one.result.held is None else one.result.held
            strength = np.where(
                one.flagged, np.maximum(strength, _levels(one.result.score, one.result)), strength
            )
    # keeps the order, stays inside (0, 1), and unlike a logistic does not saturate
    below = 0.5 + 0.5 * total / (1.0 + np.abs(total))
    return np.where(flagged, strength, below), flagged, held & ~flagged


def _below_threshold(scored: Sequence[ScoredTerm], eta: float) -> tuple[FloatArray, BoolArray]:
    response = -np.sum([one.result.score for one in scored], axis=0)
    mean, std = moments(response)
    if std == 0.0:
        return np.full(len(response), 0.5), np.zeros(len(response), np.bool_)
    excess = (mean - response) / std - eta
    return np.where(excess > 0, 1.0 + excess, 0.5 + 0.5 * excess / (1.0 + np.abs(excess))), excess > 0


def standardise(score: FloatArray) -> FloatArray:
    """Return (score - median) / scale, where scale is 1.4826 * MAD.

    Where more than half of the scores are equal the MAD is 0; then the scale is 1.2533 times the mean
    absolute deviation, which a few outliers raise, so that they count less, never more. Scores that differ
    by rounding only are 0.

    Args:
        score: (N,) finite, N at least 1.
    """
    centre = float(np.median(score))
    deviation = np.abs(score - centre)
    scale = MAD_TO_STD * float(np.median(deviation))
    smallest = _RELATIVE_ROUNDING * float(np.abs(score).max())
    if scale <= smallest:
        scale = MEAN_TO_STD * float(deviation.mean())
    return np.zeros(len(score)) if scale <= smallest else (score - centre) / scale


def _sort_out(terms: Sequence[Term], view: BankView) -> tuple[list[Term], tuple[tuple[str, str], ...]]:
    missing = {
        name
        for name, held in (("values", view.values), ("embedder", view.embed), ("origins", view.origins))
        if held is None
    }
    able, skipped = [], []
    for term in terms:
        lacking = sorted(term.needs & missing)
        if "embedder" in lacking:
            raise ConfigError(
                f"term {term.name!r} embeds texts and the bank has no embedder: open it with embedder=..., "
                "or leave the term out of ForgettingConfig.terms"
            )
        if lacking:
            skipped.append((term.name, lacking[0]))
        else:
            able.append(term)
    return able, tuple(skipped)


def _levels(score: Array, result: TermResult) -> Array:
    """Return one score of a term, or all, in units of its level."""
    return score / result.level if result.level is not None else score
