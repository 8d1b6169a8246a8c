"""Joint training of Dreamer and Consolidator on what a repair brings, the Analyst frozen.

One AdamW over both adapters; Dreamer and Consolidator take turns, a step each, by ``set_adapter``. Every
rollout is rewarded by Eq. 12 (``Stage``), its advantage is group-relative (Eq. 11), without a KL term.

Source: MemDream section 3.3.2 and appendix D, Table 8 [S]. Exploration by temperature 1 + epsilon and no
dropout, in the draws and in the loss alike, so that it stays on-policy, and that a group of equal rewards is
left out of the gradient (its advantages are 0) are ours [O].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.config import checked_positive, checked_range, checked_whole
from shared_core.errors import ConfigError
from shared_core.training.advantages import drawing_temperature, group_advantages, group_loss
from shared_core.training.backbone_loading import torch_module
from shared_core.training.dataset import AGENTS
from shared_core.training.fine_tuning import adapter_digest, check_finite
from shared_core.training.joint_checkpoint import load_checkpoint, remove_checkpoint, save_checkpoint
from shared_core.training.joint_stage import Played, Stage
from shared_core.training.run_card import RunCard, earlier_part, installed_versions

if TYPE_CHECKING:
    from shared_core.training.backbone import Backbone
    from shared_core.training.dataset import Example, TrainingSet
    from shared_core.training.dataset_forms import AgentName, Signal
    from shared_core.training.practice import Practices
    from shared_core.types import FloatArray, Progress

TURNS: tuple[AgentName, AgentName] = ("dreamer", "consolidator")
"""Who learns, in turn [S]."""


@dataclass(frozen=True, kw_only=True)
class JointConfig:
    """How the two agents are trained together.

    Raises:
        ConfigError: A value is outside its range.
    """

    steps: int = 200
    """Updates of both agents together [S], the Dreamer first."""
    group: int = 4
    """N of Eq. 11 [S]."""
    accumulation: int = 4
    """Groups per step [S]."""
    learning_rate: float = 1e-3
    """[S]."""
    temperature: float = 1.0
    """t: as in ``GrpoConfig`` [O]."""
    exploration: float = 0.2
    """epsilon [S]: rollouts are drawn at temperature t(1 + epsilon), which falls linearly to t [O]."""
    weight_decay: float = 0.01
    """[S]."""
    gradient_norm: float = 1.0
    """[S]."""
    signal: Signal | None = "dream"
    """Which examples the Dreamer is asked about; None takes all."""
    top: float = 1.0
    """Share of them, the most discriminative."""
    save_every: int = 10
    """Steps between checkpoints."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        least = {"steps": 1, "group": 2, "accumulation": 1, "save_every": 1, "seed": 0}
        for name, lowest in least.items():
            checked_whole(name, getattr(self, name), lowest)
        for name in ("learning_rate", "gradient_norm", "temperature"):
            checked_positive(name, getattr(self, name))
        for name in ("exploration", "weight_decay"):
            checked_range(name, getattr(self, name), 0)
        checked_positive("top", self.top)
        checked_range("top", self.top, 0, 1)

    def warmth(self, step: int) -> float:
        """Return t(1 + epsilon) of a step, counted from 0."""
        return drawing_temperature(self.temperature, self.exploration, step / self.steps)


