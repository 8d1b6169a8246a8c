"""Every option, with its default, its meaning and its source ([S]: stated by a paper; [O]: ours).

Frozen dataclasses validated on construction; they know nothing of how they are used.
"""

from shared_core.config.checks import (
    checked_choice,
    checked_positive,
    checked_range,
    checked_whole,
)
from shared_core.config.coupling import (
    CouplingConfig,
    RepeatedRule,
)
from shared_core.config.forgetting import (
    HARDENED_TERMS,
    PAPER_TERMS,
    AgentKind,
    ConsolidationConfig,
    DecayLaw,
    Device,
    Diagnosis,
    ForgettingConfig,
    NoiseFamily,
    Preset,
    ProbeMethod,
    RetrievalForm,
)
from shared_core.config.retrieval import (
    AssociativeConfig,
    RetrievalConfig,
    SearchBackend,
    SearchType,
)

__all__ = [
    "HARDENED_TERMS",
    "PAPER_TERMS",
    "AgentKind",
    "AssociativeConfig",
    "ConsolidationConfig",
    "CouplingConfig",
    "DecayLaw",
    "Device",
    "Diagnosis",
    "ForgettingConfig",
    "NoiseFamily",
    "Preset",
    "ProbeMethod",
    "RepeatedRule",
    "RetrievalConfig",
    "RetrievalForm",
    "SearchBackend",
    "SearchType",
    "checked_choice",
    "checked_positive",
    "checked_range",
    "checked_whole",
]
