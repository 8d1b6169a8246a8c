"""The LoCoMo arms over a real bank, and the command that measures them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared_core.cli.main import main
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation.locomo.bank_arms import BANK_ARMS, bank_arm
from shared_core.evaluation.locomo.bench import check_arms, measure_arms
from shared_core.evaluation.locomo.loader import load_locomo

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
    assert {source for entry in entries for source in entry.sources} == {t.id for t in conversation.turns}
    text = "\n".join(entry.text for entry in entries)
    assert text.count("(8 May 2023)") == text.count("(9 June 2023)") == 1
    assert (arm.cycle_seconds > 0) == (name != "context")


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
    for arguments, message in [(["--arms", "x"], "not one of"), (["--arms", ","], "names none")]:
        with pytest.raises(SystemExit) as exited:
            main(["eval", "locomo", "--data", str(file), *arguments])
        assert exited.value.code == 2
        assert message in capsys.readouterr().err
