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
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shared_core.dynamics.activation import activation
from shared_core.dynamics.arrays import NUMPY
from shared_core.dynamics.blocks import SERIAL, Workers, blocks
from shared_core.dynamics.diagnosis import moments, update_suspicion
from shared_core.dynamics.forgetting import update_weights
from shared_core.dynamics.geometry import as_matrix, measure
from shared_core.dynamics.probing import block_probe, whole
from shared_core.errors import ConfigError
from shared_core.types import Array, FloatArray, Progress

if TYPE_CHECKING:
    from shared_core.config import ForgettingConfig
    from shared_core.dynamics.arrays import Arrays
    from shared_core.dynamics.probing import BlockProbe
    from shared_core.dynamics.running_moments import Moments
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
    norms: FloatArray | None = None,
    unit_moments: Moments | None = None,
    threads: int | None = None,
    arrays: Arrays | None = None,
) -> SweepResult:
    """Run ``config.iterations`` rounds of probe, diagnose and update (sections 4.1 to 4.3 [S]).

    Args:
        embeddings: (N, d) raw embeddings in stored units, or unit vectors with ``norms``; never written to.
        state: Columns of shape (N,), values in [0, 1]; never written to.
        config: Every constant of the sweep. Its ``seed`` is not used here: ``rng`` decides.
        rng: Source of randomness; the same generator state and inputs give the same result.
        progress: Called as ``progress("sweep", done, iterations)`` after each iteration.
        coupling: What ``judge`` or ``find_coupling`` says of these memories; given exactly with
            ``diagnosis='coupling'``.
        norms: (N,) norms of the stored embeddings, where ``embeddings`` were divided by them.
        unit_moments: Moments of these unit vectors, where they are kept up: saves one of two reads. Only with
            ``norms``.
        threads: How many compute, 1 or more; no result depends on it. Default: the processors of this
            process, or OMP_NUM_THREADS where that is fewer.
        arrays: Where the iterations are computed, see ``shared_core.device.opened``; default: numpy. The
            embeddings are read here in any case: cosines and state go there once, and come back once.

    Returns:
        New arrays. An empty bank gives empty arrays; one memory, or identical embeddings, never abnormal.

    Raises:
        ConfigError: Shapes disagree, a state value is outside [0, 1], or ``probe='scalar'`` with d = 1;
            or ``coupling`` does not fit ``config.diagnosis``; or moments of other vectors than these; or
            ``device='cuda'`` without ``arrays``, or ``arrays`` for what only numpy computes.
        InvalidMemoryError: A row has zero or non-finite norm; the message quotes the row's index.
    """
    matrix = as_matrix(embeddings)
    columns = _validated_state(state, matrix.shape)
    _check_diagnosis(config, coupling, len(matrix))
    _check_known(matrix.shape, norms, unit_moments)
    arrays = _checked_arrays(config, arrays)
    if len(matrix) == 0:
        return _empty_result()
    total = None if unit_moments is None else unit_moments.total
    with Workers(threads) as workers:
        geometry = measure(matrix, norms=norms, total=total, workers=workers)
        if coupling is not None:
            running = _Running(columns, config, coupling, workers, arrays)
            known = -coupling.score
            return _iterate(running, lambda: known, progress)
        probe = block_probe(
            matrix, geometry, config, rng,
            unit=norms is not None, moments=unit_moments, workers=workers, arrays=arrays,
        )  # fmt: skip
        typical = float(geometry.cosines.mean())
        drawing = workers if arrays.shared else SERIAL
        running = _Running(columns, config, None, drawing, arrays)
        return _iterate(running, lambda: _respond(probe, typical, config, drawing, arrays.xp), progress)


def _checked_arrays(config: ForgettingConfig, arrays: Arrays | None) -> Arrays:
    if arrays is None and config.device == "cuda":
        raise ConfigError(
            "device='cuda' needs arrays=shared_core.device.opened(config) (MemoryBank.sweep gives it)"
        )
    return NUMPY if arrays is None else arrays


def _check_diagnosis(config: ForgettingConfig, coupling: Decided | None, count: int) -> None:
    if (coupling is not None) != (config.diagnosis == "coupling"):
        given = "no result" if coupling is None else "a result"
        raise ConfigError(
            f"diagnosis={config.diagnosis!r} and {given} of terms: give coupling=... exactly with "
            "diagnosis='coupling' (MemoryBank.sweep does)"
        )
    if coupling is not None and not coupling.score.shape == coupling.flagged.shape == (count,):
        raise ConfigError(f"coupling of shape {coupling.score.shape} and {count} memories must agree")


