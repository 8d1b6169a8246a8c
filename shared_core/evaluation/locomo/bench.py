"""Runs several arms over several conversations and sums up, for ``dream eval locomo``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from shared_core.embedding.tokens import packaged_token_counter
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo.arms import PLAIN_ARMS, Arm, plain_arm
from shared_core.evaluation.locomo.bank_arms import BANK_ARMS, bank_arm
from shared_core.evaluation.locomo.loader import Conversation
from shared_core.evaluation.locomo.reader import ChatReader
from shared_core.evaluation.locomo.scoring import score_arm, summary_rows
from shared_core.types import Embedder, Progress


def check_arms(names: Sequence[str]) -> None:
    """Refuse what is no arm.

    Raises:
        ConfigError: There is no such arm.
    """
    known = (*PLAIN_ARMS, *BANK_ARMS)
    for name in names:
        if name not in known:
            raise ConfigError(f"arm {name!r} is not one of {', '.join(known)}")


def measure_arms(
    names: Sequence[str],
    conversations: Sequence[Conversation],
    embedder: Embedder,
    *,
    reader: ChatReader | None = None,
    questions: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of design section 6, arm by arm.

    Args:
        names: Arms.
        conversations: At least one.
        embedder: A ``CachedEmbedder`` spares what arms share.
        reader: Answers each question; adds f1, bleu1 and rouge_l to the rows.
        questions: Only so many per conversation, evenly spread. Default: all.
        progress: Called as ``progress("locomo", done, total)``.

    Raises:
        ConfigError: There is no such arm, no conversation, or ``questions`` is below 1.
        ChatError: The reader fails.
    """
    check_arms(names)
    if questions is not None and questions < 1:
        raise ConfigError(f"questions={questions} must be 1 or more per conversation")
    if not conversations:
        raise ConfigError("there is no conversation to measure on")
    count = packaged_token_counter()
    rows: list[dict[str, Any]] = []
    for at, name in enumerate(names):
        scores, seconds = [], 0.0
        for done, conversation in enumerate(conversations, start=1):
            with _opened(name, conversation, embedder) as arm:
                scores += score_arm(arm, conversation, count, questions=questions, reader=reader)
                seconds += getattr(arm, "cycle_seconds", 0.0)
            if progress is not None:
                progress("locomo", at * len(conversations) + done, len(names) * len(conversations))
        rows += summary_rows(name, scores, seconds / len(conversations))
    return rows


def _opened(name: str, conversation: Conversation, embedder: Embedder) -> AbstractContextManager[Arm]:
    if name in BANK_ARMS:
        return bank_arm(name, conversation, embedder)
    return nullcontext(plain_arm(name, conversation, embedder))
