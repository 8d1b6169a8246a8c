"""What SFT and GRPO share: a trainer of TRL that touches one adapter, is silent, and resumes.

The trainer keeps checkpoints under ``checkpoints`` in the run's folder: the adapter as safetensors, the state
of optimizer and random numbers as torch writes them. They are removed when the run is finished. A run that
fails leaves the adapter as it found it.

Source: none, ours [O]; the trainer is TRL's.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.errors import ConfigError
from shared_core.training.backbone_loading import needed, torch_module
from shared_core.training.run_card import RunCard, curves_of, earlier_part

if TYPE_CHECKING:
    from shared_core.training.backbone import Backbone
    from shared_core.training.dataset import AgentName
    from shared_core.types import Progress

CHECKPOINTS = "checkpoints"


class OneAdapter:
    """Mixed into a trainer of TRL: checkpoints have the trained adapter only, and nothing is told to anyone.

    Trainer itself saves all adapters, and would put old ones in the place of those trained meanwhile.
    """

    backbone: Backbone
    agent: AgentName

    def _save(self, output_dir: str, state_dict: Any = None) -> None:  # noqa: ARG002
        """Write the adapter; called by Trainer."""
        check_finite(self.backbone, self.agent)
        self.backbone.save_weights(self.agent, Path(output_dir))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:  # noqa: ARG002
        """Read it back; called by Trainer."""
        self.backbone.load_adapter(self.agent, Path(resume_from_checkpoint))

    def _send_telemetry(self) -> None:
        """Tell nobody that a model is trained."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write none: the run has a card of its own."""


@dataclass
class Watch:
    """Mixed into a callback of transformers: tells progress, ends at a wish, keeps the card."""

    stage: str
    stop: Callable[[], bool] | None
    progress: Progress | None
    saved: Callable[[Any], None]
    """Called with the trainer's state when a checkpoint was written."""

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell a step; where it should stop, let it save first."""
        if self.progress is not None:
            self.progress(self.stage, state.global_step, state.max_steps)
        if self.stop is not None and self.stop():
            control.should_save = control.should_training_stop = True

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Keep the card."""
        self.saved(state)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a trainer."""

    backbone: Backbone
    agent: AgentName
    out: Path
    card: RunCard
    """As it is before the run."""
    names: Mapping[str, str]
    """Of the curves: in the card, by names in the trainer's log."""
    terms: str | None = None
    """Prefix in the log of further curves, which keep their names."""
    stop: Callable[[], bool] | None = None
    progress: Progress | None = None

    def train(self, trainer_of: Callable[[], Any]) -> RunCard:
        """Train, or go on, or return at once what was finished earlier; the adapter is then in the backbone.

        Args:
            trainer_of: Makes the trainer, with ``output_dir`` as ``arguments`` gives it.

        Raises:
            ConfigError: The folder holds another run, or cannot be written; or the training diverged.
        """
        earlier = earlier_part(self.out, self.card)
        if earlier is not None and earlier.finished:
            self.backbone.load_adapter(self.agent, self.out / self.agent)
            return earlier
        card = (
            self.card if earlier is None else replace(self.card, start=earlier.start, seconds=earlier.seconds)
        )
        began = time.perf_counter()

        def noted(state: Any) -> RunCard:
            return replace(
                card,
                done=state.global_step,
                result=adapter_digest(self.backbone, self.agent),
                curves=curves_of(state.log_history, self._names(state.log_history)),
                seconds=card.seconds + time.perf_counter() - began,
            )

        def saved(state: Any) -> None:
            # the last step is told when its adapter is in place: a finished run is not repeated
            if state.global_step < card.steps:
                noted(state).write(self.out)

        if earlier is None:
            card.write(self.out)
        elif earlier.done and last_checkpoint(self.out) is None:
            raise ConfigError(f"the checkpoints of the run in {self.out} are gone: give another folder")
        with _session(self.backbone, self.agent):
            trainer = trainer_of()
            watch = type("_Watch", (Watch, needed("transformers").TrainerCallback), {})
            trainer.add_callback(watch(self.card.kind, self.stop, self.progress, saved))
            trainer.remove_callback(needed("transformers").PrinterCallback)
            trainer.train(resume_from_checkpoint=last_checkpoint(self.out))
            check_finite(self.backbone, self.agent)
            if trainer.state.global_step >= card.steps:
                self.backbone.save(self.out, [self.agent])
            card = noted(trainer.state)
            card.write(self.out)
        if card.finished:
            shutil.rmtree(self.out / CHECKPOINTS, ignore_errors=True)
        return card

    def _names(self, history: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        if self.terms is None:
            return dict(self.names)
        more = sorted({name for entry in history for name in entry if name.startswith(self.terms)})
        return {**self.names, **{name: name for name in more}}


def arguments(out: Path, *, steps: int, save_every: int, seed: int) -> dict[str, Any]:
    """Return the arguments that every trainer here gets."""
    return {
        "output_dir": str(out / CHECKPOINTS),
        "max_steps": steps,
        "seed": seed,
        "save_strategy": "steps",
        "save_steps": save_every,
        "save_total_limit": 2,
        "logging_strategy": "steps",
        "logging_steps": 1,
        # else a loss that is no number is logged as the mean of those before
        "logging_nan_inf_filter": False,
        "optim": "adamw_torch",
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": not torch_module().cuda.is_available(),
        # the model has its number format; casting again would cost time and accuracy
        "bf16": False,
        "fp16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
    }


def trainer_class(name: str, backbone: Backbone, agent: AgentName, *mixins: type) -> Any:
    """Return a trainer class of TRL that touches one adapter.

    Raises:
        MissingExtraError: The extra ``train`` is not installed.
    """
    base = getattr(needed("trl"), name)
    return type(name, (*mixins, OneAdapter, base), {"backbone": backbone, "agent": agent})


def put_order(count: int, epochs: int, seed: int) -> list[int]:
    """Return examples' indices, every epoch in an order of its own; the same when a run is resumed."""
    rng = np.random.default_rng([seed, 3])
    return [int(at) for _ in range(epochs) for at in rng.permutation(count)]


def last_checkpoint(out: Path) -> str | None:
    """Return the latest checkpoint of a run that is complete, None where there is none."""
    found = [
        path for path in (out / CHECKPOINTS).glob("checkpoint-*") if (path / "trainer_state.json").exists()
    ]
    return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]))) if found else None


