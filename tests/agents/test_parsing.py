"""What a model answers is read out of prose, and believed only where the pages say it."""

from __future__ import annotations

import json
import time

import pytest

from shared_core.agents import parsing
from shared_core.agents.parsing import (
    DiagnosisReply,
    QuestionReply,
    QuotesReply,
    check_nothing_lost,
    check_question,
    known,
    read_reply,
    verbatim,
    whole_sentences,
)
from shared_core.agents.prompts import ShownPage
from shared_core.errors import ChatReplyError
from shared_core.language import Source

PAGES = {
    "p1": ShownPage("id-1", "(8 May 2023) Ada: My dog Rex ate 3 socks,\nand <b>all</b> of them were red."),
    "p2": ShownPage("id-2", "(9 May 2023) Bob: Good luck with the vet!"),
}
GOOD = {"cause": "noisy", "pages": ["p2"], "confidence": 1}


def refused(reason: str) -> pytest.RaisesExc[ChatReplyError]:
    return pytest.raises(ChatReplyError, check=lambda error: error.reason == reason)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"Sure! Here you go:\n```json\n{json.dumps(GOOD, indent=1)}\n```\nAnything else?",
        f"An empty one is {{}} and a wrong one {{'a': 1}}, mine is {json.dumps(GOOD)} {{",
        json.dumps({**GOOD, "rationale": "because", "delete": ["everything"]}),
    ],
)
def test_json_is_found_in_prose(text: str) -> None:
    assert read_reply(text, DiagnosisReply) == DiagnosisReply(cause="noisy", pages=["p2"], confidence=1.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "noisy, p2",
        "{",
        "[1, 2]",
        json.dumps({**GOOD, "cause": "evil"}),
        json.dumps({**GOOD, "pages": "p2"}),
        json.dumps({**GOOD, "pages": [2]}),
        json.dumps({**GOOD, "pages": []}),
        json.dumps({**GOOD, "pages": ["id-2"]}),
        json.dumps({**GOOD, "confidence": "0.5"}),
        json.dumps({**GOOD, "confidence": 7}),
        json.dumps({**GOOD, "confidence": float("nan")}),
        '{"cause": "noisy"',
        '{"a":' * 9000,
    ],
)
def test_what_does_not_fit_is_refused(text: str) -> None:
    started = time.perf_counter()
    with refused(parsing.JSON):
        read_reply(text, DiagnosisReply)
    assert time.perf_counter() - started < 2


def test_only_pages_that_were_shown_are_known() -> None:
    assert known(["p2", "p1", "p2"], PAGES) == ["id-2", "id-1"]
    with refused(parsing.PAGE):
        known(["p1", "p7"], PAGES)


def test_a_quote_becomes_the_slice_that_it_copies() -> None:
    text = PAGES["p1"].text
    assert verbatim(" ate 3 socks, and ‹b›all‹/b› ", text) == "ate 3 socks,\nand <b>all</b>"
    for wrong in ("ate 4 socks", "ATE 3 SOCKS", "   ", ".*"):
        with refused(parsing.VERBATIM):
            verbatim(wrong, text)


def test_a_part_of_a_sentence_becomes_the_sentence() -> None:
    text = "I never said that I like dogs. Cats are fine! Bye."
    assert whole_sentences("I like dogs", text) == ["I never said that I like dogs."]
    assert whole_sentences("dogs. Cats", text) == ["I never said that I like dogs.", "Cats are fine!"]


def question(**changes: str) -> QuestionReply:
    made = {"question": "What did the dog swallow?", "answer": "3 socks", "page": "p1", **changes}
    return QuestionReply.model_validate(made)


def test_a_good_question_passes() -> None:
    assert check_question(question(), PAGES) == ("What did the dog swallow?", "3 socks")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"page": "p9"}, parsing.PAGE),
        ({"page": "p2"}, parsing.VERBATIM),
        ({"answer": "three socks"}, parsing.VERBATIM),
        ({"answer": "of"}, parsing.UNFIT),
        ({"question": "Were 3 socks eaten by the dog?"}, parsing.UNFIT),
        ({"question": "What did the dog of Zelda swallow in Paris?"}, parsing.INVENTED),
        ({"question": "What did the dog swallow in June 2031?"}, parsing.INVENTED),
    ],
)
def test_a_bad_question_is_refused(changes: dict[str, str], reason: str) -> None:
    with refused(reason):
        check_question(question(**changes), PAGES)


def test_a_merged_text_must_keep_everything() -> None:
    sources = [Source("Rex ate 3 socks."), Source("Rex ate red socks in Oslo.")]
    check_nothing_lost("Rex ate 3 socks.\nRex ate red socks in Oslo.", sources)
    for lossy in ("Rex ate red socks in Oslo.", "Rex ate 3 socks in Oslo.", "Rex ate 3 red socks."):
        with refused(parsing.LOST):
            check_nothing_lost(lossy, sources)


def test_a_long_reply_is_bounded() -> None:
    quotes = {"quotes": [{"page": "p1", "text": "x"}] * 41}
    with refused(parsing.JSON):
        read_reply(json.dumps(quotes), QuotesReply)
