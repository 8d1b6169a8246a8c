"""Every defence that ``dream eval poison`` compares, in one registry.

A defence sees a bank and nothing else: no labels, no queries, no trigger. It changes weights, as one run that
can be undone, and says how suspect it finds each memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from shared_core.config import AgentKind, CouplingConfig, ForgettingConfig, Preset
from shared_core.errors import ConfigError
from shared_core.evaluation.baselines import amemguard_drops, perplexity_drops
from shared_core.evaluation.classifier import FOLDER, train_classifier
from shared_core.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank, SweepReport
    from shared_core.evaluation.perplexity import SmolLM2Perplexity


@dataclass(frozen=True, kw_only=True)
class DefenceOutcome:
    """What a defence did."""

    ids: list[str]
    """All memories it looked at, in the order of ``score``."""
    score: FloatArray
    """How suspect each is, larger is worse, shape (len(ids),); empty where a defence gives none."""
    run_id: str | None
    """For ``undo``; None where nothing changed."""
    seconds: float
    """Of the defence, on an embedded bank."""


@dataclass(frozen=True, kw_only=True)
class DefenceOptions:
    """What may be chosen beside the defence's name."""

    agent: AgentKind = "structured"
    """Whose published parameters a preset uses."""
    seed: int = 0
    """Of a sweep's noise."""
    data: Path | None = None
    """Directory of the published data, for a defence that is trained on some of it."""


@dataclass(frozen=True, kw_only=True)
class Drops:
    """What a baseline would drop, and its score where it has a finer one."""

    ids: list[str]
    drops: BoolArray
    """Shape (len(ids),)."""
    score: FloatArray = field(default_factory=lambda: np.empty(0))
    """Shape (len(ids),), or empty: then what is dropped is suspect, the rest is not."""


Defence: TypeAlias = "Callable[[MemoryBank, DefenceOptions], DefenceOutcome]"
"""Changes a bank's weights as one run."""


def defend(name: str, bank: MemoryBank, options: DefenceOptions | None = None) -> DefenceOutcome:
    """Run a defence by name.

    Raises:
        ConfigError: There is no such defence.
        MissingExtraError: It needs a package that is not installed.
    """
    return check_defence(name)(bank, options or DefenceOptions())


def check_defence(name: str) -> Defence:
    """Return a defence by name.

    Raises:
        ConfigError: There is no such defence.
    """
    if name not in DEFENCES:
        raise ConfigError(f"--defence {name!r} is not one of {', '.join(DEFENCES)}")
    return DEFENCES[name]


def outcome_of_sweep(report: SweepReport) -> DefenceOutcome:
    """Return a sweep's outcome: a memory that responds less is more suspect."""
    return DefenceOutcome(
        ids=report.ids, score=-report.activation, run_id=report.run_id, seconds=report.seconds
    )


def preset(name: str, **overrides: Any) -> Defence:
    """Return the defence that sweeps once with a preset, and some options of ``ForgettingConfig``."""

    def run(bank: MemoryBank, options: DefenceOptions) -> DefenceOutcome:
        config = ForgettingConfig.preset(cast("Preset", name), options.agent, seed=options.seed, **overrides)
        return outcome_of_sweep(bank.sweep(config))

    return run


def dropping(judge: Callable[[MemoryBank, DefenceOptions], Drops]) -> Defence:
    """Return the defence that gives weight 0 to what a baseline would drop."""

    def run(bank: MemoryBank, options: DefenceOptions) -> DefenceOutcome:
        started = time.perf_counter()
        judged = judge(bank, options)
        dropped = {memory_id: 0.0 for memory_id, drop in zip(judged.ids, judged.drops, strict=True) if drop}
        run_id = bank.set_weights(dropped).run_id if dropped else None
        return DefenceOutcome(
            ids=judged.ids,
            score=judged.score if len(judged.score) else judged.drops.astype(float),
            run_id=run_id,
            seconds=time.perf_counter() - started,
        )

    return run


def _none(_bank: MemoryBank, _options: DefenceOptions) -> DefenceOutcome:
    return DefenceOutcome(ids=[], score=np.empty(0), run_id=None, seconds=0.0)


def _amemguard(bank: MemoryBank, _options: DefenceOptions) -> Drops:
    ids, embeddings = bank.content.embeddings()
    return Drops(ids=ids, drops=amemguard_drops(embeddings))


def _perplexity(bank: MemoryBank, _options: DefenceOptions) -> Drops:
    memories = list(bank)
    perplexity = _language_model()([memory.text for memory in memories])
    return Drops(ids=[memory.id for memory in memories], drops=perplexity_drops(perplexity), score=perplexity)


def _classifier(bank: MemoryBank, options: DefenceOptions) -> Drops:
    if options.data is None:
        raise ConfigError(
            "defence 'classifier' is trained on prompts that are not part of this package: give --data DIR, "
            f"a directory with {FOLDER}/"
        )
    if bank.embedder is None:
        raise ConfigError(
            "defence 'classifier' needs the embedder that the bank was filled with: open it with embedder=..."
        )
    trained = train_classifier(options.data, bank.embedder)
    ids, embeddings = bank.content.embeddings()
    score = trained.score(embeddings)
    return Drops(ids=ids, drops=trained.drops(score), score=score)


@cache
def _language_model() -> SmolLM2Perplexity:
    from shared_core.evaluation.perplexity import SmolLM2Perplexity

    return SmolLM2Perplexity()


DEFENCES: dict[str, Defence] = {
    "none": _none,
    "paper": preset("paper"),
    "hardened": preset("hardened"),
    "hardened-flag": preset("hardened", coupling=CouplingConfig(repeated="flag")),
    "amemguard": dropping(_amemguard),
    "ppl": dropping(_perplexity),
    "classifier": dropping(_classifier),
}
"""By the name that the command line takes; a new defence is one line here."""
DEFAULT_DEFENCES = ("none", "paper", "hardened")
