from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared_core.errors import ConfigError
from shared_core.evaluation import load_case

GOOD = {
    "name": "x",
    "memories": [{"id": "a", "key": "k", "value": "v", "poison": True}, {"id": "b", "key": "l"}],
    "triggered_queries": ["q"],
    "benign_queries": [],
    "something_else": 1,
}


def write(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_a_case_is_read(tmp_path: Path) -> None:
    case = load_case(write(tmp_path / "case.json", GOOD))
    assert case.poison_ids == {"a"}
    assert case.memories[1].value == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "the case"),
        ({**GOOD, "name": ""}, "name"),
        ({**GOOD, "memories": []}, "memories"),
        ({**GOOD, "memories": [{"id": "a", "key": ""}]}, r"memories\.0\.key"),
        ({**GOOD, "memories": [{"id": "a", "key": "k"}] * 2}, "'a' is given twice"),
        ({**GOOD, "triggered_queries": []}, "no queries"),
        ({**GOOD, "triggered_queries": [1]}, r"triggered_queries\.0"),
    ],
)
def test_a_bad_case_is_refused_with_its_field(tmp_path: Path, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_case(write(tmp_path / "case.json", value))


def test_a_missing_or_binary_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_case(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read"):
        load_case(tmp_path / "binary.json")
