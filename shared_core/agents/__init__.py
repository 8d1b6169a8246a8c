"""What a dream does to a memory: it asks, diagnoses, repairs and verifies; and writes associations."""

from shared_core.agents.associating import AssociationReport, associate
from shared_core.agents.associations import bridge_edges, graded_weights, scene_keys, sentence_keys
from shared_core.agents.cycle import DreamCycle
from shared_core.agents.cycle_report import CycleReport, DreamEvent, KeptRepair, ProposedRepair, RoundReport
from shared_core.agents.dream_config import DreamConfig

__all__ = [
    "AssociationReport",
    "CycleReport",
    "DreamConfig",
    "DreamCycle",
    "DreamEvent",
    "KeptRepair",
    "ProposedRepair",
    "RoundReport",
    "associate",
    "bridge_edges",
    "graded_weights",
    "scene_keys",
    "sentence_keys",
]
