"""The open set of activation terms: pure functions from a bank to one score per memory."""

from shared_core.dynamics.terms import coupled, published, sources
from shared_core.dynamics.terms.apart import requests_alone
from shared_core.dynamics.terms.combine import ScoredTerm, Verdict, combine, judge, standardise
from shared_core.dynamics.terms.registry import (
    Need,
    Term,
    activation_term,
    evaluate_term,
    find_term,
    term_names,
)
from shared_core.dynamics.terms.view import BankView, SharedWords, TermEvidence, TermResult

__all__ = [
    "BankView",
    "Need",
    "ScoredTerm",
    "SharedWords",
    "Term",
    "TermEvidence",
    "TermResult",
    "Verdict",
    "activation_term",
    "combine",
    "coupled",
    "evaluate_term",
    "find_term",
    "judge",
    "published",
    "requests_alone",
    "sources",
    "standardise",
    "term_names",
]
