"""Which sets of memories might be one planted rule: candidates by shared words, before any embedding.

Does: sets of memories that share words of their values and, almost exclusively, words of their keys; whose
keys continue other keys; and whether what the shared words leave over is different in content.

Does not know: embeddings, scores, what is flagged.

Source: none, ours [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.coupling.ngrams import SharedNgrams, longest_run, runs

if TYPE_CHECKING:
    from shared_core.config import CouplingConfig
    from shared_core.types import Array, BoolArray


@dataclass(frozen=True, eq=False)
class Candidate:
    """A set of memories with the n-grams that hold it together."""

    members: Array
    """(M,) rows, ascending."""
    key_grams: Array
    value_grams: Array
    """Empty where values are unknown."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """A candidate whose members differ in what they ask beside the shared span."""

    candidate: Candidate
    sample: Array
    """(S,) members of distinct content, those that the key span covers most first."""
    remainders: list[str]
    """Their keys without the key span."""
    key_span: str
    payload_span: str
    payload: float
    """Distinct new words of the value span, upper quartile of the members."""
    extended: float
    """Share of members whose key continues another memory's whole key."""
    named: float = 0.0
    """The same as ``payload`` for the one stretch of the value span that repeats a word of the key span.

    0 with fewer than ``named_members`` different stems.
    """


@dataclass(frozen=True, eq=False)
class Stems:
    """From which other memory's key each key continues."""

    stem: Array
    """(N,) row of the memory whose whole key is this key's shortest proper prefix, else of its first copy."""
    extends: BoolArray
    """(N,) there is such a proper prefix."""


def find_stems(keys: SharedNgrams, config: CouplingConfig) -> Stems:
    """Return each key's stem; a prefix counts from ``stem_words`` words and ``stem_share`` of the key on."""
    prefixes, owner, wholes = keys.prefix_codes()
    known, first = np.unique(wholes, return_index=True)
    stem = first[np.searchsorted(known, wholes)] if keys.count else np.zeros(0, np.int64)
    extends = np.zeros(keys.count, np.bool_)
    sizes = keys.tokens.sizes
    words = np.arange(len(owner)) - keys.tokens.start[owner] + 1
    shortest = np.maximum(config.stem_words, np.ceil(config.stem_share * sizes)).astype(np.int64)
    proper = np.flatnonzero((words >= shortest[owner]) & (words < sizes[owner]))
    proper = proper[_may_be_among(prefixes[proper], wholes)]
    at = np.minimum(np.searchsorted(known, prefixes[proper]), max(0, len(known) - 1))
    matches = known[at] == prefixes[proper] if len(known) else np.zeros(0, np.bool_)
    documents, shortest_match = np.unique(owner[proper][matches], return_index=True)
    stem[documents] = first[at[matches][shortest_match]]
    extends[documents] = True
    return Stems(stem, extends)


def _may_be_among(codes: Array, known: Array) -> BoolArray:
    """Return which of random 64-bit codes have a known one's highest bits: all that are known, few others."""
    bits = max(1, 8 * len(known)).bit_length()
    high = np.uint64(64 - bits)
    table = np.zeros(1 << bits, np.bool_)
    table[(known >> high).astype(np.int64)] = True
    found: BoolArray = table[(codes >> high).astype(np.int64)]
    return found


def find_candidates(
    keys: SharedNgrams, values: SharedNgrams, config: CouplingConfig
) -> tuple[list[Candidate], int]:
    """Return the sets that share value n-grams and exclusive key n-grams, richest in value n-grams first.

    Returns:
        The candidates, and how many sets were left unexamined because the budget of work was used up.
    """
    largest = largest_group(keys.count, config)
    sets = values.member_sets(config.min_members, largest, config.min_value_grams)
    found: list[Candidate] = []
    work = 0
    for examined, grams in enumerate(sets):
        if work > config.max_work or len(found) >= config.max_candidates:
            return found[: config.max_candidates], len(sets) - examined
        members = values.documents(int(grams[0]))
        held = keys.grams_of(members)
        work += len(held)
        found += _by_exclusive_keys(keys, members, held, grams, config)
    return found[: config.max_candidates], 0


