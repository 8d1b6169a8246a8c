"""Asks a person about proposed repairs through LangGraph's ``interrupt``.

A node runs again from its top when it is resumed, perhaps in another process. So what is asked is the result
of a LangGraph task, which the checkpoint keeps: the run that is resumed asks about the same repairs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from langgraph.func import task
from langgraph.types import interrupt

from shared_core.language.counting import counted
from shared_core.scheduling import APPROVED, DreamScheduler, ReviewedDream

ANSWER = "true: all, false: none, or a list of ids"
QUOTED = 40
"""Characters of a wrong id that are quoted."""

_dreams: WeakKeyDictionary[DreamScheduler, ReviewedDream] = WeakKeyDictionary()
_guard = threading.Lock()


class Approval:
    """Asks, and lets the scheduler make what was accepted.

    Args:
        scheduler: The bank's.
        dream: What it was made with, or one that is equal to that.
    """

    def __init__(self, scheduler: DreamScheduler, dream: ReviewedDream) -> None:
        with _guard:
            # a graph may be built twice: its nodes share the scheduler, and so the proposals
            self._dream = _dreams.setdefault(scheduler, dream)
        self._scheduler = scheduler
        offer = self._dream.offer

        @task
        def dream_offer() -> list[dict[str, Any]]:
            return offer()

        self._offer = dream_offer

    def ask(self) -> dict[str, Any] | None:
        """Pause where there are proposals; returns the ticket of the dream that makes the accepted ones."""
        return self._settle(self._offer().result())

    async def aask(self) -> dict[str, Any] | None:
        """``ask`` in a graph that runs asynchronously."""
        return self._settle(await self._offer())

    def _settle(self, repairs: list[dict[str, Any]]) -> dict[str, Any] | None:
        if not repairs:
            return None
        offered = [repair["id"] for repair in repairs]
        question = {"kind": "dream_repairs", "repairs": repairs, "answer": ANSWER, "error": None}
        accepted, error = chosen(interrupt(question), offered)
        while error is not None:
            accepted, error = chosen(interrupt({**question, "error": error}), offered)
        self._dream.decide(offered, accepted)
        return self._scheduler.request("cycle", reason=APPROVED) if accepted else None


def chosen(answer: Any, offered: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the ids that an answer accepts, and what is wrong with it, if something is."""
    if isinstance(answer, bool):
        return (list(offered) if answer else []), None
    if not isinstance(answer, (list, tuple)):
        return [], f"the answer is a {type(answer).__name__}; give {ANSWER}"
    if unknown := [one for one in answer if one not in offered]:
        return [], f"were not offered: {counted(len(unknown), 'id')}, such as {str(unknown[0])[:QUOTED]!r}"
    return [str(one) for one in answer], None
