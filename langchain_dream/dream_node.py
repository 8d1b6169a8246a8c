"""``DreamNode``: a node of any LangGraph graph that hands the turn in and lets the bank dream between turns.

Translates state, config and interrupts; pages are written and dreams run by the core's scheduler, in the
background. The state's schema stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from typing_extensions import override

from langchain_dream.dream_events import event_log
from langchain_dream.turns import TurnRecorder, session_of
from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from shared_core import ForgettingConfig, MemoryBank
    from shared_core.agents import DreamCycle
    from shared_core.scheduling import DreamScheduler, SchedulerConfig, TriggerConfig


class DreamNode(Runnable[Any, Any]):
    """Hands what a turn said to the bank, checks the triggers, requests a dream if one is due, and returns.

    ::

        builder.add_node("dream", DreamNode(bank))
        builder.add_edge("model", "dream")

    It waits for nothing: pages are embedded and written, and dreams run, on the scheduler's threads, and the
    next turn retrieves from what is there by then. A failure is logged and told by ticket, status and
    ``on_event``, and never ends the turn. Passing the same messages again stores nothing twice, so that
    retries, resumed and replayed runs are safe.

    In ``stream_mode="custom"`` each turn gets ``{"dream": event}`` for its ticket and for what happened since
    the conversation's last turn; events quote no memory.

    With ``approval=True`` a dream only proposes repairs. A later turn then pauses with ``interrupt``, whose
    value is ``{"kind": "dream_repairs", "repairs": [...], "answer": ..., "error": ...}``; resume with
    ``Command(resume=...)``: True for all, False for none, or the list of ids to make. A dream in the
    background then makes those as they were proposed; after a restart, those that it still finds. The graph
    needs a checkpointer for this, and Python 3.11 where it runs asynchronously. The proposals quote
    memories: escape them where they are shown.

    Args:
        bank: With an embedder. One opened with ``where`` keeps to its tenant.
        scheduler: Of the bank; default: this process's one, made with ``triggers``, ``config`` and ``dream``.
        triggers: When a dream is due.
        config: What a dream is, debounce, retries.
        dream: In place of sweep and cycle: is given the request and returns a report.
        session: Name of the conversation, or a function from the run's config to it; default: the thread id.
        messages_key: Where the state has its messages.
        ticket_key: Where the state takes the ticket, a plain dict; default: nothing is written to the state.
        exchanges: One page for what the user said and all that was answered, instead of one per message; put
            the node behind the answer then.
        tools: Remember what tools answered, too.
        names: How user and assistant are called where a message has no name.
        approval: Ask before a repair is made.
        cycle: The cycle that proposes and makes repairs; with ``approval`` only.
        sweep: Settings of the forgetting sweep; with ``approval`` only.
        on_event: Called with every event of the scheduler, plain JSON, on its threads: ``kind`` is "start",
            "repair", "end", or one that ``DreamScheduler`` names. It holds as long as the node lives.

    Raises:
        ConfigError: The bank has no embedder; or options contradict each other, or the scheduler that exists.
        MissingExtraError: langgraph is not installed.
    """

    def __init__(
        self,
        bank: MemoryBank,
        *,
        scheduler: DreamScheduler | None = None,
        triggers: TriggerConfig | None = None,
        config: SchedulerConfig | None = None,
        dream: Callable[[Any], Mapping[str, Any]] | None = None,
        session: str | Callable[[RunnableConfig], str] | None = None,
        messages_key: str = "messages",
        ticket_key: str | None = None,
        exchanges: bool = False,
        tools: bool = False,
        names: tuple[str, str] = ("user", "assistant"),
        approval: bool = False,
        cycle: DreamCycle | None = None,
        sweep: ForgettingConfig | None = None,
        on_event: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        try:
            from langgraph.config import get_stream_writer
        except ImportError as error:
            raise MissingExtraError("langgraph", "langgraph") from error
        self._get_writer = get_stream_writer
        self._session = session
        self._messages_key = messages_key
        self._ticket_key = ticket_key
        own = _approval_dream(bank, scheduler, dream, approval=approval, cycle=cycle, sweep=sweep)
        self._turns = TurnRecorder(
            bank,
            scheduler=scheduler,
            options={"triggers": triggers, "config": config, "dream": own or dream},
            on_event=on_event,
            exchanges=exchanges,
            tools=tools,
            names=names,
        )
        self._events = event_log(self.scheduler)
        self._approval = None
        if own is not None:
            from langchain_dream.approval import Approval

            self._approval = Approval(self.scheduler, own)

    @property
    def scheduler(self) -> DreamScheduler:
        """What writes and dreams: ``status``, ``flush``, ``adream``, ``cancel``, ``close``."""
        return self._turns.scheduler

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Take a turn up; returns the update of the state, None without ``ticket_key``."""
        # asked first: a turn that pauses is handed in when it goes on
        asked = None if self._approval is None else self._approval.ask()
        session, ticket = self._take_up(input, config)
        return self._update(session, asked or ticket)

    @override
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """``invoke`` on the event loop, which it does not block."""
        asked = None if self._approval is None else await self._approval.aask()
        session, ticket = self._take_up(input, config)
        return self._update(session, asked or ticket)

    def _take_up(self, state: Any, config: RunnableConfig | None) -> tuple[str, dict[str, Any]]:
        session = session_of(ensure_config(config), self._session)
        return session, self._turns.record(messages_of(state, self._messages_key), session)

    def _update(self, session: str, ticket: dict[str, Any]) -> dict[str, Any] | None:
        writer = self._writer()
        for event in [*self._events.news(session), {**ticket, "dream": ticket["kind"], "kind": "ticket"}]:
            writer({"dream": event})
        return None if self._ticket_key is None else {self._ticket_key: ticket}

    def _writer(self) -> Callable[[Any], None]:
        try:
            return self._get_writer()
        except (RuntimeError, KeyError):
            # outside of a graph, or asynchronously before Python 3.11
            return _write_nothing


def messages_of(state: Any, key: str) -> Sequence[Any]:
    """Return the messages of a state: a mapping, an object with fields, or the list of messages itself.

    Raises:
        ConfigError: It has none there.
    """
    if isinstance(state, list):
        return state
    found = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise ConfigError(
            f"the state has no list of messages under {key!r}, but {type(found).__name__}: say where they "
            "are with messages_key=..."
        )
    return found


def _write_nothing(_event: Any) -> None:
    pass


def _approval_dream(
    bank: MemoryBank,
    scheduler: DreamScheduler | None,
    dream: Any,
    *,
    approval: bool,
    cycle: DreamCycle | None,
    sweep: ForgettingConfig | None,
) -> Any:
    if not approval:
        if cycle is not None or sweep is not None:
            raise ConfigError(
                "cycle and sweep belong to approval=True; else give dream=BankDream(bank, cycle=...)"
            )
        return None
    if scheduler is not None or dream is not None:
        raise ConfigError("approval=True needs a scheduler and a dream of its own: leave both out")
    from shared_core.scheduling import ReviewedDream

    return ReviewedDream(bank, cycle=cycle, sweep=sweep)
