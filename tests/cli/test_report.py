"""``dream report`` as a user runs it: a file, its commands run as they stand, nothing lost, clear errors."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from shared_core import MemoryBank
from tests.cli.test_cli import NAME, dream, dream_json
from tests.conftest import unit_rows

IDS = ["m0", "--json", "it's", "line\nfeed"]


@pytest.fixture
def place(tmp_path: Path, rng: np.random.Generator) -> Path:
    with MemoryBank.open(tmp_path / "my chroma", NAME, create=True) as bank:
        bank.add([f"text of {i}" for i in range(4)], ids=IDS, embeddings=unit_rows(rng, 4, 8))
        bank.set_weights(dict.fromkeys(IDS[1:], 0.2))
    return tmp_path / "my chroma"


def data_of(file: Path) -> dict[str, object]:
    found = re.search(r'type="application/json">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def test_a_report_is_written_once(place: Path, tmp_path: Path) -> None:
    on = (place, "--collection", NAME, "-o", tmp_path / "report.html")
    done = dream("report", *on)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 memories, never swept: nothing has looked for poison yet.\n")
    assert "it holds texts of memories" in done.stdout
    first = (tmp_path / "report.html").read_bytes()
    again = dream("report", *on)
    assert again.returncode == 2
    assert again.stderr.startswith("dream: --output ")
    assert "--overwrite" in again.stderr
    assert (tmp_path / "report.html").read_bytes() == first
    told = dream_json("report", *on, "--overwrite", "--limit", "3")
    assert (told["memories"], told["shown"], told["suspects"]) == (4, 3, 3)
    assert told["bytes"] == (tmp_path / "report.html").stat().st_size
    assert any("3 of 4 memories are on this page" in line for line in told["left_out"])
    assert [run["kind"] for run in dream_json("log", *on[:3])["runs"]] == ["reweight", "add"]


def test_the_commands_in_the_page_run(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dream_json("report", place, "--collection", NAME, "-o", tmp_path / "report.html")
    data = data_of(tmp_path / "report.html")
    # from any directory
    monkeypatch.chdir(tmp_path.root)
    words = {one["id"]: one["word"] for one in data["memories"]}  # type: ignore[attr-defined]
    for memory_id in IDS[1:3]:
        line = f"dream restore {data['place']} {words[memory_id]}"
        done = dream(*shlex.split(line)[1:])
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"restored {memory_id}")
    run = data["runs"][0]  # type: ignore[index]
    refused = dream(*shlex.split(f"dream undo {data['place']} {run['word']}")[1:])
    assert "was built upon" in refused.stderr


def test_a_password_is_no_part_of_a_report(place: Path, tmp_path: Path) -> None:
    from shared_core.cli.options import place as place_words

    words = place_words(str(place), NAME, "postgresql://me:secret@host/db", '{"user": "ada"}')
    assert "secret" not in " ".join(words)
    assert words == [
        str(place),
        "--collection",
        NAME,
        "--state",
        "postgresql://me:***@host/db",
        "--where",
        '{"user": "ada"}',
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--collection", "none", "-o", "x.html"), "none"),
        (("--collection", NAME, "-o", "."), "--output . exists"),
        (("--collection", NAME, "-o", ".", "--overwrite"), "is a directory"),
        (("--collection", NAME, "-o", "none/x.html"), "there is no directory none"),
        (("--collection", NAME, "-o", "x.html", "--limit", "0"), "--limit"),
        (("--collection", NAME), "--output"),
    ],
)
def test_mistakes_are_told_in_one_line(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = dream("report", place, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["my chroma"]
