"""The LoCoMo arms over a real bank, and the command that measures them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared_core.cli.main import main
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation import CachedEmbedder
from shared_core.evaluation.locomo.bank_arms import BANK_ARMS, UNDREAMED, bank_arm
from shared_core.evaluation.locomo.bench import check_arms, measure_arms
from shared_core.evaluation.locomo.dreams import uniform_extracts
from shared_core.evaluation.locomo.loader import Conversation, Turn, load_locomo
from shared_core.evaluation.locomo.scoring import quoted_turns
from tests.conftest import SHARED_DATA

SESSIONS = [
    ("1:56 pm on 8 May, 2023", [("Ada", "What did you lose on the tram?"), ("Bo", "It was blue, a gift.")]),
    (
        "10:00 am on 9 June, 2023",
        [("Bo", "I started pottery classes."), ("Ada", ""), ("Bo", "My kiln broke.")],
    ),
]
QUESTIONS = [
    ("What did Bo start?", "pottery classes", ["D2:1"], 4),
    ("What colour was the thing that was lost on the tram?", "blue", ["D1:2"], 1),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    conversation: dict[str, object] = {"speaker_a": "Ada", "speaker_b": "Bo"}
    for number, (date, turns) in enumerate(SESSIONS, start=1):
        conversation[f"session_{number}_date_time"] = date
        conversation[f"session_{number}"] = [
            {"speaker": who, "dia_id": f"D{number}:{turn}", "text": text}
            for turn, (who, text) in enumerate(turns, start=1)
        ]
    asked = [
        {"question": question, "answer": answer, "evidence": evidence, "category": category}
        for question, answer, evidence, category in QUESTIONS
    ]
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([{"sample_id": "own", "conversation": conversation, "qa": asked}]))
    return path


@pytest.mark.parametrize("name", BANK_ARMS)
def test_an_arm_quotes_whole_turns_and_dates_each_session_once(
    file: Path, embedder: SentenceTransformerEmbedder, name: str
) -> None:
    (conversation,) = load_locomo(file)
    with bank_arm(name, conversation, embedder) as arm:
        entries = arm.search("What did Bo lose on the tram?", 10)
        context = arm.context("What did Bo lose on the tram?", 1000, len)
    texts = {turn.id: turn.text for turn in conversation.turns}
    assert set().union(*(quoted_turns(entry, texts) for entry in entries)) == set(texts)
    text = "\n".join(entry.text for entry in entries)
    for shown in (text, context):
        assert shown.count("(8 May 2023)") == shown.count("(9 June 2023)") == 1
        assert all(shown.count(said) == 1 for said in texts.values() if said)
    assert (arm.cycle_seconds > 0) == (name not in UNDREAMED)


def test_rows_have_the_columns_of_the_contract(file: Path, embedder: SentenceTransformerEmbedder) -> None:
    seen: list[int] = []
    rows = measure_arms(
        ["hybrid", "dream"], load_locomo(file), embedder, progress=lambda *step: seen.append(step[1])
    )
    assert [(row["arm"], row["category"]) for row in rows if row["category"] == "all"] == [
        ("hybrid", "all"),
        ("dream", "all"),
    ]
    assert {"recall@5", "recall@10", "budget_recall@512", "budget_recall@1024", "latency_ms"} <= rows[
        0
    ].keys()
    assert rows[0]["budget_recall@1024"] == 100.0
    assert seen == [1, 2]
    assert "f1" not in rows[0]


LONG = (
    "I lost an old umbrella in the tram. My aunt bought that blue umbrella in Lisbon. She wants it back soon."
)


def told(*texts: str) -> Conversation:
    turns = tuple(
        Turn(
            id=f"D1:{at}",
            session=1,
            date="1:56 pm on 8 May, 2023",
            speaker="Ada" if at % 2 else "Bo",
            text=text,
        )
        for at, text in enumerate(texts, start=1)
    )
    return Conversation(name="own", speakers=("Ada", "Bo"), turns=turns, questions=(), skipped=())


def test_a_derived_memory_shows_what_is_not_shown_yet_and_counts_for_whole_turns_only(
    embedder: SentenceTransformerEmbedder,
) -> None:
    with bank_arm("dream-no-analyst", told(LONG, "My kiln broke."), embedder) as arm:
        derived = [hit for hit in arm.found("umbrella", 10) if hit.sources]
        pages = [hit for hit in arm.found("umbrella", 10) if not hit.sources]
        assert len(derived) == 1
        assert derived[0].sources == ("D1:1",)
        texts = {"D1:1": LONG, "D1:2": "My kiln broke."}
        first, *_ = arm.entries([*derived, *pages])
        assert first.text.startswith("(8 May 2023)\n")
        assert quoted_turns(first, texts) == set()
        assert len(arm.entries([*derived, *pages])) == 3
        assert [entry.sources for entry in arm.entries([*pages, *derived])] == [(hit.id,) for hit in pages]


def test_extracts_without_a_diagnosis_are_of_every_long_page(embedder: SentenceTransformerEmbedder) -> None:
    with bank_arm("context", told(LONG, "Short. Very.", LONG.replace("umbrella", "kiln")), embedder) as arm:
        repairs = uniform_extracts(arm.graph)
    assert [memory.sources for repair in repairs for memory in repair.memories] == [("D1:1",), ("D1:3",)]


def test_bad_arms_are_refused(file: Path, embedder: SentenceTransformerEmbedder) -> None:
    with pytest.raises(ConfigError, match="is not one of dense"):
        check_arms(["nope"])
    with pytest.raises(ConfigError, match="no conversation"):
        measure_arms(["dense"], [], embedder)
    with (
        pytest.raises(ConfigError, match="must be one of"),
        bank_arm("dense", load_locomo(file)[0], embedder),
    ):
        pass


def test_the_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["eval", "locomo", "--data", str(file), "--arms", "bm25,context", "--json"])
    assert exited.value.code == 0
    assert {row["arm"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"bm25", "context"}
    for arguments, message in [
        (["--arms", "x"], "not one of"),
        (["--arms", ","], "names none"),
        (["--reader", "gpt"], "neither smollm2"),
    ]:
        with pytest.raises(SystemExit) as exited:
            main(["eval", "locomo", "--data", str(file), *arguments])
        assert exited.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_dream_brings_five_points_on_a_real_conversation(embedder: SentenceTransformerEmbedder) -> None:
    path = SHARED_DATA / "locomo" / "locomo5.json"
    if not path.is_file():
        pytest.skip("no shared LoCoMo file")
    talks = [talk for talk in load_locomo(path) if talk.name == "conv-30"]
    rows = measure_arms(["context", "dream"], talks, CachedEmbedder(embedder))
    before, after = (row["budget_recall@1024"] for row in rows if row["category"] == "all")
    assert before == pytest.approx(76.0, abs=0.5)
    assert after == pytest.approx(86.3, abs=0.5)
