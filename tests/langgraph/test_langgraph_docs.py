"""The blocks of docs/langgraph.md run, one after the other, as a reader would paste them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "langgraph.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.usefixtures("own_folder")
def test_the_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    shared: dict[str, object] = {"__name__": "langgraph_page"}
    printed = []
    for number, code in enumerate(BLOCK.findall(PAGE.read_text(encoding="utf-8")), 1):
        exec(compile(code, f"langgraph.md, block {number}", "exec"), shared)
        printed.append(capsys.readouterr().out)
    assert "user: My bicycle is parked behind the library." in printed[0]
    assert printed[1].split()[-1] == "ticket"
    assert printed[2] == "Behind the library.\n"
    assert printed[3] == "['extract']\n"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / target).exists(), target
