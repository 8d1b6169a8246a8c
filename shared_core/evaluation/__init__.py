"""Attacks, metrics, and how well a defence does against them."""

from shared_core.evaluation.agentpoison import agentpoison_ehr_cases
from shared_core.evaluation.cases import AttackCase, CaseMemory, load_case
from shared_core.evaluation.metrics import auroc, overlap_at_k, share_with_poison
from shared_core.evaluation.poison import (
    CachedEmbedder,
    Defence,
    PoisonRow,
    evaluate_case,
    fill_collection,
    measure_bank,
    retrieve,
)

__all__ = [
    "AttackCase",
    "CachedEmbedder",
    "CaseMemory",
    "Defence",
    "PoisonRow",
    "agentpoison_ehr_cases",
    "auroc",
    "evaluate_case",
    "fill_collection",
    "load_case",
    "measure_bank",
    "overlap_at_k",
    "retrieve",
    "share_with_poison",
]
