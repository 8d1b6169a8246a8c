"""A rule that stands in the texts themselves: a long stretch of words in memories that are otherwise unlike.

Does: finds the stretches that memories of different content share, and measures whether that content explains
them; takes out of the texts what trusted memories vouch for.

Does not know: what is done with them. A signature, a disclaimer or a page's footer has the same form, and no
measure of ours tells it from a planted rule. Nor does a value that states the stretch too: replies quote the
mail that they answer.

Source: none, ours [O]; constants in ``CouplingConfig``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.coupling.evidence import Embed, Evidence, measure, spread
from shared_core.dynamics.coupling.groups import (
    Candidate,
    Proposal,
    Stems,
    find_stems,
    fresh_words,
    largest_group,
    quarter_reaches,
    some_of,
    take_out,
    times_held,
)
from shared_core.dynamics.coupling.ngrams import SharedNgrams, longest_run, runs

if TYPE_CHECKING:
    from shared_core.config import CouplingConfig
    from shared_core.types import Array, BoolArray, FloatArray


WORD_WORK = 10
"""A word that is compared costs as much as so many n-grams that are counted [O]."""


@dataclass(frozen=True, eq=False)
class Repeated:
    """A stretch that passes both thresholds."""

    members: Array
    """(M,) rows that hold it, ascending."""
    span: str
    """The stretch, lower-cased."""
    words: float
    """Its distinct words that the memories do not have elsewhere, upper quartile of the members."""
    evidence: Evidence
    strength: float
    """Smaller of words / ``repeated_words`` and unexplained / ``unexplained_unit``, in [1, cap]."""


def find_repeated(
    keys: SharedNgrams,
    unit: FloatArray,
    embed: Embed,
    config: CouplingConfig,
) -> tuple[list[Repeated], int]:
    """Return the stretches, strongest first, and how many sets of memories were left unexamined.

    Args:
        keys: Texts of N memories.
        unit: (N, d) unit embeddings of the texts.
        embed: See ``Embed``.
        config: The constants.
    """
    if keys.count < config.least_bank:
        return [], 0
    rng = np.random.default_rng(config.seed)
    stems = find_stems(keys, config)
    proposals, unexamined = _propose(keys, stems, config, rng)
    proposals.sort(key=lambda proposal: -proposal.payload)
    unexamined += len(proposals[config.max_measured :])
    proposals = proposals[: config.max_measured]
    if not proposals:
        return [], unexamined
    evidence = measure(proposals, keys, unit, embed, spread(unit, config.spread_sample, rng))
    judged = [
        (_strength(proposal, proof, config), proposal, proof)
        for proposal, proof in zip(proposals, evidence, strict=True)
    ]
    judged = sorted((one for one in judged if one[0] >= 1.0), key=lambda one: -one[0])
    found: list[Repeated] = []
    known = np.zeros(keys.count, np.bool_)
    for strength, proposal, proof in judged:
        members = _holders(proposal.candidate, keys, config)
        # the same rule again, by other n-grams of it
        if known[members].mean() < 0.5:
            known[members] = True
            found.append(Repeated(members, proposal.key_span, proposal.payload, proof, strength))
    return found, unexamined


def without_vouched(keys: SharedNgrams, trusted: BoolArray, config: CouplingConfig) -> dict[int, str]:
    """Return, by row, the texts that state what trusted memories state, without it.

    What ``min_members`` of them share in ``repeated_words`` words and more in a row is vouched for, in every
    text: a signature that a person let stand must not hide what is put before it.

    Args:
        keys: Texts of N memories.
        trusted: (N,) whom a person looked at and let stand.
        config: The constants.
    """
    vouching = np.flatnonzero(trusted)
    if len(vouching) < config.min_members:
        return {}
    grams, times = np.unique(keys.grams_of(vouching), return_counts=True)
    grams = grams[(times >= config.min_members) & (keys.length[grams] == config.ngram)]
    if not len(grams):
        return {}
    rows = np.unique(np.concatenate([keys.documents(int(gram)) for gram in grams]))
    found = {}
    for row, mask in zip(rows.tolist(), keys.coverage(rows, grams), strict=True):
        long = _long_runs(mask, config.repeated_words)
        if long.any():
            found[row] = " ".join(np.array(keys.tokens[row], object)[~long])
    return found


def _long_runs(mask: BoolArray, least: float) -> BoolArray:
    """Return the marks that stand in a run of at least so many."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    kept = np.zeros(len(mask), np.bool_)
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        kept[begin:end] = end - begin >= least
    return kept


