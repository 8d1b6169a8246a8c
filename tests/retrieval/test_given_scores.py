"""Which scores are remembered, and how credit is shared where one is not."""

from __future__ import annotations

import pytest

from shared_core.errors import ConfigError
from shared_core.retrieval.given_scores import GivenScores, shared_credit


def test_the_last_runs_are_remembered() -> None:
    given = GivenScores(capacity=2)
    given.remember({"a": 0.5}, "first")
    given.remember({"a": 0.7, "b": 0.1})
    assert given.of_run("first") == {"a": 0.5}
    assert given.of_memory("a") == 0.7
    assert given.of_memory("a", 0.5) == 0.5, "the score that is shown tells which one is meant"
    assert given.of_memory("a", 9.9) == 0.7, "and is never taken itself"
    assert given.of_memory("c") is None
    given.remember({"a": 0.2}, "first")
    given.remember({"c": 1.0})
    assert given.of_run("first") == {"a": 0.2}, "used again, so it is not the oldest"
    assert given.of_memory("b") is None
    given.remember({"d": 1.0})
    assert given.of_run("first") is None


def test_credit() -> None:
    assert shared_credit({"a": 0.5, "b": 0.1}) == (["a", "b"], [0.5, 0.1])
    assert shared_credit({"a": 0.5, "b": None}) == (["a", "b"], [0.0, 0.0])
    with pytest.raises(ConfigError, match="no source nodes"):
        shared_credit({}, "source nodes")