def adapter_digest(backbone: Backbone, *agents: AgentName) -> str:
    """Return the SHA-256 of adapters' weights."""
    found = hashlib.sha256()
    for agent in agents:
        for name, value in sorted(backbone.trainable(agent)):
            found.update(name.encode())
            found.update(value.detach().float().cpu().numpy().tobytes())
    return found.hexdigest()


def check_finite(backbone: Backbone, agent: AgentName) -> None:
    """Refuse an adapter with a weight that is no finite number.

    Raises:
        ConfigError: It has one.
    """
    if not all(bool(value.isfinite().all()) for _, value in backbone.trainable(agent)):
        raise ConfigError(f"the training of the {agent} diverged: lower the learning rate")


# ---- inner


@contextmanager
def _session(backbone: Backbone, agent: AgentName) -> Iterator[None]:
    """Let one adapter learn; put back forward functions, random numbers and, on failure, the adapter."""
    torch = torch_module()
    backbone.use(agent)
    before = {name: value.detach().clone() for name, value in backbone.trainable(agent)}
    asked = {name: value.requires_grad for name, value in backbone.model.named_parameters()}
    for name, value in backbone.model.named_parameters():
        value.requires_grad_(name in before)
    patched = [(one, vars(one).get("forward")) for one in (backbone.model, backbone.model.get_base_model())]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (Trainer seeds the global ones)
    try:
        with torch.random.fork_rng(), _quiet():
            yield
    except BaseException:
        with torch.no_grad():
            for name, value in backbone.trainable(agent):
                value.copy_(before[name])
        raise
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        for one, forward in patched:
            vars(one).pop("forward", None)
            if forward is not None:
                one.forward = forward
        for name, value in backbone.model.named_parameters():
            value.requires_grad_(asked[name])
            value.grad = None
        backbone.model.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out hints about options that are chosen here on purpose."""
    told = needed("transformers").utils.logging
    before = told.get_verbosity()
    told.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        told.set_verbosity(before)
