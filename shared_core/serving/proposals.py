"""Repairs that a dream proposes in the background, and that a person accepts or turns down.

One dream at a time per object, on a thread of its own; what it found stays until it is decided. Knows no
page.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Any, Literal

from shared_core.errors import ConfigError, DreamError
from shared_core.scheduling.requests import DreamRequest
from shared_core.scheduling.reviewed import APPROVED, ReviewedDream

Doing = Literal["idle", "proposing", "writing"]
logger = logging.getLogger(__name__)


class Proposals:
    """The proposals of one bank.

    Args:
        open_dream: Makes the dream, once, when it is first asked for; it may load an embedder.
    """

    def __init__(self, open_dream: Callable[[], ReviewedDream]) -> None:
        self._open = open_dream
        self._dream: ReviewedDream | None = None
        self._lock = threading.Lock()
        self._open_proposals: dict[str, dict[str, Any]] = {}
        self._doing: Doing = "idle"
        self._said: str | None = None
        self._request: DreamRequest | None = None
        self._thread: threading.Thread | None = None

    def status(self) -> dict[str, Any]:
        """Return ``{"doing", "said", "proposals"}``: what runs, what came of the last, what waits."""
        with self._lock:
            return {
                "doing": self._doing,
                "said": self._said,
                "proposals": list(self._open_proposals.values()),
            }

    def propose(self) -> None:
        """Begin a dream that proposes and writes nothing.

        Raises:
            ConfigError: One is at work.
        """
        self._begin("proposing", DreamRequest(kind="cycle", reasons=["asked"]))

    def decide(self, accepted: Collection[str], declined: Collection[str]) -> None:
        """Take decisions about proposals by id; what was accepted is written in the background.

        Raises:
            ConfigError: A dream is at work, an id is not among the proposals, or is in both lists.
        """
        with self._lock:
            decided = [*accepted, *declined]
            if self._doing != "idle" or self._dream is None:
                raise ConfigError("a dream is at work, or none was asked for: decide when it is done")
            if len(set(decided)) < len(decided) or not set(decided) <= self._open_proposals.keys():
                raise ConfigError("these proposals are decided already, or never were: load the page anew")
            self._dream.decide(decided, accepted)
            for one in decided:
                del self._open_proposals[one]
        if accepted:
            self._begin("writing", DreamRequest(kind="cycle", reasons=[APPROVED]))

    def close(self, timeout: float = 10.0) -> None:
        """Let the dream at work end at its next repair, and wait for it."""
        with self._lock:
            request, thread = self._request, self._thread
        if request is not None:
            request.cancelled.set()
        if thread is not None:
            thread.join(timeout)

    def _begin(self, doing: Doing, request: DreamRequest) -> None:
        with self._lock:
            if self._doing != "idle":
                raise ConfigError("a dream is at work: wait until it is done")
            self._doing, self._said, self._request = doing, None, request
            self._thread = threading.Thread(target=self._run, args=(request,), name="dream-ui", daemon=True)
        self._thread.start()

    def _run(self, request: DreamRequest) -> None:
        said = "the dream failed; the server's log says why"
        try:
            dream = self._dream or self._open()
            report = dream(request)
            offered = dream.offer()
            said = _what_came(request, report, len(offered))
            with self._lock:
                self._dream = dream
                self._open_proposals |= {one["id"]: one for one in offered}
        except DreamError as error:
            said = str(error)
        except Exception:
            logger.exception("a dream of the served page failed")
        finally:
            with self._lock:
                self._doing, self._said = "idle", said


def _what_came(request: DreamRequest, report: dict[str, Any], offered: int) -> str:
    cycle = report["cycle"] or {}
    if request.reasons == [APPROVED]:
        left = cycle.get("left", {})
        made = f"{len(cycle.get('repairs', []))} written"
        return f"{made}, {len(left)} left out: {'; '.join(left.values())}" if left else made
    return f"{offered} proposed" if offered else "nothing to repair was found"
