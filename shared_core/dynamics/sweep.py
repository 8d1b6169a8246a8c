"""One forgetting sweep: probe, diagnose, update, T times over a bank.

Does: runs the pure steps of this package in order, and keeps a trace of every iteration.

Does not know: where embeddings and state are stored, which text a memory holds, retrieval.

Source: DREAM sections 4.1 to 4.3, T = 10 iterations [S].
Departs [O]: isotropic probes are drawn as scalars (exact, see ``probing``), so the embeddings are read only
before the first iteration; a bank of identical embeddings is not probed, because noise alone would
tell its members apart. With the diagnosis ``coupling`` nothing is probed: what the terms flagged is abnormal
in every iteration, and R is their score, negated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shared_core.dynamics.activation import activation
from shared_core.dynamics.diagnosis import moments, update_suspicion
from shared_core.dynamics.forgetting import update_weights
from shared_core.dynamics.geometry import as_matrix, measure
from shared_core.dynamics.probing import bank_probe
from shared_core.errors import ConfigError
from shared_core.types import Array, FloatArray, Progress

if TYPE_CHECKING:
    from shared_core.config import ForgettingConfig
    from shared_core.types import BoolArray


class Decided(Protocol):
    """Who is abnormal, decided from more than embeddings: a ``Verdict`` or a ``CouplingResult``."""

    @property
    def score(self) -> FloatArray:
        """(N,) how suspect each memory is; those that are flagged have 1 or more."""

    @property
    def flagged(self) -> BoolArray:
        """(N,)."""

    @property
    def held(self) -> BoolArray | None:
        """(N,) who would be flagged but for a cap; None where nobody is."""


@dataclass(frozen=True, eq=False)
class SweepState:
    """What a sweep reads beside the embeddings; one value in [0, 1] per memory in each column."""

    weights: FloatArray
    """(N,) w."""
    suspicion: FloatArray
    """(N,) s."""
    consolidation: FloatArray
    """(N,) c."""


@dataclass(frozen=True)
class IterationTrace:
    """One iteration, in numbers of the whole bank."""

    mean: float
    """Mean of R."""
    std: float
    """Standard deviation of R."""
    threshold: float | None
    """theta = mean - eta * std; None where terms decided by their own levels (diagnosis ``coupling``)."""
    abnormal: int
    """How many memories lay below it, or were flagged."""
    mean_weight: float
    """Mean w after the update."""


@dataclass(frozen=True, eq=False)
class SweepResult:
    """What a sweep changes, and what it saw."""

    weights: FloatArray
    """(N,) new w in [0, 1]."""
    suspicion: FloatArray
    """(N,) new s in [0, 1]."""
    activation: FloatArray
    """(N,) R, averaged over the iterations."""
    abnormal_counts: Array
    """(N,) integers: in how many iterations a memory was abnormal."""
    trace: tuple[IterationTrace, ...]
    """One entry per iteration; empty for an empty bank."""


def forgetting_sweep(
    embeddings: Array,
    state: SweepState,
    config: ForgettingConfig,
    rng: np.random.Generator,
    *,
    progress: Progress | None = None,
    coupling: Decided | None = None,
) -> SweepResult:
    """Run ``config.iterations`` rounds of probe, diagnose and update (sections 4.1 to 4.3 [S]).

    Args:
        embeddings: (N, d) raw embeddings in stored units; never written to.
        state: Columns of shape (N,), values in [0, 1]; never written to.
        config: Every constant of the sweep. Its ``seed`` is not used here: ``rng`` decides.
        rng: Source of randomness; the same generator state and inputs give the same result.
        progress: Called as ``progress("sweep", done, iterations)`` after each iteration.
        coupling: What ``judge`` or ``find_coupling`` says of these memories; given exactly with
            ``diagnosis='coupling'``.

    Returns:
        New arrays. An empty bank gives empty arrays; one memory, or identical embeddings, never abnormal.

    Raises:
        ConfigError: Shapes disagree, a state value is outside [0, 1], or ``probe='scalar'`` with d = 1;
            or ``coupling`` does not fit ``config.diagnosis``.
        InvalidMemoryError: A row has zero or non-finite norm; the message quotes the row's index.
    """
    matrix = as_matrix(embeddings)
    columns = _validated_state(state, matrix.shape)
    _check_diagnosis(config, coupling, len(matrix))
    if len(matrix) == 0:
        return _empty_result()
    geometry = measure(matrix)
    if coupling is not None:
        return _iterate(
            columns, lambda: -coupling.score, coupling.flagged, config, progress, held=coupling.held
        )
    probe = bank_probe(matrix, geometry, config, rng)
    cos_bank_mean = float(geometry.cosines.mean())
    return _iterate(columns, lambda: activation(*probe(), cos_bank_mean, config), None, config, progress)


def _check_diagnosis(config: ForgettingConfig, coupling: Decided | None, count: int) -> None:
    if (coupling is not None) != (config.diagnosis == "coupling"):
        given = "no result" if coupling is None else "a result"
        raise ConfigError(
            f"diagnosis={config.diagnosis!r} and {given} of terms: give coupling=... exactly with "
            "diagnosis='coupling' (MemoryBank.sweep does)"
        )
    if coupling is not None and not coupling.score.shape == coupling.flagged.shape == (count,):
        raise ConfigError(f"coupling of shape {coupling.score.shape} and {count} memories must agree")


def _iterate(
    state: SweepState,
    respond: Callable[[], FloatArray],
    flagged: BoolArray | None,
    config: ForgettingConfig,
    progress: Progress | None,
    held: BoolArray | None = None,
) -> SweepResult:
    weights, suspicion = state.weights, state.suspicion
    total = np.zeros(len(weights))
    counts = np.zeros(len(weights), dtype=np.int64)
    trace: list[IterationTrace] = []
    for done in range(1, config.iterations + 1):
        response = respond()
        suspicion, abnormal = update_suspicion(suspicion, response, config, flagged=flagged)
        weights = update_weights(weights, suspicion, state.consolidation, abnormal, config)
        if held is not None:
            # neither cleared nor guilty: a flood above the cap must not bring back what was forgotten
            weights = np.where(held, state.weights, weights)
            suspicion = np.where(held, state.suspicion, suspicion)
        total += response
        counts += abnormal
        mean, std = moments(response)
        theta = mean - config.eta * std if flagged is None else None
        trace.append(IterationTrace(mean, std, theta, int(abnormal.sum()), float(weights.mean())))
        if progress is not None:
            progress("sweep", done, config.iterations)
    return SweepResult(weights, suspicion, total / config.iterations, counts, tuple(trace))


def _validated_state(state: SweepState, shape: tuple[int, ...]) -> SweepState:
    """Return the columns as float64; no step writes to them, so a copy is not needed."""
    columns: dict[str, FloatArray] = {}
    for item in fields(SweepState):
        column = np.asarray(getattr(state, item.name), dtype=np.float64)
        if column.shape != shape[:1]:
            raise ConfigError(
                f"state.{item.name} has shape {column.shape} and embeddings have shape {shape}: "
                "give one value per memory"
            )
        outside = ~((column >= 0.0) & (column <= 1.0))
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise ConfigError(f"state.{item.name}[{row}]={column[row]:g} is outside [0, 1]")
        columns[item.name] = column
    return SweepState(**columns)


def _empty_result() -> SweepResult:
    return SweepResult(np.empty(0), np.empty(0), np.empty(0), np.empty(0, dtype=np.int64), ())
