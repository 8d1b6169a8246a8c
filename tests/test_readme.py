"""The README's quickstarts run, in order, on one collection, as a reader would paste them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"<!-- quickstart: (\w+) -->\n```python\n(.*?)```", re.DOTALL)
MOST_LINES = 15


@pytest.mark.usefixtures("own_folder")
def test_quickstarts_run_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = dict(BLOCK.findall(README.read_text(encoding="utf-8")))
    assert list(blocks) == ["langchain", "langgraph", "llamaindex", "dreams"]
    printed = {}
    for name, code in blocks.items():
        exec(compile(code, f"README.md, {name}", "exec"), {"__name__": "quickstart"})
        printed[name] = capsys.readouterr().out
    assert printed["langchain"].startswith("The archive closes at noon. 1.0\n")
    assert "of 2 memories lost weight" in printed["langchain"]
    assert "My bicycle is behind the library." in printed["langgraph"]
    assert "repairs, F1 of the probes" in printed["dreams"]
    assert "My bicycle is behind the library." in printed["dreams"]
    assert "The archive closes at noon." in printed["llamaindex"]


def test_quickstarts_are_short() -> None:
    for name, code in BLOCK.findall(README.read_text(encoding="utf-8")):
        lines = [line for line in code.splitlines() if line.strip()]
        assert len(lines) <= MOST_LINES, f"the {name} quickstart has {len(lines)} lines"


def test_the_two_commands_come_first() -> None:
    text = README.read_text(encoding="utf-8")
    first = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == ["make demo", "make test"]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
