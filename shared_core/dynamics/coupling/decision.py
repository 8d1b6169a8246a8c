"""Which memories are flagged as one planted rule: trigger words in the request, a payload in the value.

Does: scores the groups of a bank, flags the strongest with all that belong to them, takes them out and
measures again, within a cap; then looks among the rest for rules in the texts themselves.

Does not know: where texts are stored, which model embeds, weights or suspicion.

Source: none, ours [O]. Peeling: poison that stays among the memories of the comparison distorts it for what
is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.coupling.evidence import (
    EMPTY,
    Embed,
    Evidence,
    Ratios,
    measure,
    most,
    named_ratio,
    ratios,
    spread,
)
from shared_core.dynamics.coupling.groups import (
    Proposal,
    Stems,
    find_candidates,
    find_stems,
    propose,
    propose_extended,
    times_held,
)
from shared_core.dynamics.coupling.ngrams import SharedNgrams
from shared_core.dynamics.coupling.repeated import Repeated, find_repeated, without_vouched
from shared_core.dynamics.coupling.result import CouplingResult, Group
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.config import CouplingConfig
    from shared_core.types import Array, BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class _Judged:
    """One round over the memories that are still there."""

    keys: SharedNgrams
    values: SharedNgrams | None
    stems: Stems
    groups: list[tuple[Ratios, Proposal, Evidence]]
    """Strongest first."""
    unexamined: int


class _Remembering:
    """Embeds a text once; rounds share most of their texts."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._known: dict[str, FloatArray] = {}

    def __call__(self, texts: list[str]) -> FloatArray:
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing:
            self._known.update(zip(missing, self._embed(missing), strict=True))
        return np.stack([self._known[text] for text in texts])


def find_coupling(
    keys: Sequence[str],
    values: Sequence[str] | None,
    unit_embeddings: FloatArray,
    embed: Embed,
    config: CouplingConfig,
    *,
    trusted: BoolArray | None = None,
    whole: tuple[Sequence[str], FloatArray] | None = None,
) -> CouplingResult:
    """Find memories that couple a span of their request to a payload in their value.

    Args:
        keys: N requests, the texts that were embedded.
        values: N answers; None where the bank has none: then only spans that extend other keys, and stretches
            that unlike keys share, are found.
        unit_embeddings: (N, d) unit embeddings of the keys.
        embed: Embeds further texts as the keys were, to unit vectors.
        config: Every constant, and the seed of the samples.
        trusted: (N,) whom a person looked at and let stand. Long stretches that ``min_members`` of them state
            are vouched for; everything else is judged as if nobody were trusted.
        whole: The texts as they are stored and their (N, d) unit embeddings, where ``keys`` are parts of
            them: repeated stretches are looked for there.

    Returns:
        Scores, flags and groups; nothing flagged in a bank of fewer than ``min_bank`` memories.

    Raises:
        ConfigError: Keys, values and embeddings disagree in number.
    """
    _check(keys, values, unit_embeddings)
    count = len(keys)
    suspect, flagged = np.zeros(count), np.zeros(count, np.bool_)
    found: list[Group] = []
    refused: dict[tuple[str, str], Group] = {}
    unexamined = 0
    remembering = _Remembering(embed)
    key_grams = SharedNgrams(keys, config.ngram, config.token_limit)
    value_grams = None if values is None else SharedNgrams(values, config.ngram, config.token_limit)
    for _round in range(config.rounds):
        rows = np.flatnonzero(~flagged)
        left_values = None if value_grams is None else value_grams.take(rows)
        judged = _judge(key_grams.take(rows), left_values, unit_embeddings[rows], remembering, config)
        unexamined = max(unexamined, judged.unexamined)
        suspect[rows] = 0.0
        for factors, proposal, _ in judged.groups:
            members = rows[proposal.candidate.members]
            suspect[members] = np.maximum(suspect[members], factors.score)
        taken = _decide(judged, rows, flagged, suspect, config)
        refused.update({(group.key_span, group.payload_span): group for group in taken if not group.flagged})
        found += [group for group in taken if group.flagged]
        if not any(group.flagged for group in taken):
            break
    weaker = _weaker(judged, rows, flagged)
    rows = np.flatnonzero(~flagged)
    stretches: list[Repeated] = []
    if config.repeated != "ignore":
        texts = key_grams if whole is None else SharedNgrams(whole[0], config.ngram, config.token_limit)
        unit = unit_embeddings if whole is None else whole[1]
        stretches, left_out = _stretches(texts, unit, rows, remembering, config, trusted)
        unexamined = max(unexamined, left_out)
    decided, reported = _decide_repeated(stretches, rows, flagged, suspect, config)
    found += [group for group in decided if group.flagged]
    refused.update({(group.key_span, ""): group for group in decided if not group.flagged})
    # what was flagged ranks above what was not, a refused group included
    suspect[flagged] += config.cap**3
    groups = (*found, *refused.values())
    return CouplingResult(suspect, flagged, groups, len(refused), unexamined, tuple(reported), weaker)


