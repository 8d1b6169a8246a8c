"""Which questions teach an agent most: GRPO on dreams' questions, on the best of them, or on real ones.

Every arm begins with the same fine-tuned adapter, takes the same number of steps, and is judged by its mean
reward on real queries of conversations that nobody was trained on.

Source: MemDream Table 11: baseline (no dream), dream-guided top 50 % and top 30 %, oracle (real queries) [S].
The paper does not say what each arm trains on: here the baseline is the fine-tuned adapter without GRPO, and
real queries are what annotators wrote about pages [O].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.config import checked_whole
from shared_core.errors import ConfigError
from shared_core.training.fine_tuning import adapter_digest
from shared_core.training.grpo import GrpoConfig, train_grpo
from shared_core.training.held_out import HeldOut, evaluate

if TYPE_CHECKING:
    from shared_core.training.backbone import Backbone
    from shared_core.training.dataset import TrainingSet
    from shared_core.training.dataset_forms import AgentName, Signal
    from shared_core.training.practice import Practices
    from shared_core.types import Progress

BASELINE = "no dream"
HELD_OUT = "held_out.json"


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What GRPO trains on."""

    signal: Signal
    top: float


ARMS: Mapping[str, Arm] = {
    "dream, top 50 %": Arm(signal="dream", top=0.5),
    "dream, top 30 %": Arm(signal="dream", top=0.3),
    "oracle (real queries)": Arm(signal="real", top=1.0),
}


@dataclass(frozen=True, kw_only=True)
class SignalRow:
    """One trained adapter, or the baseline."""

    arm: str
    seed: int | None
    """None for the baseline, which nothing is drawn for."""
    reward: float
    """Mean over the held-out real queries."""
    valid: float
    """Share of usable replies."""
    talks: Mapping[str, float]
    """Mean reward of each held-out conversation."""
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class SignalSummary:
    """An arm over its seeds."""

    arm: str
    seeds: int
    reward: float
    deviation: float | None
    """Of the seeds' means; None where there is one."""
    talk_deviation: float
    """Of the conversations' means, averaged over seeds: what Table 11 calls Std is not said."""
    better: int
    """Seeds with a higher mean than the baseline."""


def compare_signals(
    backbone: Backbone,
    training_set: TrainingSet,
    practices: Practices,
    agent: AgentName,
    start: Path,
    out: Path,
    *,
    seeds: int = 3,
    config: GrpoConfig | None = None,
    limit: int | None = None,
    arms: Sequence[str] | None = None,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> list[SignalRow]:
    """Train an agent's adapter by each signal and seed, and judge each on held-out real queries.

    What is finished is kept in ``out`` and not repeated.

    Args:
        backbone: Its adapter of the agent is left as the last arm has it.
        training_set: With training and test talks, and both signals.
        practices: The memory of each talk.
        agent: Whose adapter.
        start: The fine-tuned adapter's folder (``.../<agent>``).
        out: One folder per arm and seed.
        seeds: 0, 1, ... of every arm.
        config: Of the training; ``signal``, ``top`` and ``seed`` are the arm's.
        limit: Held-out queries at most.
        arms: Names in ``ARMS``; default: all.
        stop: Asked between and within runs.
        progress: Called with a stage, what is done and how much there is.

    Raises:
        ConfigError: There is nothing to train or judge on, or an unknown arm.
        MissingExtraError: The extra ``train`` is not installed.
    """
    checked_whole("seeds", seeds)
    chosen = list(ARMS) if arms is None else list(arms)
    if unknown := [name for name in chosen if name not in ARMS]:
        raise ConfigError(f"arm {unknown[0]!r} is not one of {', '.join(ARMS)}")
    config = config or GrpoConfig()
    stopped = stop or (lambda: False)

    def judged(folder: Path) -> HeldOut | None:
        return _judged(backbone, training_set, practices, agent, folder, limit, stopped, progress)

    backbone.load_adapter(agent, start)
    rows = _row(BASELINE, None, judged(out / "baseline"))
    for seed in range(seeds):
        for name in chosen:
            if stopped():
                return rows
            arm = ARMS[name]
            folder = out / f"{arm.signal}-{round(100 * arm.top)}-{seed}"
            backbone.load_adapter(agent, start)
            own = replace(config, signal=arm.signal, top=arm.top, seed=seed)
            card = train_grpo(
                backbone,
                training_set,
                agent,
                folder,
                practices.score_group,
                own,
                stop=stop,
                progress=progress,
            )
            if card.finished:
                rows += _row(name, seed, judged(folder))
    return rows


def summarise(rows: Sequence[SignalRow]) -> list[SignalSummary]:
    """Return one line per arm, in the order in which they come."""
    (baseline, *_) = [row.reward for row in rows if row.arm == BASELINE] or [float("nan")]
    found = []
    for arm in dict.fromkeys(row.arm for row in rows):
        own = [row for row in rows if row.arm == arm]
        rewards = [row.reward for row in own]
        found.append(
            SignalSummary(
                arm=arm,
                seeds=len(own),
                reward=float(np.mean(rewards)),
                deviation=float(np.std(rewards, ddof=1)) if len(own) > 1 else None,
                talk_deviation=float(np.mean([np.std(list(row.talks.values())) for row in own])),
                better=sum(reward > baseline for reward in rewards),
            )
        )
    return found


# ---- inner


def _judged(
    backbone: Backbone,
    training_set: TrainingSet,
    practices: Practices,
    agent: AgentName,
    folder: Path,
    limit: int | None,
    stop: Callable[[], bool],
    progress: Progress | None,
) -> HeldOut | None:
    """Return what an adapter is worth, read back where it was judged before; None where it was stopped."""
    path = folder / HELD_OUT
    made = {"adapter": adapter_digest(backbone, agent), "data": training_set.digest, "limit": limit}
    if path.is_file():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if {name: kept.get(name) for name in made} == made:
                return HeldOut(**kept["held_out"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{path} is no held-out result: remove it, or name another folder") from error
    cut = False

    def stopping() -> bool:
        nonlocal cut
        cut = cut or stop()
        return cut

    if stopping():
        return None
    found = evaluate(
        backbone,
        training_set,
        practices,
        agent,
        adapter=True,
        signal="real",
        limit=limit,
        stop=stopping,
        progress=progress,
    )
    if cut:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".part")
    half.write_text(json.dumps({**made, "held_out": asdict(found)}, indent=1), encoding="utf-8")
    half.replace(path)
    return found


def _row(arm: str, seed: int | None, found: HeldOut | None) -> list[SignalRow]:
    if found is None:
        return []
    return [
        SignalRow(
            arm=arm,
            seed=seed,
            reward=found.mean_reward,
            valid=found.valid_share,
            talks=dict(found.talks),
            n=found.n,
        )
    ]
