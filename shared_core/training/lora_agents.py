"""The three agents of a dream on one backbone with three adapters.

Source: MemDream section 3.2: the agents share one model, each with a LoRA adapter of its own [S].
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared_core.agents.asking import Asker, AskingLimits, AskingReport
from shared_core.agents.llm_agents import LlmAgents
from shared_core.agents.llm_analyst import LlmAnalyst
from shared_core.agents.llm_consolidator import LlmConsolidator
from shared_core.agents.llm_dreamer import LlmDreamer
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.chat import ChatMessage, ChatReply, cut_at_stop
from shared_core.errors import ChatContextError, ChatError

if TYPE_CHECKING:
    from shared_core.training.backbone import Backbone, Rollout
    from shared_core.training.dataset_forms import AgentName

LIMITS = AskingLimits(reply_tokens=256, seconds=None)
"""Trained agents say only what their form has; a model of one's own takes the time that it takes [O]."""


@dataclass(frozen=True)
class AdapterChat:
    """One agent's adapter as a chat model that answers many prompts at once; satisfies ``BatchChatModel``."""

    backbone: Backbone
    agent: AgentName

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> ChatReply:
        """Return the reply; its form is what the adapter was trained to write, a schema is not read.

        Raises:
            ChatContextError: The messages and ``max_tokens`` do not fit the model.
            ChatError: The model failed.
        """
        (reply,) = self.complete_all([messages], max_tokens=max_tokens, temperature=temperature)
        if isinstance(reply, Exception):
            raise reply
        return ChatReply(
            text=cut_at_stop(reply.text, stop),
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )

    async def acomplete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """``complete`` in a thread."""
        return await asyncio.to_thread(
            self.complete, messages, max_tokens=max_tokens, temperature=temperature, stop=stop, schema=schema
        )

    def complete_all(
        self, messages: Sequence[Sequence[ChatMessage]], *, max_tokens: int = 512, temperature: float = 0.0
    ) -> list[ChatReply | Exception]:
        """Return the reply to each conversation; a ``ChatContextError`` for one that does not fit."""
        room = getattr(self.backbone.model.config, "max_position_embeddings", None)
        replies: list[ChatReply | Exception] = [
            ChatContextError(f"the messages and {max_tokens} tokens do not fit the model's {room}")
        ] * len(messages)
        fitting = [
            at
            for at, one in enumerate(messages)
            if room is None or len(self.backbone.encode(one)) + max_tokens <= room
        ]
        try:
            made = self.backbone.generate(
                self.agent, [messages[at] for at in fitting], max_tokens=max_tokens, temperature=temperature
            )
        except (RuntimeError, ValueError) as error:
            raise ChatError(f"the model failed: {error}") from error
        for at, rollout in zip(fitting, made, strict=True):
            replies[at] = _reply(rollout)
        return replies


def lora_agents(backbone: Backbone, limits: AskingLimits | None = None, *, gamma: float = 0.2) -> LlmAgents:
    """Return the agents of one dream, each with its adapter; what an adapter cannot do, the rules do.

    ::

        backbone = Backbone.load("smollm2", adapters=Path("adapters"))
        DreamCycle.with_agents(bank, lora_agents(backbone)).run()

    Args:
        backbone: With trained adapters: new ones answer like the bare model, which fits no form.
        limits: What the dream may spend; default: ``LIMITS``.
        gamma: Factor of Eq. 5, for the rules' plans.
    """
    report = AskingReport()

    def asker(agent: AgentName) -> Asker:
        return Asker(AdapterChat(backbone, agent), limits or LIMITS, report)

    return LlmAgents(
        LlmDreamer(asker("dreamer"), brief=True),
        LlmAnalyst(asker("analyst"), brief=True),
        LlmConsolidator(asker("consolidator"), RuleConsolidator(gamma), brief=True),
        report,
    )


def _reply(rollout: Rollout) -> ChatReply:
    return ChatReply(
        text=rollout.text,
        prompt_tokens=rollout.prompt_tokens,
        completion_tokens=len(rollout.tokens),
    )
