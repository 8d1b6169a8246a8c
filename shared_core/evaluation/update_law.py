"""How the update of weights behaves, law by law: who is forgotten, how fast, and what a high c buys [O].

Does: repeats the update of section 4.3 over what a diagnosis said of a case, keeping every iteration. The
diagnosis is the bank's own; the steps are those of ``dynamics``, and a test compares them with a real sweep.

Varies what the source leaves open: the decay law, how many probes an iteration averages, and a momentum of
suspicion, s <- b s + (1 - b) s', where s' is the published update (b = 0 is that update). Several probes
change nothing where texts decide (preset ``hardened``), because nothing is drawn there.

Does not know: retrieval, queries, files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shared_core.bank import MemoryBank
from shared_core.bank.status import FORGOTTEN, WEAKENED
from shared_core.config import AgentKind, DecayLaw, ForgettingConfig, Preset
from shared_core.dynamics import activation, measure, update_suspicion, update_weights
from shared_core.dynamics.probing import bank_probe
from shared_core.errors import ConfigError
from shared_core.evaluation.poison import VALUE_KEY, fill_collection

if TYPE_CHECKING:
    from shared_core.evaluation.cases import AttackCase
    from shared_core.types import BoolArray, Embedder, FloatArray

MOST = 20
"""Iterations that are simulated."""
SHOWN = (1, 2, 3, 5, 10, 20)
LAWS: tuple[DecayLaw, ...] = ("additive", "multiplicative")
PROBES = (1, 8)
MOMENTA = (0.0, 0.5, 0.9)
CONSOLIDATIONS = (0.0, 0.4, 0.6, 1.0)
LOWERED = 0.2
"""Weight from which a memory that was forgotten by mistake starts to recover."""
RECOVERED = 0.9

Respond: TypeAlias = "Callable[[], FloatArray]"
"""Returns R of the whole bank, (N,), for one iteration."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What a sweep's diagnosis says of a bank, iteration by iteration."""

    ids: list[str]
    embeddings: FloatArray
    """(N, d)."""
    response: FloatArray | None
    """(N,) R where texts decided; None where every iteration probes anew."""
    flagged: BoolArray | None
    """(N,) who is abnormal where texts decided."""

    def responding(self, config: ForgettingConfig, probes: int) -> Respond:
        """Return what gives R in each iteration, the mean of ``probes`` probes."""
        if self.response is not None:
            held = self.response
            return lambda: held
        geometry = measure(self.embeddings)
        draw = np.random.Generator(np.random.SFC64(config.seed))
        probe = bank_probe(self.embeddings, geometry, config, draw)
        mean = float(geometry.cosines.mean())
        return lambda: np.mean([activation(*probe(), mean, config) for _ in range(probes)], axis=0)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Every iteration of one sweep."""

    weights: FloatArray
    """(T + 1, N), the start included."""
    suspicion: FloatArray
    """(T + 1, N)."""
    abnormal: BoolArray
    """(T, N)."""


@dataclass(frozen=True, kw_only=True)
class LawRow:
    """One setting after T iterations."""

    case: str
    preset: str
    law: str
    probes: int
    momentum: float
    poison_c: float
    benign_c: float
    start: float
    """w of every memory before the sweep."""
    iterations: int
    poison_weight: float | None
    """Mean w of the poison; None on a clean bank."""
    poison_forgotten: float | None
    """Share of the poison with w < 0.1."""
    forgotten_after: float | None
    """Median of the iterations until w < 0.1, over the poison that is there after 20; None if none is."""
    benign_weight: float
    false_forget: float
    """Share of the benign memories with w < 0.5."""
    recovered_after: float | None
    """Median of the iterations until w > 0.9 for good, over the benign memories that are there after 20."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class LawSetting:
    """What is varied."""

    law: DecayLaw = "additive"
    probes: int = 1
    momentum: float = 0.0
    poison_c: float = 1.0
    benign_c: float = 1.0
    start: float = 1.0


def settings() -> list[LawSetting]:
    """Return the settings of the table: one thing varied at a time, for both laws."""
    found = []
    for law in LAWS:
        base = LawSetting(law=law)
        found.append(base)
        found += [replace(base, probes=probes) for probes in PROBES if probes != base.probes]
        found += [replace(base, momentum=momentum) for momentum in MOMENTA if momentum != base.momentum]
        found += [replace(base, poison_c=c) for c in CONSOLIDATIONS if c != base.poison_c]
        found += [replace(base, benign_c=c) for c in CONSOLIDATIONS if c != base.benign_c]
        found.append(replace(base, start=LOWERED))
    return found


def diagnose_bank(bank: MemoryBank, config: ForgettingConfig) -> Diagnosis:
    """Ask a bank's own sweep who is abnormal; every weight is as before afterwards.

    Args:
        bank: A bank that no sweep has changed yet, so that whoever loses weight was flagged.
        config: Its diagnosis.

    Raises:
        ConfigError: The bank has weights below 1.
    """
    ids, embeddings = bank.content.embeddings()
    if config.diagnosis == "threshold":
        return Diagnosis(ids, embeddings, None, None)
    if (bank.weights(ids) < 1.0).any():
        raise ConfigError("the update law is measured on a bank that no sweep has changed: take a new one")
    report = bank.sweep(replace(config, iterations=1))
    row_of = {memory_id: row for row, memory_id in enumerate(report.ids)}
    order = [row_of[memory_id] for memory_id in ids]
    flagged = bank.weights(ids) < 1.0
    bank.undo(report.run_id or "")
    return Diagnosis(ids, embeddings, report.activation[order], flagged)


