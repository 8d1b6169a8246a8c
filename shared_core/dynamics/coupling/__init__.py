"""Trigger to payload coupling: the diagnosis of preset ``hardened``, pure functions over texts and arrays."""

from shared_core.dynamics.coupling.decision import closure, find_coupling
from shared_core.dynamics.coupling.evidence import Embed, Evidence, Ratios, measure, ratios, score, spread
from shared_core.dynamics.coupling.groups import (
    Candidate,
    Proposal,
    Stems,
    distinct_rows,
    find_candidates,
    find_stems,
    propose,
    propose_extended,
)
from shared_core.dynamics.coupling.ngrams import SharedNgrams, longest_run
from shared_core.dynamics.coupling.repeated import Repeated, find_repeated
from shared_core.dynamics.coupling.result import CouplingResult, Group
from shared_core.dynamics.coupling.tokens import Tokens, number_tokens, tokenize

__all__ = [
    "Candidate",
    "CouplingResult",
    "Embed",
    "Evidence",
    "Group",
    "Proposal",
    "Ratios",
    "Repeated",
    "SharedNgrams",
    "Stems",
    "Tokens",
    "closure",
    "distinct_rows",
    "find_candidates",
    "find_coupling",
    "find_repeated",
    "find_stems",
    "longest_run",
    "measure",
    "number_tokens",
    "propose",
    "propose_extended",
    "ratios",
    "score",
    "spread",
    "tokenize",
]
