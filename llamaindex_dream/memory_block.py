"""``DreamMemoryBlock``: weighted long-term memory of a LlamaIndex ``Memory``, which dreams in the background.

Translates messages to pages and back to text; pages are written and dreams run by the core's scheduler.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr, ValidationError
from llama_index.core.memory.memory import BaseMemoryBlock

from llamaindex_dream.messages import pages_from_messages
from shared_core.errors import ConfigError, refusal_of

if TYPE_CHECKING:
    from shared_core import AssociativeRetriever, ConsolidationConfig, MemoryBank, Run
    from shared_core.retrieval.given_scores import GivenScores
    from shared_core.scheduling import DreamScheduler

RECENT_PAGES = 8
"""Pages that are not written yet and are recalled all the same, the newest ones."""


class DreamMemoryBlock(BaseMemoryBlock[str]):
    """A memory block over a memory bank.

    What ``Memory`` flushes becomes pages, one per message, embedded and written in the background; until then
    the newest are recalled as they are. What is recalled for the last message of the user is ranked by
    weight: forgotten memories do not come back. Dreams are requested by the scheduler's triggers.

    Example:
        .. code-block:: python

            block = DreamMemoryBlock(bank)
            memory = Memory.from_defaults(session_id="ada", token_limit=4000, memory_blocks=[block])
            agent = FunctionAgent(tools=tools, llm=llm)
            await agent.run("Where did I park?", memory=memory)

    Args:
        bank: With an embedder. One opened with ``where`` keeps to its tenant.
        scheduler: Writes pages and dreams; default: this process's scheduler of the bank.
        **options: The fields below, and those of ``BaseMemoryBlock``.

    Raises:
        ConfigError: It is no bank, has no embedder, the scheduler is another bank's, or an option is none.
    """

    name: str = Field(default="DreamMemory", description="Name of the block, and of its tag in the prompt.")
    budget_tokens: int = Field(default=1024, ge=1, description="Most tokens of the memories recalled.")
    top_k: int = Field(default=20, ge=1, description="How many memories are recalled at most.")
    query_messages: int = Field(
        default=1, ge=1, description="How many of the user's last messages are searched for."
    )
    session: str = Field(
        default="memory", min_length=1, description="Session of messages that come without one."
    )
    tools: bool = Field(default=False, description="Remember what tools answered, too.")
    dreams: bool = Field(default=True, description="Let the triggers request dreams.")

    _bank: MemoryBank = PrivateAttr()
    _scheduler: DreamScheduler = PrivateAttr()
    _retriever: AssociativeRetriever = PrivateAttr()
    _given: GivenScores = PrivateAttr()

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def __init__(self, bank: MemoryBank, *, scheduler: DreamScheduler | None = None, **options: Any) -> None:
        from shared_core import AssociativeRetriever, MemoryBank
        from shared_core.retrieval.given_scores import GivenScores
        from shared_core.scheduling import DreamScheduler

        if not isinstance(bank, MemoryBank) or bank.embedder is None:
            raise ConfigError(
                "DreamMemoryBlock takes a MemoryBank with an embedder: MemoryBank.open(path, name, "
                "create=True, embedder=as_embedder(embed_model))"
            )
        if scheduler is not None and _place(scheduler.bank) != _place(bank):
            raise ConfigError(f"the scheduler is that of {scheduler.bank!r}, not of {bank!r}")
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise refusal_of(error, type(self).model_fields) from None
        self._bank = bank
        self._scheduler = DreamScheduler.shared(bank) if scheduler is None else scheduler
        self._retriever = AssociativeRetriever(bank)
        self._given = GivenScores()

    @property
    def bank(self) -> MemoryBank:
        """The memory bank: weights, sweeps, undo."""
        return self._bank

    @property
    def scheduler(self) -> DreamScheduler:
        """What writes and dreams: ``flush``, ``status``, ``adream``, ``close``."""
        return self._scheduler

    def feedback(
        self, success: bool | float, session_id: str | None = None, config: ConsolidationConfig | None = None
    ) -> Run:
        """Tell how the last turn of a session went; what was recalled for it consolidates.

        Args:
            success: True or False, or how well it went in [0, 1].
            session_id: Of the ``Memory``; default: of a block that is used without one.
            config: Momentum and temperature of the consolidation.

        Raises:
            ConfigError: This object recalled nothing for that session, or bad success.
        """
        scores = self._given.of_run(session_id or self.session)
        if not scores:
            raise ConfigError(f"nothing was recalled in session {session_id or self.session!r}")
        return self._bank.feedback(list(scores), list(scores.values()), success, config)

    async def afeedback(
        self, success: bool | float, session_id: str | None = None, config: ConsolidationConfig | None = None
    ) -> Run:
        """``feedback`` in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.feedback, success, session_id, config)

    async def aput(
        self,
        messages: list[ChatMessage],
        from_short_term_memory: bool = False,
        session_id: str | None = None,
    ) -> None:
        """Hand messages in; returns at once.

        The base class writes the session into the messages, where another block may take it out again; here
        they stay as they are.
        """
        if not from_short_term_memory or self.accept_short_term_memory:
            self._hand_in(messages, session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self._hand_in(messages, None)

    def _hand_in(self, messages: Sequence[ChatMessage], session_id: str | None) -> None:
        said = (message.additional_kwargs.get("session_id") for message in messages)
        pages = pages_from_messages(
            messages,
            session=session_id or next((name for name in said if name), None) or self.session,
            time=datetime.now(timezone.utc),
            tools=self.tools,
        )
        if pages:
            self._scheduler.ingest(pages)
        if self.dreams:
            self._scheduler.tick()

    async def _aget(
        self, messages: list[ChatMessage] | None = None, session_id: str | None = None, **_block_kwargs: Any
    ) -> str:
        from shared_core.agents.recalled import recalled_text

        query = self._query(messages or [])
        if not query:
            return ""
        recent = self._scheduler.recent()[-RECENT_PAGES:][::-1]
        hits = await self._retriever.asearch(query, k=self.top_k)
        self._given.remember({hit.id: hit.score for hit in hits}, session_id or self.session)
        # ranked by more than cosines, so the nearest need not come first
        if known := [hit.similarity for hit in hits if math.isfinite(hit.similarity)]:
            self._scheduler.observe(max(0.0, *known))
        return recalled_text(
            [*(page.stored_text() for page in recent), *(hit.text for hit in hits)], self.budget_tokens
        )

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Leave out the least relevant memories; None where none is left."""
        from shared_core.agents.recalled import shortened

        return shortened(content, tokens_to_truncate)

    def _query(self, messages: Sequence[ChatMessage]) -> str:
        asked = [message.content or "" for message in messages if message.role == MessageRole.USER]
        return "\n".join(text for text in asked[-self.query_messages :] if text.strip())


def _place(bank: MemoryBank) -> tuple[str, str, str]:
    return bank.content.key, bank.state.scope, str(bank.state.engine.url)
