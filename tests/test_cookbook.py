"""Every script of the cookbook runs, from an empty directory."""

from __future__ import annotations

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
    assert lines[0] == "before: 20 of 20 triggered requests retrieve poison"
    assert "after: 0 of 20 triggered requests retrieve poison" in lines
    assert lines[-1].startswith("undone: 20 of 20")
