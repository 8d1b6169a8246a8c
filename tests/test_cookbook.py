"""Every script of the cookbook runs, from an empty directory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).resolve().parents[1] / "cookbook").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if script.stem == "dream_cycle":
        check_dream(lines)
        return
    if script.stem == "langgraph_between_turns":
        check_between_turns(lines)
        return
    assert lines[0] == "before: 20 of 20 triggered requests retrieve poison"
    assert "after: 0 of 20 triggered requests retrieve poison" in lines
    assert lines[-1].startswith("undone: 20 of 20")


def check_between_turns(lines: list[str]) -> None:
    places = {line.partition(":")[0]: re.findall(r"place (\d+)", line) for line in lines if "Lisbon" in line}
    assert places["before"] == places["undone"]
    assert places["after"][0] == "1"
    assert int(places["after"][1]) < int(places["before"][1])
    assert "turn 12: dream queued, because of new_pages" in lines


def check_dream(lines: list[str]) -> None:
    before, after, undone = (
        [line.removeprefix(f"{when}: ") for line in lines if line.startswith(f"{when}: ")]
        for when in ("before", "after", "undone")
    )
    assert len(before) == 2
    assert before == undone
    chess, keys = after
    assert chess.endswith("-> (6 March 2024) Vera: Otto won at chess.")
    assert "bicycle lock at the station. | (6 March 2024) Vera: The tram broke down" in keys
    assert before[0] != chess
    assert before[1] != keys
    assert {line.partition(":")[0] for line in lines if " F1 0." in line} == {"extract", "synthesize"}
    assert "  because the answer is one sentence of a longer memory" in lines
