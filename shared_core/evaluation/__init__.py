"""Attacks, metrics, and how well a defence does against them."""

from shared_core.evaluation.adaptive import adaptive_cases
from shared_core.evaluation.agentpoison import agentpoison_ehr_cases, strategyqa_cases
from shared_core.evaluation.baselines import amemguard_drops, perplexity_drops
from shared_core.evaluation.cases import AttackCase, CaseMemory, assemble_case, bundled_case, load_case
from shared_core.evaluation.defences import DEFENCES, Defence, DefenceOptions, DefenceOutcome
from shared_core.evaluation.metrics import auroc, overlap_at_k, share_with_poison
from shared_core.evaluation.minja import minja_drug_cases, minja_patient_cases, minja_qa_cases
from shared_core.evaluation.misinfo import misinfo_cases
from shared_core.evaluation.poison import (
    CachedEmbedder,
    PoisonRow,
    evaluate_case,
    fill_collection,
    measure_bank,
    retrieve,
)
from shared_core.evaluation.suite import FAMILIES, attack_suite
from shared_core.evaluation.triggers import OptimisedTrigger, TriggerConfig, optimise_trigger, vocabulary

__all__ = [
    "DEFENCES",
    "FAMILIES",
    "AttackCase",
    "CachedEmbedder",
    "CaseMemory",
    "Defence",
    "DefenceOptions",
    "DefenceOutcome",
    "OptimisedTrigger",
    "PoisonRow",
    "TriggerConfig",
    "adaptive_cases",
    "agentpoison_ehr_cases",
    "amemguard_drops",
    "assemble_case",
    "attack_suite",
    "auroc",
    "bundled_case",
    "evaluate_case",
    "fill_collection",
    "load_case",
    "measure_bank",
    "minja_drug_cases",
    "minja_patient_cases",
    "minja_qa_cases",
    "misinfo_cases",
    "optimise_trigger",
    "overlap_at_k",
    "perplexity_drops",
    "retrieve",
    "share_with_poison",
    "strategyqa_cases",
    "vocabulary",
]