def train_joint(
    backbone: Backbone,
    training_set: TrainingSet,
    practices: Practices,
    out: Path,
    config: JointConfig | None = None,
    *,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> RunCard:
    """Train the adapters of Dreamer and Consolidator together; the Analyst and the model stay as they are.

    A run that was stopped or killed goes on from its last checkpoint when it is called again; a finished one
    is not repeated, and its adapters are loaded.

    Args:
        backbone: With the adapters to begin with; two of them are changed in place.
        training_set: Its training talks are dreamt about.
        practices: The memory of each talk, in which repairs are only supposed.
        out: Folder of this run: ``card.json``, the adapters of all three agents, and until it ends
            ``checkpoint.safetensors``.
        config: Options.
        stop: Asked after every step; when true, the run ends with a checkpoint.
        progress: Called as ``progress("joint", step, steps)``.

    Returns:
        The card, with ``finished`` and, for each agent, the curves of Eq. 12's mean over the rollouts, of the
        loss (Eq. 11) and of the share of valid replies.

    Raises:
        ConfigError: There is nothing to train on, ``out`` holds another run, or the training diverged; the
            adapters are then as they were.
        MissingExtraError: The extra ``train`` is not installed.
    """
    config = config or JointConfig()
    card = _card(backbone, training_set, config)
    earlier = earlier_part(out, card)
    if earlier is not None and earlier.finished:
        for agent in TURNS:
            backbone.load_adapter(agent, out / agent)
        return earlier
    card = card if earlier is None else replace(card, start=earlier.start)
    with _session(backbone):
        work = _Work(backbone, training_set, practices, out, config, card)
        while work.card.done < config.steps:
            work.step()
            if progress is not None:
                progress(card.kind, work.card.done, config.steps)
            stopping = stop is not None and stop()
            if stopping or work.card.done % config.save_every == 0:
                work.save()
            if stopping:
                break
        if work.card.finished:
            for agent in TURNS:
                check_finite(backbone, agent)
            # the weights first: a card that says finished must have them
            backbone.save(out)
        work.note()
    if work.card.finished:
        remove_checkpoint(out)
    return work.card


# ---- inner


def _card(backbone: Backbone, training_set: TrainingSet, config: JointConfig) -> RunCard:
    return RunCard(
        kind="joint",
        agents=TURNS,
        model=backbone.name,
        data=training_set.digest,
        settings={**asdict(config), "lora": asdict(backbone.settings)},
        steps=config.steps,
        start=adapter_digest(backbone, *AGENTS),
        versions=installed_versions(),
    )


@contextmanager
def _session(backbone: Backbone) -> Iterator[None]:
    """Put back the random numbers and, on failure, the adapters."""
    torch = torch_module()
    backbone.model.eval()
    before = {name: one.detach().clone() for agent in TURNS for name, one in backbone.trainable(agent)}
    try:
        with torch.random.fork_rng():
            yield
    except BaseException:
        with torch.no_grad():
            for agent in TURNS:
                for name, one in backbone.trainable(agent):
                    one.copy_(before[name])
        raise
    finally:
        for agent in TURNS:
            for _, one in backbone.trainable(agent):
                one.grad = None


class _Work:
    """A training as it stands."""

    def __init__(
        self,
        backbone: Backbone,
        training_set: TrainingSet,
        practices: Practices,
        out: Path,
        config: JointConfig,
        card: RunCard,
    ) -> None:
        self._torch = torch_module()
        self._backbone = backbone
        self._config = config
        self._out = out
        self._examples = training_set.of("dreamer", "train", config.signal, config.top)
        if not self._examples:
            raise ConfigError(
                f"the training set has no dreamer example of signal {config.signal!r} in split 'train': make "
                "one with `dream train data`"
            )
        self._stage = Stage(backbone, practices, training_set.of("consolidator", "train", config.signal))
        self._own = {agent: [one for _, one in backbone.trainable(agent)] for agent in TURNS}
        self._parameters = {name: one for agent in TURNS for name, one in backbone.trainable(agent)}
        self._optimizer = self._torch.optim.AdamW(
            self._parameters.values(),
            lr=config.learning_rate,
            betas=(0.9, 0.999),
            weight_decay=config.weight_decay,
        )
        out.mkdir(parents=True, exist_ok=True)
        told = load_checkpoint(out, self._parameters, self._optimizer) or {}
        self.card = replace(card, **told)
        self.note()

    def step(self) -> None:
        """Let one agent play, and learn from it."""
        started = time.perf_counter()
        at, config = self.card.done, self._config
        agent = TURNS[at % len(TURNS)]
        temperature, seed = config.warmth(at), _seed(config.seed, at)
        play = self._stage.dream if agent == "dreamer" else self._stage.consolidate
        played = play(self._drawn(at), config.group, temperature, seed)
        loss = self._learn(agent, played, temperature)
        rollouts = [one for group in played for one in group.rollouts]
        counts = dict(self.card.counts)
        for reason in (f"{agent}: {one.reason}" for one in rollouts if one.reason):
            counts[reason] = counts.get(reason, 0) + 1
        told = {
            "reward": _mean([one.reward for one in rollouts]),
            "loss": loss,
            "valid": _mean([one.valid for one in rollouts]),
        }
        self.card = replace(
            self.card,
            done=at + 1,
            counts=counts,
            curves=_longer(self.card.curves, at, agent, told),
            seconds=self.card.seconds + time.perf_counter() - started,
        )

    def save(self) -> None:
        """Write a checkpoint, and the card."""
        for agent in TURNS:
            check_finite(self._backbone, agent)
        told = {name: getattr(self.card, name) for name in ("done", "counts", "curves", "seconds")}
        save_checkpoint(self._out, self._parameters, self._optimizer, told)
        self.note()

    def note(self) -> None:
        """Write the card."""
        self.card = replace(self.card, result=adapter_digest(self._backbone, *AGENTS))
        self.card.write(self._out)

    # ---- inner

    def _drawn(self, at: int) -> list[Example]:
        """Return the weak memories of a step; both agents of a turn play about the same ones."""
        rng = np.random.default_rng([self._config.seed, at // len(TURNS)])
        most = self._config.accumulation
        places = rng.choice(len(self._examples), most, replace=len(self._examples) < most)
        return [self._examples[place] for place in places]

    def _learn(self, agent: AgentName, played: Sequence[Played], temperature: float) -> float:
        """Take one step of an agent (Eq. 11), and return the loss."""
        torch, total = self._torch, 0.0
        self._optimizer.zero_grad(set_to_none=True)
        for group in played:
            advantage = group_advantages([one.reward for one in group.rollouts])
            if advantage.any():
                # a group at a time: the graph of one is all that a small machine holds
                loss = self._group_loss(agent, group, advantage, temperature) / len(played)
                loss.backward()
                total += float(loss.detach())
        if any(one.grad is not None for one in self._own[agent]):
            torch.nn.utils.clip_grad_norm_(self._own[agent], self._config.gradient_norm)
            # the other adapter has no gradient, and AdamW leaves it alone
            self._optimizer.step()
        return total

    def _group_loss(self, agent: AgentName, group: Played, advantage: FloatArray, temperature: float) -> Any:
        logs = self._backbone.log_probabilities(
            agent,
            [group.prompt] * len(group.rollouts),
            [one.tokens for one in group.rollouts],
            temperature=temperature,
        )
        return group_loss(logs, self._torch.tensor(advantage, dtype=logs.dtype, device=logs.device))


def _longer(
    curves: Mapping[str, Sequence[float | None]], at: int, agent: AgentName, told: Mapping[str, float]
) -> dict[str, list[float | None]]:
    """Return the curves with one more step, in which one agent has values."""
    names = [f"{one} {what}" for what in told for one in TURNS]
    new = {f"{agent} {what}": value for what, value in told.items()}
    made = {name: [*curves.get(name, ()), new.get(name)] for name in names}
    return {"step": [*curves.get("step", ()), float(at + 1)], **made}


def _seed(seed: int, step: int) -> int:
    """Return a seed of torch for a step, the same however often training is resumed."""
    return int(np.random.default_rng([seed, step, 1]).integers(2**31))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