def largest_group(count: int, config: CouplingConfig) -> int:
    """Return how many memories of ``count`` a group has at most."""
    return max(2, int(config.max_group_share * count))


def _by_exclusive_keys(
    keys: SharedNgrams, members: Array, held: Array, value_grams: Array, config: CouplingConfig
) -> list[Candidate]:
    """Return the set with its exclusive key n-grams, and once more with the most frequent of them only."""
    fewest = max(config.min_members, config.key_share * len(members))
    frequency = keys.frequency[held]
    # what stands in fewer memories, or in too many others beside all members, is neither: most are
    possible = (frequency >= fewest) & (len(members) >= config.key_exclusive * frequency)
    grams, inside = np.unique(held[possible], return_counts=True)
    frequent = inside >= fewest
    exclusive = inside >= config.key_exclusive * keys.frequency[grams]
    loose, inside = grams[frequent & exclusive], inside[frequent & exclusive]
    if not len(loose):
        return []
    found = [Candidate(members, loose, value_grams)]
    tight = loose[inside >= config.tight_share * inside.max()]
    if len(tight) < len(loose) and (keys.length[tight] > 1).any():
        found.append(Candidate(members, tight, value_grams))
    return found


def distinct_rows(texts: Sequence[str], stems: Sequence[int] | Array, limit: float) -> list[int]:
    """Return rows of different stems whose word sets are pairwise unlike, first come first kept.

    Args:
        texts: Remainders.
        stems: The stem of each.
        limit: Word Jaccard from which two are alike.
    """
    kept: list[int] = []
    words = [set(text.split()) for text in texts]
    for row, own in enumerate(words):
        if all(
            stems[row] != stems[other] and len(own & words[other]) < limit * max(1, len(own | words[other]))
            for other in kept
        ):
            kept.append(row)
    return kept


def propose(
    candidate: Candidate,
    keys: SharedNgrams,
    values: SharedNgrams,
    stems: Stems,
    config: CouplingConfig,
    rng: np.random.Generator,
) -> Proposal | None:
    """Return a candidate with its spans, or None where its members ask the same, or it says nothing new."""
    looked_at = some_of(candidate.members, config.lexical_sample, rng)
    masks, remainders, distinct = take_out(candidate.key_grams, looked_at, keys, stems, config)
    if len(distinct) < config.min_members:
        return None
    shared = values.coverage(looked_at, candidate.value_grams)
    triggers = _trigger_words(candidate.key_grams, keys)
    said = [
        _new_words(keys.tokens[row], values.tokens[row], covered, triggers)
        for row, covered in zip(looked_at.tolist(), shared, strict=True)
    ]
    payload = quarter_reaches([count for count, _ in said], config)
    if payload < 1:
        return None
    apart = len(np.unique(stems.stem[candidate.members]))
    named = quarter_reaches([count for _, count in said], config) if apart >= config.named_members else 0.0
    chosen = sorted(distinct, key=lambda row: -float(masks[row].mean()))[: config.sample]
    spans = [longest_run(values.tokens[int(looked_at[row])], shared[row]) for row in chosen[:2]]
    return Proposal(
        candidate=candidate,
        sample=looked_at[chosen],
        remainders=[remainders[row] for row in chosen],
        key_span=max((longest_run(keys.tokens[looked_at[row]], masks[row]) for row in chosen), key=len),
        payload_span=max(spans, key=len),
        payload=payload,
        extended=_extended_share(candidate.members, stems, config),
        named=named,
    )


