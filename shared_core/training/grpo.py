"""Group relative policy optimization of one agent's adapter (Eq. 11), by TRL's trainer.

A step draws N replies to each of several prompts, scores them, and moves the adapter by -mean(A * log pi).
TRL is set so that this is Eq. 11 to the letter and not a variant of it:

* advantages are ``group_advantages`` of the rewards, handed over as rewards that TRL does not scale again (it
  would by the sample's deviation + 1e-4);
* ``luspo`` with weights per sequence sums log pi over a reply's tokens and averages over replies. TRL's other
  losses divide by a reply's own length (``grpo``), by all tokens of a batch (``dapo``, ``bnpo``) or by the
  longest length allowed (``dr_grpo``: Eq. 11 but for a constant factor);
* there is no KL term, and replies are drawn anew for every step, so that nothing is clipped;
* dropout is off: TRL would draw with one mask and learn with another.

Exploration [O]: replies are drawn at temperature t(1 + epsilon), which falls to t [S: 0.2, decaying]. Hidden
states are divided by it before the language head, for drawing and learning alike, so that what draws is what
learns. (TRL keeps the temperature that it was made with; to change its attribute changes neither.)

Source: MemDream section 3.3, Eq. 11 and Table 8 [S]; what is marked [O] is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from shared_core.config import checked_positive, checked_range, checked_whole
from shared_core.errors import ConfigError
from shared_core.training.advantages import drawing_temperature, group_advantages
from shared_core.training.backbone_loading import needed, torch_module
from shared_core.training.dataset import messages_of
from shared_core.training.fine_tuning import Run, adapter_digest, arguments, put_order, trainer_class
from shared_core.training.held_out import REPLY_TOKENS
from shared_core.training.run_card import RunCard, installed_versions

if TYPE_CHECKING:
    from shared_core.training.backbone import Backbone
    from shared_core.training.dataset import AgentName, Example, Signal, TrainingSet
    from shared_core.types import Progress

NO_LESSON = 1e-6
"""Advantages below this teach nothing: their replies are not run through the model again."""
CURVES = {
    "scored/reward": "reward",
    "scored/deviation": "reward deviation",
    "scored/valid": "valid",
    "scored/temperature": "temperature",
    "completions/mean_length": "reply tokens",
    "completions/clipped_ratio": "cut off",
    "entropy": "entropy",
    "grad_norm": "gradient norm",
    "learning_rate": "learning rate",
}
TERM = "term/"


class Scored(Protocol):
    """What a reply is worth."""

    @property
    def reward(self) -> float:
        """Finite."""

    @property
    def terms(self) -> Mapping[str, float]:
        """Of the reward, by name."""

    @property
    def valid(self) -> bool:
        """Whether the reply can be used."""


ScoreGroup = Callable[["Example", Sequence[str]], Sequence[Scored]]
"""Scores the replies of one group to one example, in their order."""


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """How an adapter is trained.

    Raises:
        ConfigError: A value is outside its range.
    """

    group: int = 4
    """N of Eq. 11: replies drawn per prompt and step [S]."""
    accumulation: int = 4
    """Prompts per step [S: gradient accumulation 4]."""
    steps: int = 500
    """[S]."""
    learning_rate: float = 1e-3
    """[S]."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Of the learning rate [O: the paper names none for this stage]."""
    weight_decay: float = 0.01
    """[S]."""
    gradient_norm: float = 1.0
    """[S]."""
    temperature: float = 1.0
    """Of the policy: replies are drawn at it, and it is learnt at it. A small model copies a long text to the
    letter only below 1 [O]."""
    exploration: float = 0.2
    """epsilon, falling to 0 [S]."""
    signal: Signal | None = None
    """Where the cases come from; None for all [O]."""
    top: float = 1.0
    """Share of the most discriminative cases; the paper compares 0.3 and 0.5."""
    max_tokens: int | None = None
    """Of one reply; None for what the agent's form needs [O]."""
    longest: int = 2048
    """Tokens of prompt and reply; longer prompts are left out [O]."""
    micro_batch: int = 1
    """Replies per forward pass, a divisor of ``group * accumulation``; changes memory and speed only [O]."""
    save_every: int = 10
    """Steps between checkpoints [O]."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        checked_whole("group", self.group, 2)
        checked_whole("seed", self.seed, 0)
        for name in ("accumulation", "steps", "longest", "micro_batch", "save_every"):
            checked_whole(name, getattr(self, name))
        if self.max_tokens is not None:
            checked_whole("max_tokens", self.max_tokens)
        for name in ("learning_rate", "gradient_norm", "temperature"):
            checked_positive(name, getattr(self, name))
        for name in ("weight_decay", "exploration"):
            checked_range(name, getattr(self, name), 0)
        if not isinstance(self.schedule, str) or self.schedule not in {"constant", "linear", "cosine"}:
            raise ConfigError(f"schedule={self.schedule!r} is none of constant, linear, cosine")
        if self.replies % self.micro_batch:
            raise ConfigError(
                f"micro_batch={self.micro_batch} must divide group * accumulation={self.replies}"
            )

    @property
    def replies(self) -> int:
        """Drawn per step."""
        return self.group * self.accumulation


def train_grpo(
    backbone: Backbone,
    training_set: TrainingSet,
    agent: AgentName,
    out: Path,
    score: ScoreGroup,
    config: GrpoConfig | None = None,
    *,
    rewards: Mapping[str, Any] | None = None,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> RunCard:
    """Train an agent's adapter on the rewards of its own replies; all other weights stay as they are.

    Stopping, resuming and finished runs: see ``train_sft``.

    Args:
        backbone: Its adapter is changed in place.
        training_set: Its examples for training are asked; their completions are not looked at.
        agent: Whose adapter.
        out: Folder of this run.
        score: For example ``practices.score_group``.
        config: Options.
        rewards: What the score depends on; told in the card, and part of what makes a run the same.
        stop: Asked after every step; when true, the run ends with a checkpoint.
        progress: Called as ``progress("grpo", step, steps)``.

    Returns:
        The card: ``finished``, and curves of the mean reward, its terms and the share of usable replies.

    Raises:
        ConfigError: There is no example, ``out`` holds another run, or the training diverged.
        MissingExtraError: The extra ``train`` is not installed.
    """
    config = config or GrpoConfig()
    needed("trl")
    tokens = config.max_tokens or REPLY_TOKENS[agent]
    found = training_set.of(agent, "train", config.signal, config.top)
    examples = [one for one in found if len(backbone.encode(messages_of(one))) + tokens <= config.longest]
    long = len(found) - len(examples)
    if not examples:
        raise ConfigError(
            f"the set has no example to train the {agent} on: {len(found)} are for training, {long} of them "
            f"longer than {config.longest} tokens with a reply of {tokens}"
        )
    card = RunCard(
        kind="grpo",
        agents=(agent,),
        model=backbone.name,
        data=training_set.digest,
        settings={
            **asdict(config),
            "max_tokens": tokens,
            "lora": asdict(backbone.settings),
            "rewards": dict(rewards or {}),
        },
        steps=config.steps,
        start=adapter_digest(backbone, agent),
        counts={"used": len(examples), "too long": long},
        versions=installed_versions(),
    )
    run = Run(
        backbone=backbone,
        agent=agent,
        out=out,
        card=card,
        names=CURVES,
        terms=TERM,
        stop=stop,
        progress=progress,
    )
    with _without_dropout(backbone.model), warmed(backbone.model) as warmth:
        return run.train(lambda: grpo_trainer(backbone, examples, agent, out, score, config, warmth))


def grpo_trainer(
    backbone: Backbone,
    examples: Sequence[Example],
    agent: AgentName,
    out: Path,
    score: ScoreGroup,
    config: GrpoConfig,
    warmth: Warmth,
) -> Any:
    """Return TRL's trainer; ``train_grpo`` runs it."""
    trl, datasets = needed("trl"), needed("datasets")
    rounds = math.ceil(config.steps * config.accumulation / len(examples))
    order = put_order(len(examples), rounds, config.seed)[: config.steps * config.accumulation]
    trainer = trainer_class("GRPOTrainer", backbone, agent, SkipsNoLesson)(
        model=backbone.model,
        reward_funcs=_rewards(backbone, examples, score, config, warmth),
        args=trl.GRPOConfig(
            **arguments(out, steps=config.steps, save_every=config.save_every, seed=config.seed),
            learning_rate=config.learning_rate,
            lr_scheduler_type=config.schedule,
            weight_decay=config.weight_decay,
            max_grad_norm=config.gradient_norm,
            per_device_train_batch_size=config.micro_batch,
            gradient_accumulation_steps=config.replies // config.micro_batch,
            generation_batch_size=config.replies,
            num_generations=config.group,
            num_iterations=1,
            max_completion_length=config.max_tokens or REPLY_TOKENS[agent],
            beta=0.0,
            loss_type="luspo",
            importance_sampling_level="sequence",
            scale_rewards="none",
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            shuffle_dataset=False,
        ),
        train_dataset=datasets.Dataset.from_list(
            [{"prompt": [dict(one) for one in examples[at].prompt], "row": at} for at in order]
        ),
        processing_class=backbone.tokenizer,
    )
    cooling = type("_Cooling", (Cooling, needed("transformers").TrainerCallback), {})
    trainer.add_callback(cooling(warmth, config.temperature, config.exploration))
    return trainer


