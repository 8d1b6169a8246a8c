"""Training sets: what is written is read back, and a set with one bad line is refused whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared_core.agents.protocol import Diagnosis, Probe, Retrieval
from shared_core.errors import ConfigError
from shared_core.training.dataset import (
    DATA_FILES,
    RULES,
    Example,
    Fact,
    Talk,
    TrainingSet,
    Utterance,
    diagnosis_of,
    probe_of,
    read_training_set,
    retrieval_of,
    write_training_set,
)

PROBE = Probe(
    query="Who sails?", expected_answer="Ada", targets=("a",), query_type="who", weakness="isolated"
)
RETRIEVAL = Retrieval(ids=("b", "a"), f1=0.5, recall=1.0, confidence=0.25)
DIAGNOSIS = Diagnosis(
    probe=PROBE, category="buried", targets=("a",), confidence=0.6, rationale="one sentence of many"
)
TALK = Talk(
    name="harbour",
    split="train",
    pages=(
        Utterance(
            id="a", text="Ada sails ‹at›\nnight.", session="s1", speaker="Ada", time="2024-01-08T09:00:00"
        ),
        Utterance(id="b", text="Hello.", session="s1"),
    ),
    facts=(Fact(query="She is out on the sea.", page="a"),),
)
OTHER = replace(TALK, name="island", split="test")


def example(agent: str, case: dict[str, Any], **changed: Any) -> Example:
    values: dict[str, Any] = {
        "agent": agent,
        "talk": "harbour",
        "split": "train",
        "signal": "dream",
        "case": case,
        "prompt": ({"role": "system", "content": "Reply with JSON."}, {"role": "user", "content": "…"}),
        "completion": '{"x": 1}',
        "teacher": RULES,
        "score": 0.5,
    }
    return Example(**{**values, **changed})


DREAMER = example("dreamer", {"targets": ["a", "b"], "weakness": "stale", "score": 0.25})
ANALYST = example("analyst", {"probe": PROBE.to_dict(), "retrieval": RETRIEVAL.to_dict()})
CONSOLIDATOR = example("consolidator", {"diagnosis": DIAGNOSIS.to_dict(), "probe": PROBE.to_dict()})
ALL = [DREAMER, ANALYST, CONSOLIDATOR]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "set"


def write(folder: Path, examples: list[Example], talks: list[Talk] | None = None) -> TrainingSet:
    return write_training_set(folder, talks or [TALK, OTHER], examples, {"from": "a test"})


def edit(folder: Path, file: str, line: int, /, **changed: Any) -> None:
    """Change fields of one line, as somebody might by hand."""
    lines = (folder / file).read_text().splitlines()
    lines[line - 1] = json.dumps({**json.loads(lines[line - 1]), **changed})
    (folder / file).write_text("\n".join(lines) + "\n")


def test_a_set_is_read_back_as_it_was_written(folder: Path) -> None:
    written = write(folder, ALL)
    read = read_training_set(folder)
    assert read.examples == ALL == written.examples
    assert read.talks == {"harbour": TALK, "island": OTHER}
    assert read.card["from"] == "a test"
    assert read.card["examples"] == {"dreamer": 1, "analyst": 1, "consolidator": 1}


def test_cases_become_what_the_agents_say_to_each_other(folder: Path) -> None:
    _, analyst, consolidator = write(folder, ALL).examples
    assert probe_of(analyst) == PROBE == probe_of(consolidator)
    assert retrieval_of(analyst) == RETRIEVAL
    assert diagnosis_of(consolidator) == DIAGNOSIS
    with pytest.raises(ConfigError, match="analyst has no diagnosis"):
        diagnosis_of(analyst)


def test_the_digest_is_that_of_the_contents(tmp_path: Path) -> None:
    one, again = (write(tmp_path / name, ALL) for name in ("one", "again"))
    other = write(tmp_path / "other", [replace(DREAMER, score=0.25), ANALYST, CONSOLIDATOR])
    assert one.digest == again.digest == one.card["digest"]
    assert one.digest != other.digest


def test_examples_are_chosen_by_agent_split_signal_and_score(folder: Path) -> None:
    scores = [0.1, 0.9, 0.4, 0.9, 0.2, 0.3, 0.0, 0.5, 0.6, 0.7]
    examples = [replace(DREAMER, score=score) for score in scores]
    tested = replace(DREAMER, talk="island", split="test", signal="real")
    found = write(folder, [*examples, tested, ANALYST])
    assert [one.score for one in found.of("dreamer", "train", top=0.3)] == [0.9, 0.9, 0.7]
    assert [one.score for one in found.of("dreamer", "train", top=0.01)] == [0.9]
    assert found.of("dreamer", "train") == examples
    assert found.of("dreamer", signal="real") == [tested] == found.of("dreamer", "test")
    assert len(found.of("dreamer")) == len(scores) + 1
    assert found.of("consolidator", top=0.5) == []
    for top in (0.0, 1.1):
        with pytest.raises(ConfigError, match="outside"):
            found.of("dreamer", top=top)


def test_an_earlier_set_is_replaced_only_on_demand(folder: Path) -> None:
    first = write(folder, ALL)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="overwrite"):
        write(folder, [DREAMER])
    assert read_training_set(folder) == first
    second = write_training_set(folder, [TALK], [DREAMER], {}, overwrite=True)
    assert second.examples == [DREAMER]
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("talks.jsonl", {"split": "valid"}, "field split"),
        ("talks.jsonl", {"pages": []}, "field pages"),
        ("talks.jsonl", {"facts": [{"query": "?", "page": "z"}]}, "'z'"),
        (
            "talks.jsonl",
            {"pages": [{**dict.fromkeys(("id", "text", "session"), "a"), "speaker": None, "time": "soon"}]},
            "time",
        ),
        ("talks.jsonl", {"name": "island"}, "twice"),
        ("dreamer.jsonl", {"score": 1.5}, "field score"),
        ("dreamer.jsonl", {"score": "0.5"}, "field score"),
        ("dreamer.jsonl", {"agent": "analyst"}, "field agent"),
        ("dreamer.jsonl", {"more": 1}, "field more"),
        ("dreamer.jsonl", {"talk": "nowhere"}, "'nowhere'"),
        ("dreamer.jsonl", {"split": "test"}, "split"),
        ("dreamer.jsonl", {"prompt": []}, "field prompt"),
        ("dreamer.jsonl", {"teacher": ""}, "teacher"),
        ("dreamer.jsonl", {"case": {"targets": ["z"], "weakness": "stale", "score": 0.1}}, "'z'"),
        ("dreamer.jsonl", {"case": ANALYST.case}, "field case"),
        ("analyst.jsonl", {"case": {"probe": PROBE.to_dict()}}, "field case.retrieval"),
        ("consolidator.jsonl", {"case": ANALYST.case}, "field case.diagnosis"),
    ],
)
def test_a_bad_line_is_named_and_the_set_refused(
    folder: Path, name: str, changed: dict[str, Any], said: str
) -> None:
    write(folder, ALL)
    number = 2 if changed == {"name": "island"} else 1
    edit(folder, name, 1, **changed)
    with pytest.raises(ConfigError, match=f"{name}, line {number}: .*{said}"):
        read_training_set(folder)


def test_what_is_no_json_is_named(folder: Path) -> None:
    write(folder, ALL)
    with (folder / "analyst.jsonl").open("a") as file:
        file.write('{"agent": ')
    with pytest.raises(ConfigError, match=r"analyst\.jsonl, line 2"):
        read_training_set(folder)


@pytest.mark.parametrize("name", [*DATA_FILES, "card.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    write(folder, ALL)
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=name):
        read_training_set(folder)


def test_files_that_the_card_was_not_written_for_are_refused(folder: Path) -> None:
    write(folder, ALL)
    edit(folder, "dreamer.jsonl", 1, score=0.75)
    with pytest.raises(ConfigError, match="other files"):
        read_training_set(folder)


def test_nothing_is_written_of_a_set_that_would_not_be_read(folder: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        write(folder, [replace(DREAMER, talk="nowhere")])
    assert not folder.exists()