def _propose(
    keys: SharedNgrams, stems: Stems, config: CouplingConfig, rng: np.random.Generator
) -> tuple[list[Proposal], int]:
    """Return the sets of memories that share a stretch long enough, and how many sets were not looked at."""
    sets = keys.member_sets(config.min_members, largest_group(keys.count, config), config.repeated_grams)
    found: list[Proposal] = []
    seen: set[bytes] = set()
    work = 0
    for examined, seed in enumerate(sets):
        if work > config.max_work or len(seen) >= config.max_candidates:
            return found, len(sets) - examined
        members = keys.documents(int(seed[0]))
        held = keys.grams_of(members)
        work += len(held)
        grams = _exclusive(keys, held, len(members), config)
        if not len(grams) or grams.tobytes() in seen:
            continue
        seen.add(grams.tobytes())
        work += WORD_WORK * int(keys.tokens.sizes[members[: config.lexical_sample]].sum())
        proposal = _proposal(Candidate(members, grams, np.zeros(0, np.int64)), keys, stems, config, rng)
        if proposal is not None:
            found.append(proposal)
    return found, 0


def _exclusive(keys: SharedNgrams, held: Array, members: int, config: CouplingConfig) -> Array:
    """Return the n-grams that most members hold and hardly anybody else.

    They need not be those of all members: a rule of which each copy changes one word shares none in all.
    """
    grams, inside = np.unique(held, return_counts=True)
    frequent = inside >= max(config.min_members, config.key_share * members)
    chosen: Array = grams[frequent & (inside >= config.key_exclusive * keys.frequency[grams])]
    return chosen


def _proposal(
    candidate: Candidate,
    keys: SharedNgrams,
    stems: Stems,
    config: CouplingConfig,
    rng: np.random.Generator,
) -> Proposal | None:
    """Return a candidate with its stretch; None where it is short, or its members say the same beside it."""
    looked_at = some_of(candidate.members, config.lexical_sample, rng)
    masks, remainders, distinct = take_out(candidate.key_grams, looked_at, keys, stems, config)
    # a template with a number or a name in it leaves no content over
    distinct = [
        row for row in distinct if fresh_words(set(remainders[row].split()), set()) >= config.repeated_rest
    ]
    if len(distinct) < config.min_members:
        return None
    counts = [
        max(
            (fresh_words(set(stretch), set(rest.split())) for stretch in runs(keys.tokens[row], mask)),
            default=0,
        )
        for row, mask, rest in zip(looked_at.tolist(), masks, remainders, strict=True)
    ]
    words = quarter_reaches(counts, config)
    if words < config.repeated_words:
        return None
    chosen = sorted(distinct, key=lambda row: -float(masks[row].mean()))[: config.sample]
    return Proposal(
        candidate=candidate,
        sample=looked_at[chosen],
        remainders=[remainders[row] for row in chosen],
        key_span=max((longest_run(keys.tokens[looked_at[row]], masks[row]) for row in chosen), key=len),
        payload_span="",
        payload=words,
        extended=0.0,
    )


def _strength(proposal: Proposal, proof: Evidence, config: CouplingConfig) -> float:
    words = proposal.payload / config.repeated_words
    return float(min(words, proof.unexplained / config.unexplained_unit, config.cap))


def _holders(candidate: Candidate, keys: SharedNgrams, config: CouplingConfig) -> Array:
    """Return all rows that hold at least half as much of a stretch as its typical member."""
    holding = [keys.documents(int(gram)) for gram in candidate.key_grams]
    rows = np.unique(np.concatenate(holding))
    held = times_held(rows, holding)
    typical = float(np.median(held[np.isin(rows, candidate.members)]))
    return rows[held >= max(2.0, config.closure_member * typical)]