def propose_extended(keys: SharedNgrams, stems: Stems, config: CouplingConfig) -> tuple[list[Proposal], int]:
    """Return spans that continue several other keys of the bank; all that can be said without values.

    Returns:
        The proposals, and how many sets were left unexamined because there were too many.
    """
    if np.count_nonzero(stems.extends) < config.min_members:
        return [], 0
    extending = keys.share(stems.extends) >= config.extended_members
    sets = []
    for grams in keys.member_sets(config.min_members, largest_group(keys.count, config)):
        if extending[grams[0]] and keys.length[grams].max() > 1:
            members = keys.documents(int(grams[0]))
            sets.append((grams, members, _extended_share(members, stems, config)))
    sets = [entry for entry in sets if entry[2] >= config.extended_members]
    found: list[Proposal] = []
    for grams, members, share in sets[: config.max_candidates]:
        looked_at = members[: config.lexical_sample]
        masks, remainders, distinct = take_out(grams, looked_at, keys, stems, config)
        if len(distinct) < config.min_members:
            continue
        span = max((longest_run(keys.tokens[looked_at[row]], masks[row]) for row in distinct), key=len)
        chosen = distinct[: config.sample]
        candidate = Candidate(members, grams, np.zeros(0, np.int64))
        left = [remainders[row] for row in chosen]
        found.append(Proposal(candidate, looked_at[chosen], left, span, "", config.extended_payload, share))
    return found, max(0, len(sets) - config.max_candidates)


def take_out(
    grams: Array, rows: Array, keys: SharedNgrams, stems: Stems, config: CouplingConfig
) -> tuple[list[BoolArray], list[str], list[int]]:
    """Return per row what the span covers and the key without it, and the rows unlike each other."""
    masks = keys.coverage(rows, grams)
    remainders = [
        " ".join(word for word, shared in zip(keys.tokens[row], mask, strict=True) if not shared)
        for row, mask in zip(rows.tolist(), masks, strict=True)
    ]
    return masks, remainders, distinct_rows(remainders, stems.stem[rows], config.alike)


def _extended_share(members: Array, stems: Stems, config: CouplingConfig) -> float:
    extends = stems.extends[members]
    enough = len(np.unique(stems.stem[members[extends]])) >= config.min_members
    return float(extends.mean()) if enough else 0.0


def _trigger_words(key_grams: Array, keys: SharedNgrams) -> set[str]:
    """Return the single words of a key span that hardly any other memory's key has."""
    single = [keys.text(int(gram))[0] for gram in key_grams if keys.length[gram] == 1]
    return {word for word in single if word.isalnum()}


def _new_words(key: list[str], value: list[str], covered: BoolArray, triggers: set[str]) -> tuple[int, int]:
    """Count the distinct words that the value span adds to what the memory's own key says.

    Args:
        key: Its tokens.
        value: The same of the value.
        covered: Which of these belong to the span.
        triggers: Words of the key span.

    Returns:
        The count over the whole span, and over that stretch of it with a trigger word that adds most.
    """
    own = set(key)
    stretches = runs(value, covered)
    naming = [stretch for stretch in stretches if not triggers.isdisjoint(stretch)]
    whole = {word for stretch in stretches for word in stretch}
    return fresh_words(whole, own), max((fresh_words(set(stretch), own) for stretch in naming), default=0)


def fresh_words(words: set[str], own: set[str]) -> int:
    """Count the words of two characters and more that are not among a memory's own."""
    return sum(len(word) > 1 and word.isalnum() and word not in own for word in words)


def quarter_reaches(counts: list[int], config: CouplingConfig) -> float:
    """Return the count that the top quarter of the members, and at least two, reach."""
    top = max(2, -(-len(counts) // config.payload_fraction))
    return float(sorted(counts)[-top])


def some_of(members: Array, limit: int, rng: np.random.Generator) -> Array:
    """Return at most ``limit`` of the members, drawn, ascending."""
    return members if len(members) <= limit else np.sort(rng.choice(members, limit, replace=False))


def times_held(rows: Array, lists: Sequence[Array]) -> Array:
    """Count for each of some rows, ascending, in how many of the lists, which hold no others, it is."""
    held = np.searchsorted(rows, np.concatenate([np.zeros(0, np.int64), *lists]))
    return np.bincount(held, minlength=len(rows))
