"""Multi-Session Chat as talks: sessions joined, in order of time, with facts where people wrote some."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared_core.errors import ConfigError
from shared_core.training.msc import read_msc
from tests.conftest import SHARED_DATA

MSC = SHARED_DATA / "msc"
SAID: dict[int, list[str]] = {
    1: ["I mend clocks for a living.", "How lovely!", "My shop is old."],
    2: ["A cuckoo clock came in.", "Was it loud?"],
    3: ["I closed for a week.", "Were you ill?"],
    4: ["I am back at the bench.", "With the cuckoo?"],
}


def three_sessions(key: str, **changed: Any) -> dict[str, Any]:
    earlier = [
        {"dialog": [{"text": text} for text in SAID[session]], "time_num": number, "time_unit": unit}
        for session, number, unit in ((1, 2, "days"), (2, 1, "hour"))
    ]
    found = {
        "dialog": [{"text": text, "id": "Speaker 1"} for text in SAID[3]],
        "metadata": {"initial_data_id": key, "session_id": 2},
        "previous_dialogs": earlier,
    }
    return {**found, **changed}


def summary(key: str, session: int, persona: str | None) -> dict[str, Any]:
    turns: list[dict[str, Any]] = [{"id": "bot", "text": text} for text in SAID[session]]
    if persona is not None:
        turns[0]["persona_text"] = persona
    return {"dialog": turns, "initial_data_id": key}


def write(path: Path, *lines: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(
        tmp_path / "msc_dialogue_session_3_valid.jsonl", three_sessions("valid_0"), three_sessions("valid_1")
    )
    # not in the order of the dialogues
    write(
        tmp_path / "msc_personasummary_session_4_valid.jsonl",
        summary("valid_1", 4, "I mend clocks."),
        summary("valid_0", 4, None),
    )
    write(tmp_path / "msc_dialogue_session_3_test.jsonl", three_sessions("test_0"))
    personas = {1: "I am a watchmaker.", 2: "A cuckoo clock came in", 3: "  ", 4: "I work again."}
    for session, persona in personas.items():
        write(
            tmp_path / f"msc_personasummary_session_{session}_test.jsonl", summary("test_0", session, persona)
        )
    return tmp_path


def test_four_sessions_become_pages_in_order(folder: Path) -> None:
    talk = read_msc(folder)[0]
    assert (talk.name, talk.split) == ("msc-valid_0", "train")
    assert [page.text for page in talk.pages] == [text for turns in SAID.values() for text in turns]
    assert [page.speaker for page in talk.pages[:3]] == ["Speaker 1", "Speaker 2", "Speaker 1"]
    assert len({page.id for page in talk.pages}) == len(talk.pages)
    times = [datetime.fromisoformat(page.time or "") for page in talk.pages]
    assert times == sorted(times)
    assert times[3] - times[0] == timedelta(days=2)
    assert times[5] - times[3] == timedelta(hours=1)
    assert len({page.session for page in talk.pages}) == 4


def test_facts_are_what_people_wrote_in_other_words_than_the_turn(folder: Path) -> None:
    first, second, tested = read_msc(folder)
    said = {page.id: page.text for page in (*second.pages, *tested.pages)}
    assert first.facts == ()
    assert [(fact.query, said[fact.page]) for fact in second.facts] == [("I mend clocks.", SAID[4][0])]
    assert tested.split == "test"
    # that of session 2 repeats its turn, that of session 3 is empty
    assert [(fact.query, said[fact.page]) for fact in tested.facts] == [
        ("I am a watchmaker.", SAID[1][0]),
        ("I work again.", SAID[4][0]),
    ]


def test_a_fact_of_a_turn_that_reads_otherwise_is_left_out(folder: Path) -> None:
    path = folder / "msc_personasummary_session_1_test.jsonl"
    path.write_text(path.read_text().replace("mend clocks", "mend watches"))
    (tested,) = [talk for talk in read_msc(folder) if talk.split == "test"]
    assert [fact.query for fact in tested.facts] == ["I work again."]


def test_the_limit_is_of_each_split(folder: Path) -> None:
    assert [talk.name for talk in read_msc(folder, limit=1)] == ["msc-valid_0", "msc-test_0"]
    with pytest.raises(ConfigError, match="below 1"):
        read_msc(folder, limit=0)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "msc_personasummary_session_2_test.jsonl").unlink()
    with pytest.raises(ConfigError, match="session_2_test"):
        read_msc(folder)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dialog": []}, "line 1: field dialog"),
        ({"previous_dialogs": []}, "line 1: field previous_dialogs"),
        ({"metadata": {"initial_data_id": "valid_9"}}, "valid_9"),
    ],
)
def test_a_line_that_does_not_fit_is_named(folder: Path, changed: dict[str, Any], said: str) -> None:
    write(folder / "msc_dialogue_session_3_valid.jsonl", three_sessions("valid_0", **changed))
    with pytest.raises(ConfigError, match=f"session_3_valid.*{said}"):
        read_msc(folder)


def test_an_unknown_unit_of_time_is_refused(folder: Path) -> None:
    line = three_sessions("valid_0")
    line["previous_dialogs"][0]["time_unit"] = "moons"
    write(folder / "msc_dialogue_session_3_valid.jsonl", line)
    with pytest.raises(ConfigError, match="moons"):
        read_msc(folder)


@pytest.mark.skipif(not MSC.is_dir(), reason=f"NEEDS REAL DATA: {MSC} is absent, so the release is not read")
def test_the_release_is_read_whole() -> None:
    talks = read_msc(MSC)
    train = [talk for talk in talks if talk.split == "train"]
    tested = [talk for talk in talks if talk.split == "test"]
    assert (len(train), len(tested)) == (500, 501)
    assert all(len({page.session for page in talk.pages}) == 4 for talk in talks)
    assert all(len({page.id for page in talk.pages}) == len(talk.pages) > 30 for talk in talks)
    # session 4 only, against all four
    assert sum(len(talk.facts) for talk in tested) > 3 * sum(len(talk.facts) for talk in train)
