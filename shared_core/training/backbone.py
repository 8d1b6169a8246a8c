"""One causal language model with three LoRA adapters, one for each agent of a dream.

The weights of the model stay as they are; each agent has an adapter of its own on the attention projections,
and ``use`` switches between them. Runs on a CPU in float32 and on CUDA in bfloat16, or there in 8 bits.

Source: MemDream section 3.3 and Table 7 (rank 16, alpha 32, dropout 0.05, q, k, v, o; one backbone, three
adapters) [S]; the packaged model, and that replies keep their tokens, are ours [O].
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shared_core.errors import ConfigError
from shared_core.training.backbone_loading import load_model, load_tokenizer, torch_module
from shared_core.training.dataset import AGENTS
from shared_core.training.dataset_forms import AgentName

if TYPE_CHECKING:
    from torch import Tensor

    from shared_core.chat import ChatMessage

Quantize = Literal["none", "8bit"]
WEIGHTS = "adapter_model.safetensors"
BATCH = 8
"""Replies that are written at once; longer ones cost memory, not time, on a CPU [O]."""


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Of every adapter (Table 7).

    Raises:
        ConfigError: A value is outside its range.
    """

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.05
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.rank < 1 or self.alpha < 1 or not self.modules:
            raise ConfigError(
                f"rank={self.rank}, alpha={self.alpha} and modules={self.modules} must be given"
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} is outside [0, 1)")


@dataclass(frozen=True)
class Rollout:
    """One reply that a model wrote."""

    text: str
    tokens: tuple[int, ...]
    """As they were drawn, with the end mark where the model set it: a text read back may have others."""
    prompt_tokens: int