@dataclass
class Warmth:
    """The temperature that replies are drawn at, and learnt at."""

    temperature: float = 1.0


@dataclass
class Cooling:
    """Mixed into a callback of transformers: t(1 + epsilon) at the first step, falling linearly towards t."""

    warmth: Warmth
    temperature: float
    exploration: float

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Set the temperature of a step, replies and loss."""
        done = state.global_step / state.max_steps
        self.warmth.temperature = drawing_temperature(self.temperature, self.exploration, done)


class SkipsNoLesson:
    """Mixed into a trainer: replies without advantage have no gradient, and are not run through the model."""

    model: Any

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the loss of some replies."""
        if float(inputs["advantages"].abs().max()) < NO_LESSON:
            return sum(one.sum() * 0.0 for one in self.model.parameters() if one.requires_grad)
        return super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[misc]


@contextmanager
def warmed(model: Any) -> Iterator[Warmth]:
    """Divide the hidden states before the language head by a temperature that can be set."""
    warmth = Warmth()

    def divide(_module: Any, _inputs: Any, made: Any) -> Any:
        if warmth.temperature != 1.0:
            made.last_hidden_state = made.last_hidden_state / warmth.temperature
        return made

    # the transformer without its language head, which TRL's loss and generate both call
    handle = model.get_base_model().base_model.register_forward_hook(divide)
    try:
        yield warmth
    finally:
        handle.remove()