def _check(keys: Sequence[str], values: Sequence[str] | None, unit: FloatArray) -> None:
    if unit.ndim != 2 or len(keys) != len(unit) or (values is not None and len(values) != len(keys)):
        raise ConfigError(
            f"{len(keys)} keys, {'no' if values is None else len(values)} values and embeddings of shape "
            f"{unit.shape}: give one of each per memory"
        )


def _judge(
    keys: SharedNgrams,
    values: SharedNgrams | None,
    unit: FloatArray,
    embed: Embed,
    config: CouplingConfig,
) -> _Judged:
    """Propose groups, measure and score them."""
    rng = np.random.default_rng(config.seed)
    stems = find_stems(keys, config)
    if keys.count < config.min_bank:
        return _Judged(keys, None, stems, [], 0)
    scale = spread(unit, config.spread_sample, rng)
    unexamined = 0
    if values is None:
        proposals, unexamined = propose_extended(keys, stems, config)
    else:
        candidates, unexamined = find_candidates(keys, values, config)
        tried = [propose(one, keys, values, stems, config, rng) for one in candidates]
        proposals = [proposal for proposal in tried if proposal is not None]
    limits = {id(proposal): most(proposal, keys.count, config) for proposal in proposals}
    proposals.sort(key=lambda proposal: (-limits[id(proposal)], -proposal.payload, -proposal.named))
    unexamined += sum(limits[id(one)] >= config.flag for one in proposals[config.max_measured :])
    proposals = proposals[: config.max_measured]
    evidence = measure(proposals, keys, unit, embed, scale)
    scored = [
        (ratios(proposal, proof, keys.count, config), proposal, proof)
        for proposal, proof in zip(proposals, evidence, strict=True)
    ]
    scored.sort(key=lambda entry: -entry[0].score)
    return _Judged(keys, values, stems, scored, unexamined)


def _decide(
    judged: _Judged, rows: Array, flagged: BoolArray, suspect: FloatArray, config: CouplingConfig
) -> list[Group]:
    """Flag the strong groups of a round within the cap; writes to ``flagged`` and ``suspect``.

    Returns:
        The groups that flagged somebody new, and the refused ones.
    """
    if not judged.groups:
        return []
    needed = max(config.flag, config.flag_share * judged.groups[0][0].score)
    taken: list[Group] = []
    for factors, proposal, proof in judged.groups:
        if factors.score < needed:
            break
        members = rows[closure(proposal, judged.keys, judged.values, judged.stems, config)]
        new = np.count_nonzero(~flagged[members])
        fits = bool(np.count_nonzero(flagged) + new <= config.max_flagged * len(flagged))
        if new or not fits:
            taken.append(_group(proposal, proof, factors, members, flagged=fits))
        if fits:
            flagged[members] = True
            suspect[members] = np.maximum(suspect[members], factors.score)
    return taken


def _stretches(
    texts: SharedNgrams,
    unit: FloatArray,
    rows: Array,
    embed: Embed,
    config: CouplingConfig,
    trusted: BoolArray | None,
) -> tuple[list[Repeated], int]:
    """Look among some rows for repeated stretches that nobody vouches for."""
    texts, unit = texts.take(rows), unit[rows]
    changed = {} if trusted is None else without_vouched(texts, trusted[rows], config)
    if changed:
        left = [changed.get(row, " ".join(texts.tokens[row])) for row in range(texts.count)]
        unit = unit.copy()
        unit[list(changed)] = embed([text or EMPTY for text in changed.values()])
        texts = SharedNgrams(left, config.ngram, config.token_limit)
    return find_repeated(texts, unit, embed, config)