@dataclass(eq=False)
class Backbone:
    """A model, its tokenizer and its adapters; made by ``load``.

    ::

        backbone = Backbone.load("smollm2", adapters=Path("adapters"))
        cycle = DreamCycle.with_agents(bank, lora_agents(backbone))
    """

    name: str
    """What ``load`` was given."""
    model: Any
    """A ``peft.PeftModel``."""
    tokenizer: Any
    settings: LoraSettings
    _one_at_a_time: Any = field(default_factory=threading.RLock, repr=False)

    @classmethod
    def load(
        cls,
        model: str,
        *,
        adapters: Path | None = None,
        quantize: Quantize = "none",
        lora: LoraSettings | None = None,
        seed: int = 0,
    ) -> Backbone:
        """Load a model, and adapters that were saved, or new ones that change nothing yet.

        Args:
            model: ``smollm2`` (packaged, dequantised to float32), or a folder, or a name that transformers
                knows.
            adapters: A folder of ``save``; an agent that it lacks gets a new adapter.
            quantize: ``8bit`` loads the model through bitsandbytes, on CUDA only.
            lora: Of new adapters.
            seed: Of new adapters.

        Raises:
            ConfigError: The model or an adapter cannot be loaded, or 8 bits are not to be had here.
            MissingExtraError: The extra ``train``, or for smollm2 ``lm``, is not installed.
        """
        torch = torch_module()
        settings = lora or LoraSettings()
        base = load_model(model, quantize)
        tokenizer = load_tokenizer(model)
        with torch.random.fork_rng(), warnings.catch_warnings():
            # what one model library tells another is nothing that a user could act on
            warnings.simplefilter("ignore", FutureWarning)
            torch.manual_seed(seed)
            peft_model = _with_adapters(base, adapters, settings)
        made = cls(model, peft_model, tokenizer, settings)
        made.use("dreamer")
        made.model.eval()
        return made

    @property
    def device(self) -> Any:
        """Where the model is."""
        return next(self.model.parameters()).device

    def use(self, agent: AgentName) -> None:
        """Switch to an agent's adapter, the only one that can then be trained."""
        self.model.set_adapter(agent)

    def trainable(self, agent: AgentName) -> list[tuple[str, Any]]:
        """Return names and parameters of an agent's adapter."""
        return [(name, value) for name, value in self.model.named_parameters() if f".{agent}." in name]

    def encode(self, prompt: Sequence[ChatMessage]) -> list[int]:
        """Return the tokens of a prompt, up to where the reply begins."""
        messages = [{"role": message.role, "content": _encodable(message.content)} for message in prompt]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def generate(
        self,
        agent: AgentName | None,
        prompts: Sequence[Sequence[ChatMessage]],
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        samples: int = 1,
        seed: int | None = None,
    ) -> list[Rollout]:
        """Write replies, prompts of like length together.

        Args:
            agent: Whose adapter; None for the model without any.
            prompts: Conversations.
            max_tokens: Of one reply.
            temperature: 0 for the likeliest reply.
            samples: Replies per prompt.
            seed: Of the draws; None goes on with torch's own state.

        Returns:
            ``len(prompts) * samples`` replies, those to one prompt beside each other.
        """
        torch = torch_module()
        encoded = [tokens for tokens in map(self.encode, prompts) for _ in range(samples)]
        order = sorted(range(len(encoded)), key=lambda at: len(encoded[at]))
        found: dict[int, Rollout] = {}
        seeded = nullcontext() if seed is None else torch.random.fork_rng()
        with self._one_at_a_time, self._writing(agent), seeded:
            if seed is not None:
                torch.manual_seed(seed)
            for start in range(0, len(order), BATCH):
                part = order[start : start + BATCH]
                replies = self._written([encoded[at] for at in part], max_tokens, temperature)
                found.update(zip(part, replies, strict=True))
        return [found[at] for at in range(len(encoded))]

    def log_probabilities(
        self,
        agent: AgentName,
        prompts: Sequence[Sequence[ChatMessage]],
        replies: Sequence[Sequence[int]],
        *,
        temperature: float = 1.0,
    ) -> Tensor:
        """Return log pi(reply | prompt), the sum over a reply's tokens, shape (B,); differentiable.

        Args:
            agent: Whose adapter; it stays in use.
            prompts: B conversations.
            replies: Their tokens (``Rollout.tokens``), each at least one.
            temperature: At which they were drawn.
        """
        torch = torch_module()
        self.use(agent)
        longest = max(len(reply) for reply in replies)
        encoded = [self.encode(prompt) for prompt in prompts]
        pad = self.tokenizer.pad_token_id
        ahead = [[pad] * (max(map(len, encoded)) - len(prompt)) for prompt in encoded]
        behind = [[pad] * (longest - len(reply)) for reply in replies]
        rows = [
            [*a, *p, *r, *b] for a, p, r, b in zip(ahead, encoded, map(list, replies), behind, strict=True)
        ]
        seen = [
            [0] * len(a) + [1] * (len(p) + len(r)) + [0] * len(b)
            for a, p, r, b in zip(ahead, encoded, replies, behind, strict=True)
        ]
        tokens, mask = (torch.tensor(one, device=self.device) for one in (rows, seen))
        made = self.model(input_ids=tokens, attention_mask=mask, logits_to_keep=longest + 1)
        logs = torch.log_softmax(made.logits[:, :-1].float() / temperature, dim=-1)
        drawn = tokens[:, -longest:]
        each = logs.gather(2, drawn.unsqueeze(2)).squeeze(2)
        summed: Tensor = (each * mask[:, -longest:]).sum(dim=1)
        return summed

    def save(self, folder: Path, agents: Sequence[AgentName] = AGENTS) -> None:
        """Write adapters as ``folder/<agent>/adapter_model.safetensors``, which peft can load."""
        for agent in agents:
            self.save_weights(agent, folder / agent)
            config = copy(self.model.peft_config[agent])
            config.inference_mode = True
            config.save_pretrained(str(folder / agent))

    def save_weights(self, agent: AgentName, folder: Path) -> None:
        """Write the numbers of an adapter as ``folder/adapter_model.safetensors``."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        weights = get_peft_model_state_dict(self.model, adapter_name=agent)
        save_file({name: one.detach().cpu().contiguous() for name, one in weights.items()}, folder / WEIGHTS)

    def load_adapter(self, agent: AgentName, folder: Path) -> None:
        """Put a saved adapter in an agent's place.

        Args:
            agent: Whose.
            folder: With ``adapter_model.safetensors``.

        Raises:
            ConfigError: The folder holds none that fits.
        """
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        weights = folder / WEIGHTS
        try:
            result: Any = set_peft_model_state_dict(self.model, load_file(weights), adapter_name=agent)
        except Exception as error:
            raise ConfigError(f"{weights} is no adapter for {self.name}: {error}") from error
        if strange := result.unexpected_keys:
            raise ConfigError(f"{weights} is no adapter for {self.name}: it has {strange[0]}")

    # ---- inner

    @contextmanager
    def _writing(self, agent: AgentName | None) -> Iterator[None]:
        training = self.model.training
        self.model.eval()
        try:
            if agent is None:
                with self.model.disable_adapter():
                    yield
            else:
                self.use(agent)
                yield
        finally:
            self.model.train(training)

    def _written(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, temperature: float
    ) -> list[Rollout]:
        torch = torch_module()
        longest, pad = max(map(len, prompts)), self.tokenizer.pad_token_id
        rows = [[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        drawing: Mapping[str, Any] = (
            {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
            if temperature > 0
            else {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
        )
        with torch.no_grad():
            made = self.model.generate(
                input_ids=torch.tensor(rows, device=self.device),
                attention_mask=torch.tensor(mask, device=self.device),
                max_new_tokens=max_tokens,
                pad_token_id=pad,
                eos_token_id=self.tokenizer.eos_token_id,
                **drawing,
            )
        return [
            self._rollout(reply, len(prompt))
            for reply, prompt in zip(made[:, longest:].tolist(), prompts, strict=True)
        ]

    def _rollout(self, reply: list[int], prompt_tokens: int) -> Rollout:
        end = self.tokenizer.eos_token_id
        tokens = reply[: reply.index(end) + 1] if end in reply else reply
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return Rollout(text, tuple(tokens), prompt_tokens)


def _with_adapters(base: Any, adapters: Path | None, settings: LoraSettings) -> Any:
    from peft import LoraConfig, PeftModel, get_peft_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.modules),
        task_type="CAUSAL_LM",
    )
    made: Any = None
    for agent in AGENTS:
        saved = None if adapters is None else adapters / agent
        known = saved is not None and (saved / "adapter_config.json").is_file()
        try:
            if made is None:
                made = (
                    PeftModel.from_pretrained(base, str(saved), adapter_name=agent, is_trainable=True)
                    if known
                    else get_peft_model(base, config, adapter_name=agent)
                )
            elif known:
                made.load_adapter(str(saved), adapter_name=agent, is_trainable=True)
            else:
                made.add_adapter(agent, config)
        except (ValueError, RuntimeError, OSError, KeyError) as error:
            raise ConfigError(f"the adapter {saved or agent} does not fit the model: {error}") from error
    if adapters is not None and not any((adapters / agent).is_dir() for agent in AGENTS):
        raise ConfigError(f"{adapters} has no adapter: train one with dream train sft")
    return made


def _encodable(text: str) -> str:
    # no tokenizer accepts lone surrogates
    return text.encode("utf-8", "replace").decode()
