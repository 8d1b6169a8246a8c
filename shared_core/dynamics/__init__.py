"""DREAM's dynamics as pure functions over arrays: probe, activate, diagnose, forget, consolidate, sweep."""

from shared_core.dynamics.activation import (
    activation,
    coherence,
    geometric_stability,
    retrieval_competitiveness,
)
from shared_core.dynamics.consolidation import attribute, consolidate
from shared_core.dynamics.coupling import CouplingResult, Group, find_coupling
from shared_core.dynamics.diagnosis import moments, threshold, update_suspicion
from shared_core.dynamics.forgetting import decay_rate, update_weights
from shared_core.dynamics.geometry import BankGeometry, as_matrix, measure
from shared_core.dynamics.probing import (
    BlockProbe,
    anisotropic_scale,
    bank_probe,
    block_probe,
    noise_scale,
    probe_full,
    probe_scalar,
    sample_noise,
)
from shared_core.dynamics.running_moments import Moments
from shared_core.dynamics.sweep import IterationTrace, SweepResult, SweepState, forgetting_sweep

__all__ = [
    "BankGeometry",
    "BlockProbe",
    "CouplingResult",
    "Group",
    "IterationTrace",
    "Moments",
    "SweepResult",
    "SweepState",
    "activation",
    "anisotropic_scale",
    "as_matrix",
    "attribute",
    "bank_probe",
    "block_probe",
    "coherence",
    "consolidate",
    "decay_rate",
    "find_coupling",
    "forgetting_sweep",
    "geometric_stability",
    "measure",
    "moments",
    "noise_scale",
    "probe_full",
    "probe_scalar",
    "retrieval_competitiveness",
    "sample_noise",
    "threshold",
    "update_suspicion",
    "update_weights",
]