def _decide_repeated(
    stretches: Sequence[Repeated],
    rows: Array,
    flagged: BoolArray,
    suspect: FloatArray,
    config: CouplingConfig,
) -> tuple[list[Group], list[Group]]:
    """Flag them where the config says so, within the cap; writes as ``_decide``.

    Returns:
        The groups that were to be flagged, and those that are reported only.
    """
    groups: list[Group] = []
    for one in stretches:
        members = rows[one.members]
        new = np.count_nonzero(~flagged[members])
        fits = bool(np.count_nonzero(flagged) + new <= config.max_flagged * len(flagged))
        group = _stretch(one, members, config, flagged=fits and config.repeated == "flag")
        suspect[members] = np.maximum(suspect[members], group.score)
        flagged[members] |= group.flagged
        groups.append(group)
    return (groups, []) if config.repeated == "flag" else ([], groups)


def _weaker(judged: _Judged, rows: Array, flagged: BoolArray) -> tuple[Group, ...]:
    """Return the strongest group of each memory of the last round, to explain what was not flagged."""
    explained = flagged.copy()
    kept: list[Group] = []
    for factors, proposal, proof in judged.groups:
        members = rows[proposal.candidate.members]
        if not explained[members].all():
            kept.append(_group(proposal, proof, factors, members, flagged=False))
            explained[members] = True
    return tuple(kept)


def closure(
    proposal: Proposal,
    keys: SharedNgrams,
    values: SharedNgrams | None,
    stems: Stems,
    config: CouplingConfig,
) -> Array:
    """Return the rows a group stands for: with its key span, its whole payload, or a variant of its key."""
    candidate = proposal.candidate
    if values is None:
        return candidate.members
    members, values_shared = candidate.members, candidate.value_grams
    core = [
        gram
        for gram in candidate.key_grams
        if np.isin(keys.documents(int(gram)), members).sum() >= 0.5 * len(members)
    ]
    # nobody else can belong to it: rows that hold nothing of it are never looked at
    holding = [keys.documents(int(gram)) for gram in core]
    saying = [values.documents(int(gram)) for gram in values_shared]
    rows = np.unique(np.concatenate([members, *holding, *saying]))
    inside = np.isin(rows, members)
    in_key = times_held(rows, holding)
    typical = float(np.median(in_key[inside]))
    at_least = max(2.0, config.closure_member * typical)
    in_value = times_held(rows, saying) / max(1, len(values_shared))
    joins = in_key >= max(2.0, config.closure_whole * typical)
    if named_ratio(proposal, config) >= 1.0:
        # who only mentions the trigger, a patient's own honest record, is no part of the rule
        joins &= in_value >= config.closure_member
    spanned = (in_key >= at_least) & (inside | joins)
    whole = in_value >= config.closure_whole
    if proposal.payload < config.closure_payload:
        whole[:] = False
    hot = spanned | (inside & whole)
    stem = stems.stem[rows]
    return rows[hot | (inside & np.isin(stem, stem[hot]))]


def _group(proposal: Proposal, proof: Evidence, factors: Ratios, members: Array, *, flagged: bool) -> Group:
    return Group(
        key_span=proposal.key_span,
        payload_span=proposal.payload_span,
        members=members,
        payload=proposal.payload,
        gain=proof.gain,
        unexplained=proof.unexplained,
        extended=proposal.extended,
        score=factors.score,
        flagged=flagged,
        named=proposal.named,
        ratios=factors,
    )


def _stretch(one: Repeated, members: Array, config: CouplingConfig, *, flagged: bool) -> Group:
    return Group(
        key_span=one.span,
        payload_span="",
        members=members,
        payload=one.words,
        gain=one.evidence.gain,
        unexplained=one.evidence.unexplained,
        extended=0.0,
        score=config.flag * one.strength,
        flagged=flagged,
        repeated=True,
    )
