"""Supervised fine-tuning: an agent's adapter learns to reply as its teacher did.

Only the tokens of the reply, with its end mark, carry loss; those of the prompt carry none. What would be too
long is left out and counted, because a reply that is cut off teaches never to end.

Source: MemDream appendix D: learning rate 2e-4, batch 4, 3 epochs, cosine schedule [S]; the longest example
and that an epoch's order is fixed by the seed are ours [O]. The trainer is TRL's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.config import checked_positive, checked_whole
from shared_core.errors import ConfigError
from shared_core.training.backbone_loading import needed
from shared_core.training.dataset import messages_of
from shared_core.training.fine_tuning import Run, adapter_digest, arguments, put_order, trainer_class
from shared_core.training.run_card import RunCard, installed_versions

if TYPE_CHECKING:
    from shared_core.training.backbone import Backbone
    from shared_core.training.dataset import AgentName, Example, Signal, TrainingSet
    from shared_core.types import Progress

IGNORED = -100
"""Label of a token that carries no loss."""
CURVES = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    "learning_rate": "learning rate",
    "mean_token_accuracy": "token accuracy",
}


@dataclass(frozen=True, kw_only=True)
class SftConfig:
    """How an adapter is fine-tuned.

    Raises:
        ConfigError: A value is outside its range.
    """

    learning_rate: float = 2e-4
    """[S]."""
    batch: int = 4
    """Examples per step [S]."""
    epochs: int = 3
    """[S]."""
    micro_batch: int = 1
    """Examples per forward pass, a divisor of ``batch``; changes memory and speed, not what is learnt [O]."""
    signal: Signal | None = None
    """Where the cases come from; None for all [O]."""
    max_examples: int | None = None
    """Drawn evenly where there are more [O]."""
    longest: int = 2048
    """Tokens of prompt and reply; longer examples are left out [O]."""
    gradient_norm: float = 1.0
    """[O: the paper gives one for GRPO]."""
    save_every: int = 25
    """Steps between checkpoints [O]."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("batch", "epochs", "micro_batch", "longest", "save_every"):
            checked_whole(name, getattr(self, name))
        checked_whole("seed", self.seed, 0)
        if self.max_examples is not None:
            checked_whole("max_examples", self.max_examples)
        for name in ("learning_rate", "gradient_norm"):
            checked_positive(name, getattr(self, name))
        if self.batch % self.micro_batch:
            raise ConfigError(f"micro_batch={self.micro_batch} must divide batch={self.batch}")


def train_sft(
    backbone: Backbone,
    training_set: TrainingSet,
    agent: AgentName,
    out: Path,
    config: SftConfig | None = None,
    *,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
) -> RunCard:
    """Fine-tune an agent's adapter on a teacher's replies; the other adapters and the model stay as they are.

    A run that was stopped or killed goes on from its last checkpoint when it is called again, and ends where
    it would have ended; a finished one is not repeated, and its adapter is loaded.

    Args:
        backbone: Its adapter is changed in place.
        training_set: Its examples for training that have a completion are used.
        agent: Whose adapter.
        out: Folder of this run: ``card.json``, the adapter in ``<agent>/``; ``checkpoints`` until it ends.
        config: Options.
        stop: Asked after every step; when true, the run ends with a checkpoint.
        progress: Called as ``progress("sft", step, steps)``.

    Returns:
        The card, with ``finished`` and the curves.

    Raises:
        ConfigError: There is no example, ``out`` holds another run, or the training diverged.
        MissingExtraError: The extra ``train`` is not installed.
    """
    config = config or SftConfig()
    needed("trl")
    taught = [one for one in training_set.of(agent, "train", config.signal) if one.completion]
    rows = [row for one in taught if len((row := tokens_of(backbone, one))["input_ids"]) <= config.longest]
    long = len(taught) - len(rows)
    if not rows:
        raise ConfigError(
            f"the set has no example to fine-tune the {agent} with: {len(taught)} have a completion, {long} "
            f"of them longer than {config.longest} tokens"
        )
    rows = _drawn(rows, config)
    card = RunCard(
        kind="sft",
        agents=(agent,),
        model=backbone.name,
        data=training_set.digest,
        settings={**asdict(config), "lora": asdict(backbone.settings)},
        steps=math.ceil(len(rows) * config.epochs / config.batch),
        start=adapter_digest(backbone, agent),
        counts={"used": len(rows), "too long": long},
        versions=installed_versions(),
    )
    run = Run(backbone=backbone, agent=agent, out=out, card=card, names=CURVES, stop=stop, progress=progress)
    return run.train(lambda: sft_trainer(backbone, rows, agent, out, config, card.steps))


def tokens_of(backbone: Backbone, example: Example) -> dict[str, list[int]]:
    """Return ``input_ids`` and ``labels`` of an example: prompt, reply and end mark."""
    prompt = backbone.encode(messages_of(example))
    tokenizer = backbone.tokenizer
    reply = [*tokenizer(example.completion, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return {"input_ids": [*prompt, *reply], "labels": [IGNORED] * len(prompt) + reply}


def sft_trainer(
    backbone: Backbone,
    rows: Sequence[dict[str, list[int]]],
    agent: AgentName,
    out: Path,
    config: SftConfig,
    steps: int,
) -> Any:
    """Return TRL's trainer for rows of ``tokens_of``; ``train_sft`` runs it."""
    trl, datasets = needed("trl"), needed("datasets")
    order = put_order(len(rows), config.epochs, config.seed)
    return trainer_class("SFTTrainer", backbone, agent)(
        model=backbone.model,
        args=trl.SFTConfig(
            **arguments(out, steps=steps, save_every=config.save_every, seed=config.seed),
            learning_rate=config.learning_rate,
            lr_scheduler_type="cosine",
            max_grad_norm=config.gradient_norm,
            weight_decay=0.0,
            per_device_train_batch_size=config.micro_batch,
            gradient_accumulation_steps=config.batch // config.micro_batch,
            train_sampling_strategy="sequential",
            max_length=None,
        ),
        train_dataset=datasets.Dataset.from_list([rows[at] for at in order]),
        processing_class=backbone.tokenizer,
    )


# ---- inner


def _drawn(rows: list[dict[str, list[int]]], config: SftConfig) -> list[dict[str, list[int]]]:
    if config.max_examples is None or len(rows) <= config.max_examples:
        return rows
    rng = np.random.default_rng([config.seed, 4])
    return [rows[at] for at in sorted(rng.choice(len(rows), config.max_examples, replace=False))]
