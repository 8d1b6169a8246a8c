"""LoCoMo's loader, arms and rows, on a conversation of our own; the real file where it is there."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared_core.embedding import packaged_embedder
from shared_core.embedding.tokens import packaged_token_counter
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo import (
    Arm,
    ContextEntry,
    load_locomo,
    parse_conversation,
    parse_evidence,
    plain_arm,
    quoted_turns,
    score_arm,
    summary_rows,
)
from shared_core.evaluation.poison import CachedEmbedder

SAMPLE: dict[str, Any] = {
    "sample_id": "talk-1",
    "conversation": {
        "speaker_a": "Ines",
        "speaker_b": "Otto",
        "session_1_date_time": "9:05 am on 3 March, 2024",
        "session_1": [
            {"speaker": "Ines", "dia_id": "D1:1", "text": "I bought a red canoe yesterday."},
            {"speaker": "Otto", "dia_id": "D1:2", "text": "Lovely! Where will you keep it?"},
            {"speaker": "Ines", "dia_id": "D1:3", "text": "In my uncle's barn near Lake Orta."},
        ],
        "session_2_date_time": "6:40 pm on 21 April, 2024",
        "session_2": [
            {
                "speaker": "Otto",
                "dia_id": "D2:1",
                "text": "My bakery opens on Friday, look!",
                "img_url": ["x"],
                "blip_caption": "a photo of a shop window with bread",
                "query": "bakery",
            },
            {"speaker": "Ines", "dia_id": "D2:2", "text": "Congratulations! I will come by bike."},
        ],
        "session_3_date_time": "8:00 am on 1 May, 2024",
    },
    "qa": [
        {"question": "What did Ines buy?", "answer": "a red canoe", "evidence": ["D1:1"], "category": 4},
        {
            "question": "Where is the canoe?",
            "answer": "barn",
            "evidence": ["D:1:03; D1:1"],
            "category": 1,
        },
        {"question": "When does Otto's bakery open?", "answer": 2024, "evidence": ["D2:01"], "category": 2},
        {"question": "Is Otto a baker?", "answer": "yes; he is", "evidence": ["D", "D9:9"], "category": 3},
        {
            "question": "What did Otto buy?",
            "evidence": ["D1:1"],
            "category": 5,
            "adversarial_answer": "canoe",
        },
    ],
}


def conversation(sample: dict[str, Any] = SAMPLE) -> Any:
    return parse_conversation(sample, "sample")


@pytest.fixture(scope="module")
def embedder() -> CachedEmbedder:
    return CachedEmbedder(packaged_embedder())


def test_turns_are_read_in_order_with_date_and_caption() -> None:
    talk = conversation()
    assert [turn.id for turn in talk.turns] == ["D1:1", "D1:2", "D1:3", "D2:1", "D2:2"]
    assert talk.turns[0].page == "(9:05 am on 3 March, 2024) Ines: I bought a red canoe yesterday."
    assert talk.turns[3].caption == "a photo of a shop window with bread"
    assert (talk.name, talk.speakers) == ("talk-1", ("Ines", "Otto"))


def test_dirty_evidence_is_read_and_what_was_skipped_is_said() -> None:
    talk = conversation()
    assert [question.evidence for question in talk.questions[:4]] == [
        ("D1:1",),
        ("D1:3", "D1:1"),
        ("D2:1",),
        (),
    ]
    assert talk.skipped == (
        "sample qa 3: evidence 'D' names no turn",
        "sample qa 3: evidence D9:9 is not in the conversation",
        "sample qa 3: no evidence, so it does not count in recalls",
    )
    assert [question.answer for question in talk.questions[2:]] == ["2024", "yes; he is", ""]


@pytest.mark.parametrize(
    ("items", "found", "unreadable"),
    [
        (["D8:6; D9:17"], ["D8:6", "D9:17"], []),
        (["D9:1 D4:4 D4:6"], ["D9:1", "D4:4", "D4:6"], []),
        (["D:11:26", "D30:05"], ["D11:26", "D30:5"], []),
        (["D1:1", "D1:1", "D"], ["D1:1"], ["D"]),
        ([None], [], ["None"]),
    ],
)
def test_evidence_strings(items: list[Any], found: list[str], unreadable: list[str]) -> None:
    assert parse_evidence(items) == (found, unreadable)


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    sample = copy.deepcopy(SAMPLE)
    place: Any = sample
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return sample


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["qa"], None, "'qa' must be a list"),
        (["conversation"], [], "'conversation' must be a dict"),
        (["conversation", "session_1", 0, "dia_id"], "first", "dia_id 'first' must look like"),
        (["conversation", "session_1", 0, "dia_id"], "D1:2", "a dia_id is given twice"),
        (["conversation", "session_1", 0, "text"], 7, "'text' must be a str"),
        (["qa", 0, "category"], 6, "category 6 must be one of"),
        (["qa", 0, "category"], True, "'category' must be a int"),
        (["qa", 0, "evidence"], 3, "evidence 3 must be a list"),
    ],
)
def test_what_is_not_the_format_is_refused(path: list[Any], value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        conversation(changed(path, value))


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps([SAMPLE, SAMPLE]), encoding="utf-8")
    assert len(load_locomo(path)) == 2
    assert len(load_locomo(path, limit=1)) == 1
    with pytest.raises(ConfigError, match="limit=0"):
        load_locomo(path, limit=0)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="expected a list of conversations"):
        load_locomo(path)


def test_only_a_verbatim_quote_of_a_source_counts() -> None:
    texts = {turn.id: turn.text for turn in conversation().turns}
    quote = ContextEntry("(3 March 2024) Ines: I bought a  red canoe yesterday.", ("D1:1", "D1:3"))
    assert quoted_turns(quote, texts) == {"D1:1"}
    assert quoted_turns(ContextEntry(quote.text, ()), texts) == set()
    assert quoted_turns(ContextEntry("Ines bought a red canoe.", ("D1:1",)), texts) == set()


@pytest.mark.parametrize("name", ["dense", "bm25", "hybrid"])
def test_plain_arms_find_what_was_said(name: str, embedder: CachedEmbedder) -> None:
    arm: Arm = plain_arm(name, conversation(), embedder)
    assert arm.name == name
    assert arm.search("What did Ines buy, a red canoe?", 1)[0].sources == ("D1:1",)
    assert len(arm.search("canoe", 3)) == (1 if name == "bm25" else 3)


def test_an_unknown_arm_is_refused(embedder: CachedEmbedder) -> None:
    with pytest.raises(ConfigError, match="arm 'sparse' must be one of"):
        plain_arm("sparse", conversation(), embedder)


class FixedArm:
    name = "fixed"

    def __init__(self, entries: list[ContextEntry]) -> None:
        self.entries = entries

    def search(self, question: str, limit: int) -> list[ContextEntry]:
        return self.entries[:limit]


def test_rows_follow_the_contract() -> None:
    talk = conversation()
    turns = {turn.id: turn for turn in talk.turns}
    filler = [ContextEntry("word " * words, ()) for words in (100, 100, 100, 100, 99)]
    entries = [*filler, *(ContextEntry(turns[i].page, (i,)) for i in ("D1:1", "D2:1"))]
    rows = summary_rows("fixed", score_arm(FixedArm(entries), talk, lambda text: len(text.split())), 1.5)
    assert [row["category"] for row in rows] == ["all", 1, 2, 3, 4, 5]
    every = rows[0]
    assert (every["questions"], every["with_evidence"], every["cycle_seconds"]) == (4, 3, 1.5)
    assert every["recall@5"] == 0
    assert every["recall@10"] == pytest.approx(100 * (1 + 0.5 + 1) / 3, abs=0.01)
    # 499 filler words and 13 of the first page are exactly 512
    assert every["budget_recall@512"] == pytest.approx(100 * (1 + 0.5 + 0) / 3, abs=0.01)
    assert every["budget_recall@1024"] == every["recall@10"]
    assert every["answer_recall@1024"] == pytest.approx(100 * (1 + 0 + 1 + 0) / 4, abs=0.01)
    assert rows[3]["recall@5"] is None  # its only question has no evidence
    assert rows[5]["answer_recall@1024"] is None
    assert every["latency_ms"] >= 0
    json.dumps(rows)


def test_a_reader_adds_its_columns() -> None:
    scores = score_arm(FixedArm([]), conversation(), len, categories=[4])
    read = [replace(score, answers={"official_f1": 0.5}) for score in scores]
    assert summary_rows("fixed", read)[0]["official_f1"] == 50


def real_file() -> Path:
    given = os.environ.get("DREAM_LOCOMO")
    path = Path(given) if given else Path(__file__).parents[3] / "shared/data/locomo/locomo5.json"
    if not path.is_file():
        pytest.skip("no LoCoMo file: name it in DREAM_LOCOMO")
    return path


@pytest.mark.slow
def test_plain_arms_on_the_real_file(embedder: CachedEmbedder) -> None:
    # 63 % dense, 63 % BM25 and 70.5 % hybrid were measured by hand before this code was written
    talks = load_locomo(real_file())
    if [talk.name for talk in talks] != ["conv-26", "conv-30", "conv-41", "conv-42", "conv-43"]:
        pytest.skip("the numbers are those of conversations 26, 30, 41, 42 and 43")
    found = {}
    for name in ("dense", "bm25", "hybrid"):
        scores = [
            score
            for talk in talks
            for score in score_arm(plain_arm(name, talk, embedder), talk, packaged_token_counter())
        ]
        found[name] = summary_rows(name, scores)[0]
    recalls = {name: row["budget_recall@1024"] for name, row in found.items()}
    assert recalls == pytest.approx({"dense": 63.6, "bm25": 62.9, "hybrid": 71.4}, abs=0.3)
    assert found["hybrid"]["recall@10"] == pytest.approx(60.9, abs=0.3)