def trajectory(
    diagnosis: Diagnosis,
    config: ForgettingConfig,
    weights: FloatArray,
    consolidation: FloatArray,
    *,
    iterations: int = MOST,
    probes: int = 1,
    momentum: float = 0.0,
) -> Trajectory:
    """Repeat probe, diagnose, update, and keep every iteration.

    Args:
        diagnosis: Of the bank.
        config: Laws and constants; its ``iterations`` is not used.
        weights: (N,) w before.
        consolidation: (N,) c.
        iterations: T.
        probes: How many probes an iteration averages.
        momentum: b in [0, 1) in s <- b s + (1 - b) s'.
    """
    respond = diagnosis.responding(config, probes)
    suspicion = np.zeros(len(weights))
    kept_w, kept_s, kept_a = [weights], [suspicion], []
    for _ in range(iterations):
        updated, abnormal = update_suspicion(suspicion, respond(), config, flagged=diagnosis.flagged)
        suspicion = momentum * suspicion + (1.0 - momentum) * updated
        weights = update_weights(weights, suspicion, consolidation, abnormal, config)
        kept_w.append(weights)
        kept_s.append(suspicion)
        kept_a.append(abnormal)
    return Trajectory(np.stack(kept_w), np.stack(kept_s), np.stack(kept_a))


def measure_laws(
    case: AttackCase,
    embedder: Embedder,
    *,
    presets: Sequence[Preset] = ("paper", "hardened"),
    agent: AgentKind = "structured",
    seed: int = 0,
    clean: bool = False,
    varied: Sequence[LawSetting] | None = None,
) -> list[LawRow]:
    """Diagnose a case in a real collection, and return the rows of every preset and setting.

    Args:
        case: The case.
        embedder: Embeds its keys.
        presets: Which.
        agent: Whose published parameters.
        seed: Of the probes.
        clean: Leave the poison out.
        varied: See ``law_rows``.
    """
    if clean:
        benign = [memory for memory in case.memories if not memory.poison]
        case = case.model_copy(update={"memories": benign, "name": f"clean/{case.name}"})
    rows: list[LawRow] = []
    with (
        tempfile.TemporaryDirectory(prefix="dream-law-") as folder,
        MemoryBank.open(folder, "case", create=True, embedder=embedder, value_key=VALUE_KEY) as bank,
    ):
        fill_collection(bank, case)
        for preset in presets:
            config = ForgettingConfig.preset(preset, agent, seed=seed)
            found = diagnose_bank(bank, config)
            poison = np.array([memory_id in case.poison_ids for memory_id in found.ids])
            rows += law_rows(case.name, found, poison, config, preset=preset, varied=varied)
    return rows


def law_rows(
    case: str,
    diagnosis: Diagnosis,
    poison: BoolArray,
    config: ForgettingConfig,
    *,
    preset: str,
    varied: Sequence[LawSetting] | None = None,
    shown: Sequence[int] = SHOWN,
) -> list[LawRow]:
    """Return one row per setting and number of iterations.

    Args:
        case: Its name.
        diagnosis: See ``diagnose_bank``.
        poison: (N,) ground truth, in the order of ``diagnosis.ids``.
        config: The preset.
        preset: Its name.
        varied: Default: ``settings()``.
        shown: Iterations that get a row.
    """
    rows = []
    for setting in settings() if varied is None else varied:
        found = trajectory(
            diagnosis,
            replace(config, decay_law=setting.law),
            np.full(len(poison), setting.start),
            np.where(poison, setting.poison_c, setting.benign_c),
            iterations=max(MOST, *shown),
            probes=setting.probes,
            momentum=setting.momentum,
        )
        rows += [_row(case, preset, setting, found.weights, poison, count) for count in shown]
    return rows


def _row(
    case: str, preset: str, setting: LawSetting, weights: FloatArray, poison: BoolArray, count: int
) -> LawRow:
    bad, good = weights[:, poison], weights[:, ~poison]
    return LawRow(
        case=case,
        preset=preset,
        **asdict(setting),
        iterations=count,
        poison_weight=float(bad[count].mean()) if poison.any() else None,
        poison_forgotten=float((bad[count] < FORGOTTEN).mean()) if poison.any() else None,
        forgotten_after=_median_first(bad < FORGOTTEN),
        benign_weight=float(good[count].mean()),
        false_forget=float((good[count] < WEAKENED).mean()),
        recovered_after=_median_first(good > RECOVERED),
    )


def _median_first(reached: BoolArray) -> float | None:
    """Return the median of the first iteration from which each column stays true; None where none does."""
    if not reached.size or not reached[-1].any():
        return None
    lasting = reached[:, reached[-1]]
    # rows after the last false one
    first = len(lasting) - np.argmin(lasting[::-1], axis=0)
    first[lasting.all(axis=0)] = 0
    return float(np.median(first))