# ---- inner


def _rewards(
    backbone: Backbone, examples: Sequence[Example], score: ScoreGroup, config: GrpoConfig, warmth: Warmth
) -> Callable[..., list[float]]:
    """Return what TRL calls for rewards; it gives advantages, from which TRL takes off a mean of 0."""

    def advantages(*, completion_ids: Any, row: list[int], log_metric: Any, **_: Any) -> list[float]:
        found: list[float] = []
        for start in range(0, len(row), config.group):
            tokens = completion_ids[start : start + config.group]
            replies = [backbone.tokenizer.decode(one, skip_special_tokens=True) for one in tokens]
            scores = score(examples[row[start]], replies)
            if len(scores) != len(replies):
                raise ConfigError(
                    f"score gave {len(scores)} scores for {len(replies)} replies: give one each"
                )
            values = [one.reward for one in scores]
            found.extend(group_advantages(values).tolist())
            log_metric("scored/reward", float(np.mean(values)))
            log_metric("scored/deviation", float(np.std(values)))
            for one in scores:
                log_metric("scored/valid", float(one.valid))
                for name, value in one.terms.items():
                    log_metric(f"{TERM}{name}", float(value))
        log_metric("scored/temperature", warmth.temperature)
        return found

    return advantages


@contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    dropout = torch_module().nn.Dropout
    before = [(one, one.p) for one in model.modules() if isinstance(one, dropout)]
    for one, _ in before:
        one.p = 0.0
    try:
        yield
    finally:
        for one, share in before:
            one.p = share
