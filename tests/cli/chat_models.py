"""Chat models of a user's own module, named on the command line: they never answer, and may press Ctrl-C."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from shared_core.chat import ChatMessage, ChatReply


class Interrupting:
    """Presses Ctrl-C while it is asked, so often as ``left`` says."""

    def __init__(self) -> None:
        self.left = 0

    def complete(self, messages: list[ChatMessage], **_options: Any) -> ChatReply:
        while self.left:
            self.left -= 1
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
        return ChatReply(text="no JSON")

    async def acomplete(self, messages: list[ChatMessage], **options: Any) -> ChatReply:
        return self.complete(messages, **options)


once, twice = Interrupting(), Interrupting()
