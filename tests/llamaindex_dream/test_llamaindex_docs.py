"""The code of docs/llamaindex.md runs as it stands, block after block, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "llamaindex.md"


@pytest.mark.usefixtures("own_folder")
def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    scope: dict[str, object] = {"__name__": "page"}
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        exec(compile(code, f"llamaindex.md, block {number}", "exec"), scope)
    printed = capsys.readouterr().out
    first, second, count, found, *recalled = printed.splitlines()
    assert first.startswith("[('hours', 0.")
    assert second == "['key', 'soup']"
    assert count == "2"
    assert found == "['hours', 'key']"
    assert any(line.startswith("- (") and "behind the library" in line for line in recalled)


def test_links_lead_somewhere() -> None:
    page = PAGE.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", page):
        if target.startswith("#"):
            assert target[1:] in headings, target
        else:
            assert (PAGE.parent / target).exists(), target
