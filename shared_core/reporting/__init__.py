"""Figures of what was measured (matplotlib), and a bank as a page (Jinja2); both need extra ``report``."""

from shared_core.reporting.data import FORMAT, ReportData, ReportLimits
from shared_core.reporting.figures import draw_terms, draw_weights, save_svg
from shared_core.reporting.gathering import gather_report
from shared_core.reporting.html_page import data_json, live_page_html, page_html, write_page
from shared_core.reporting.measured import CaseWeights, TermScores, case_weights, term_scores

__all__ = [
    "FORMAT",
    "CaseWeights",
    "ReportData",
    "ReportLimits",
    "TermScores",
    "case_weights",
    "data_json",
    "draw_terms",
    "draw_weights",
    "gather_report",
    "live_page_html",
    "page_html",
    "save_svg",
    "term_scores",
    "write_page",
]
