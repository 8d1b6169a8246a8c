"""Memories to train on and memories to test on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_core.errors import ConfigError
from shared_core.training.dataset import Fact, Talk, Utterance
from shared_core.training.splitting import split_talk


def talk(*sessions: str, dated: bool = True) -> Talk:
    pages = tuple(
        Utterance(
            id=f"p{at}",
            text=f"page {at}",
            session=session,
            time=f"2024-01-{at + 1:02}T00:00:00+00:00" if dated else None,
        )
        for at, session in enumerate(sessions)
    )
    facts = tuple(Fact(query="what", page=page.id) for page in pages)
    return Talk(name="talk", split="train", pages=pages, facts=facts)


def test_the_latest_sessions_are_tested_on_whole() -> None:
    whole = talk("a", "a", "b", "b", "c", "c")
    train, test = split_talk(replace(whole, pages=whole.pages[::-1]), 0.4)
    assert {page.id for page in train.pages} == {"p0", "p1"}
    assert {page.id for page in test.pages} == {"p2", "p3", "p4", "p5"}
    assert [fact.page for fact in train.facts] == ["p0", "p1"]
    assert (train.name, train.split, test.name, test.split) == ("talk", "train", "talk-unseen", "test")


def test_a_single_session_is_cut() -> None:
    train, test = split_talk(talk("a", "a", "a", "a", dated=False), 0.25)
    assert [page.id for page in train.pages] == ["p0", "p1", "p2"]
    assert [page.id for page in test.pages] == ["p3"]


def test_all_may_be_kept_for_training() -> None:
    (only,) = split_talk(replace(talk("a", "b"), split="test"), 0.0)
    assert (only.split, len(only.pages)) == ("train", 2)


@pytest.mark.parametrize(
    ("sessions", "share"), [(("a",), 0.5), (("a", "b", "b", "b"), 0.9), (("a", "b"), 1.0)]
)
def test_something_must_be_left_to_train_on(sessions: tuple[str, ...], share: float) -> None:
    with pytest.raises(ConfigError, match="share"):
        split_talk(talk(*sessions), share)
