"""The three agents of a dream on one chat model."""

from __future__ import annotations

from dataclasses import dataclass

from shared_core.agents.asking import Asker, AskingLimits, AskingReport
from shared_core.agents.llm_analyst import LlmAnalyst
from shared_core.agents.llm_consolidator import LlmConsolidator
from shared_core.agents.llm_dreamer import LlmDreamer
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.chat import ChatModel


@dataclass(frozen=True)
class LlmAgents:
    """Dreamer, Analyst and Consolidator that share one model and one budget."""

    dreamer: LlmDreamer
    analyst: LlmAnalyst
    consolidator: LlmConsolidator
    report: AskingReport
    """What was asked, and every fallback with its reason; grows while the agents work."""


def llm_agents(model: ChatModel, limits: AskingLimits | None = None, *, gamma: float = 0.2) -> LlmAgents:
    """Return the agents for one dream.

    ::

        agents = llm_agents(langchain_dream.as_chat(ChatOpenAI(model="...", temperature=0)))

    Args:
        model: Any chat model of the core's protocol.
        limits: What the dream may spend.
        gamma: Factor of Eq. 5, for the rules' plans.
    """
    asker = Asker(model, limits)
    return LlmAgents(
        LlmDreamer(asker), LlmAnalyst(asker), LlmConsolidator(asker, RuleConsolidator(gamma)), asker.report
    )
