"""Figures of what was measured; matplotlib is an optional extra."""

from shared_core.reporting.figures import draw_terms, draw_weights, save_svg
from shared_core.reporting.measured import CaseWeights, TermScores, case_weights, term_scores

__all__ = [
    "CaseWeights",
    "TermScores",
    "case_weights",
    "draw_terms",
    "draw_weights",
    "save_svg",
    "term_scores",
]
