"""Asks an arm every question of a conversation and sums up what came back (design 6).

A piece of evidence counts only if an entry names the turn as its source *and* quotes its whole text verbatim
(white space aside), so a summary earns nothing. Category "all" is the mean over the questions of categories
1-4, as published LoCoMo figures are; category 5 has a row of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shared_core.evaluation.locomo.arms import Arm, ContextEntry, ReadingArm
from shared_core.evaluation.locomo.loader import CATEGORIES, Conversation, Question
from shared_core.evaluation.locomo.metrics import answer_recall, evidence_recall, fitting
from shared_core.evaluation.locomo.reader import BUDGET, F1_NAME, ChatReader, answer_scores

DEPTHS = (5, 10)
BUDGETS = (512, 1024)
ANSWER_BUDGET = 1024
ENTRIES = 200
"""How many entries are asked for; 1024 tokens are full long before."""


@dataclass(frozen=True, kw_only=True)
class QuestionScore:
    """What one arm brought for one question."""

    conversation: str
    question: str
    category: int
    recalls: Mapping[str, float]
    """In [0, 1], by the column's name; empty for a question without evidence."""
    answer_recall: float
    """In [0, 1]; NaN where the gold answer has no word."""
    latency_ms: float
    answers: Mapping[str, float] = field(default_factory=dict)
    """Scores of a reader's answer, by the name of the measure; empty without a reader."""


def quoted_turns(entry: ContextEntry, texts: Mapping[str, str]) -> set[str]:
    """Return the sources whose whole text the entry holds verbatim.

    Args:
        entry: Of the context.
        texts: Text by turn id.
    """
    shown = _plain(entry.text)
    return {key for key in entry.sources if key in texts and _plain(texts[key]) in shown}


def score_arm(
    arm: Arm,
    conversation: Conversation,
    count_tokens: Callable[[str], int],
    categories: Collection[int] = tuple(CATEGORIES),
    *,
    questions: int | None = None,
    reader: ChatReader | None = None,
) -> list[QuestionScore]:
    """Ask an arm the questions of a conversation.

    Args:
        arm: Filled with this conversation.
        conversation: Evidence and answers are used for scoring only.
        count_tokens: The unit of the budgets.
        categories: Questions of other categories are left out.
        questions: Only so many, evenly spread over the file's order. Default: all.
        reader: Answers each question from the arm's context.
    """
    texts = {turn.id: turn.text for turn in conversation.turns}
    asked = [question for question in conversation.questions if question.category in categories]
    if questions is not None:
        asked = [asked[at * len(asked) // questions] for at in range(min(questions, len(asked)))]
    scores = []
    for question in asked:
        score = _score(arm, question, texts, count_tokens, conversation.name)
        if reader is not None:
            answer = reader.answer(question.text, _context(arm, question.text, count_tokens))
            score = replace(score, answers=answer_scores(answer, question))
        scores.append(score)
    return scores


def summary_rows(
    arm: str, scores: Sequence[QuestionScore], cycle_seconds: float = 0.0
) -> list[dict[str, Any]]:
    """Return one row per category and one for "all" (1-4): the contract of ``dream eval locomo --json``.

    Recalls are percent, means over the questions that have evidence (``with_evidence``); a value that no
    question defines is None. ``f1`` and other reader columns are present only where scores have them, and
    then ``f1_name`` says which F1 it is.

    Args:
        arm: Its name.
        scores: Of any number of conversations.
        cycle_seconds: How long the dream took; 0 for an arm without one.
    """
    groups: list[tuple[str | int, list[QuestionScore]]] = [
        ("all", [score for score in scores if score.category != 5])
    ]
    groups += [(number, [score for score in scores if score.category == number]) for number in CATEGORIES]
    return [
        {"arm": arm, "category": category, **_means(group), "cycle_seconds": round(cycle_seconds, 2)}
        for category, group in groups
        if group
    ]


def _score(
    arm: Arm, question: Question, texts: Mapping[str, str], count: Callable[[str], int], conversation: str
) -> QuestionScore:
    start = time.perf_counter()
    entries = arm.search(question.text, ENTRIES)
    latency = 1000 * (time.perf_counter() - start)
    tokens = _lengths(entries, count)
    context = "\n".join(entry.text for entry in entries[: fitting(tokens, ANSWER_BUDGET)])
    return QuestionScore(
        conversation=conversation,
        question=question.text,
        category=question.category,
        recalls=_recalls([quoted_turns(entry, texts) for entry in entries], tokens, question.evidence),
        answer_recall=answer_recall(question.answer, context),
        latency_ms=latency,
    )


def _context(arm: Arm, question: str, count: Callable[[str], int]) -> str:
    if isinstance(arm, ReadingArm):
        return arm.context(question, BUDGET, count)
    entries = arm.search(question, ENTRIES)
    return "\n".join(entry.text for entry in entries[: fitting(_lengths(entries, count), BUDGET)])


def _lengths(entries: Sequence[ContextEntry], count: Callable[[str], int]) -> list[int]:
    """Token counts up to the first entry beyond the largest budget."""
    lengths: list[int] = []
    total = 0
    for entry in entries:
        lengths.append(count(entry.text))
        total += lengths[-1]
        if total > max(*BUDGETS, ANSWER_BUDGET):
            break
    return lengths


def _recalls(
    quoted: Sequence[Collection[str]], tokens: Sequence[int], evidence: Collection[str]
) -> dict[str, float]:
    if not evidence:
        return {}
    at_depth = {f"recall@{k}": evidence_recall(quoted[:k], evidence) for k in DEPTHS}
    in_budget = {
        f"budget_recall@{b}": evidence_recall(quoted[: fitting(tokens, b)], evidence) for b in BUDGETS
    }
    return at_depth | in_budget


def _means(scores: Sequence[QuestionScore]) -> dict[str, Any]:
    with_evidence = [score.recalls for score in scores if score.recalls]
    columns = [f"recall@{k}" for k in DEPTHS] + [f"budget_recall@{b}" for b in BUDGETS]
    row: dict[str, Any] = {"questions": len(scores), "with_evidence": len(with_evidence)}
    row.update({name: _percent(recalls[name] for recalls in with_evidence) for name in columns})
    row[f"answer_recall@{ANSWER_BUDGET}"] = _percent(score.answer_recall for score in scores)
    for name in dict.fromkeys(name for score in scores for name in score.answers):
        row[name] = _percent(score.answers[name] for score in scores if name in score.answers)
    if "f1" in row:
        row["f1_name"] = F1_NAME
    row["latency_ms"] = round(float(np.median([score.latency_ms for score in scores])), 3)
    return row


def _percent(values: Iterable[float]) -> float | None:
    known = [value for value in values if not np.isnan(value)]
    return round(100 * float(np.mean(known)), 2) if known else None


def _plain(text: str) -> str:
    return " ".join(text.split())
