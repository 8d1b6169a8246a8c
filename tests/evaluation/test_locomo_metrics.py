from __future__ import annotations

import math

import pytest

from shared_core.embedding.tokens import packaged_token_counter
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo import (
    answer_recall,
    bleu1,
    evidence_recall,
    fitting,
    memoryos_f1,
    official_f1,
    rouge_l,
    set_f1,
)


def test_evidence_recall_counts_each_turn_once() -> None:
    assert evidence_recall([{"a"}, {"a", "b"}, {"x"}], ["a", "b", "c", "d"]) == 0.5
    assert evidence_recall([], ["a"]) == 0
    with pytest.raises(ConfigError, match="without evidence"):
        evidence_recall([{"a"}], [])


@pytest.mark.parametrize(
    ("tokens", "budget", "count"),
    [([5, 5, 5], 10, 2), ([5, 6, 1], 10, 1), ([11], 10, 0), ([], 10, 0), ([3, 3], 100, 2), ([10, 0], 10, 2)],
)
def test_a_budget_takes_the_longest_prefix(tokens: list[int], budget: int, count: int) -> None:
    assert fitting(tokens, budget) == count


def test_tokens_are_counted_without_limit_and_padding() -> None:
    count = packaged_token_counter()
    assert [count(""), count("canoe"), count("red " * 700)] == [0, 1, 700]


def test_answer_recall() -> None:
    assert answer_recall("The two canoes, a barn", "He kept canoe and oars.") == pytest.approx(1 / 3)
    assert math.isnan(answer_recall("", "anything"))


@pytest.mark.parametrize(
    ("said", "gold", "category", "score"),
    [
        ("the Canoes!", "canoe", 4, 1.0),
        ("red red canoe", "red canoe", 4, 2 * (2 / 3) * 1 / (2 / 3 + 1)),  # multiset: one red is too many
        ("1,200 boats", "1200 boat", 2, 1.0),
        ("swimming", "canoe, swim", 1, 0.5),
        ("a barn, canoes", "canoe, barn", 1, 1.0),
        ("yes", "yes; he bakes", 3, 1.0),
        ("That is Not mentioned.", "", 5, 1.0),
        ("No information available", "x", 5, 1.0),
        ("a canoe", "a canoe", 5, 0.0),
        ("", "canoe", 4, 0.0),
        ("the", "a", 4, 0.0),
    ],
)
def test_official_f1(said: str, gold: str, category: int, score: float) -> None:
    assert official_f1(said, gold, category) == pytest.approx(score)


def test_official_f1_refuses_an_unknown_category() -> None:
    with pytest.raises(ConfigError, match="category 6"):
        official_f1("a", "b", 6)


def test_the_other_f1s_differ_from_the_official_one() -> None:
    assert set_f1("red red canoe", "red canoe") == 1
    assert set_f1("canoes", "canoe") == 0
    assert set_f1("Otto's canoe.", "otto canoe") == pytest.approx(0.5)
    assert memoryos_f1("Otto's canoe.", "otto canoe") == pytest.approx(0.8)
    assert set_f1("", "") == memoryos_f1("", "x") == 0


def test_bleu1() -> None:
    assert bleu1("a red canoe", "a red canoe") == pytest.approx(1)
    assert bleu1("a canoe", "a red canoe") == pytest.approx(math.exp(1 - 3 / 2))
    assert bleu1("boat", "canoe") == 0
    assert bleu1("", "canoe") == bleu1("canoe", "") == 0


def test_rouge_l_stems_and_keeps_order() -> None:
    assert rouge_l("the red canoes", "the red canoe") == pytest.approx(1)
    assert rouge_l("canoe red", "red canoe") == pytest.approx(0.5)
    assert rouge_l("boat", "canoe") == 0