def _check_known(shape: tuple[int, ...], norms: FloatArray | None, moments: Moments | None) -> None:
    if norms is not None and norms.shape != shape[:1]:
        raise ConfigError(f"norms of shape {norms.shape} and embeddings of shape {shape} must agree")
    if moments is not None and (norms is None or (moments.count, *moments.mean.shape) != shape):
        raise ConfigError(
            f"unit_moments of {moments.count} vectors of shape {moments.mean.shape} and embeddings of shape "
            f"{shape} must agree, and need norms=..."
        )


def _respond(
    probe: BlockProbe, typical: float, config: ForgettingConfig, workers: Workers, xp: Any
) -> FloatArray:
    """Probe the bank once; return R, (N,)."""
    if "retrieval" in config.terms and config.retrieval_form == "softmax":
        # it sums over the bank
        return activation(*whole(probe, workers, xp), typical, config, xp)
    response: FloatArray = xp.concatenate(
        workers.map(lambda number, _part: activation(*probe.draw(number), typical, config, xp), probe.parts)
    )
    return response


def _iterate(running: _Running, respond: Callable[[], FloatArray], progress: Progress | None) -> SweepResult:
    trace: list[IterationTrace] = []
    iterations = running.config.iterations
    for done in range(1, iterations + 1):
        trace.append(running.step(respond()))
        if progress is not None:
            progress("sweep", done, iterations)
    return running.result(tuple(trace))


class _Running:
    """The columns that a sweep changes, (N,) each; they lie where ``arrays`` says."""

    def __init__(
        self,
        state: SweepState,
        config: ForgettingConfig,
        decided: Decided | None,
        workers: Workers,
        arrays: Arrays,
    ) -> None:
        self.config = config
        self._before = SweepState(*(arrays.put(getattr(state, item.name)) for item in fields(SweepState)))
        self._decided, self._workers, self._arrays = decided, workers, arrays
        # copies, in any library
        self._weights, self._suspicion = self._before.weights + 0.0, self._before.suspicion + 0.0
        self._total = arrays.xp.zeros_like(self._weights)
        self._counts = arrays.xp.zeros_like(self._weights, dtype=arrays.xp.int64)

    def result(self, trace: tuple[IterationTrace, ...]) -> SweepResult:
        """Return the columns as they are now, in this process's memory."""
        take, mean = self._arrays.take, self._total / self.config.iterations
        return SweepResult(take(self._weights), take(self._suspicion), take(mean), take(self._counts), trace)

    def step(self, response: FloatArray) -> IterationTrace:
        """Diagnose by R, (N,), and update every memory."""
        block = self._arrays.block
        bank = mean, std = moments(response, self._workers, block)
        updated = self._workers.map(
            lambda _number, part: self._update(part, response[part], bank), blocks(len(response), block)
        )
        abnormal, weight = (sum(column) for column in zip(*updated, strict=True))
        theta = mean - self.config.eta * std if self._decided is None else None
        return IterationTrace(mean, std, theta, int(abnormal), weight / len(response))

    def _update(self, part: slice, response: FloatArray, bank: tuple[float, float]) -> tuple[int, float]:
        """Update one block; return how many were abnormal and the sum of the new weights."""
        before, decided, xp = self._before, self._decided, self._arrays.xp
        flagged = None if decided is None else decided.flagged[part]
        suspicion, abnormal = update_suspicion(
            self._suspicion[part], response, self.config, flagged=flagged, bank=bank, xp=xp
        )
        weights = update_weights(
            self._weights[part], suspicion, before.consolidation[part], abnormal, self.config, xp
        )
        if decided is not None and decided.held is not None:
            # neither cleared nor guilty: a flood above the cap must not bring back what was forgotten
            weights = xp.where(decided.held[part], before.weights[part], weights)
            suspicion = xp.where(decided.held[part], before.suspicion[part], suspicion)
        self._weights[part], self._suspicion[part] = weights, suspicion
        self._total[part] += response
        self._counts[part] += abnormal
        return int(xp.count_nonzero(abnormal)), float(weights.sum())


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
