"""Every notebook of the cookbook runs from top to bottom and shows what its text says; outputs are clean."""

from __future__ import annotations

import copy
import getpass
import tempfile
from pathlib import Path

import pytest
from nbformat import NotebookNode

from tests import notebooks

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "cookbook").glob("*.ipynb"))
MOST_BYTES = 200_000
MOST_LINES = 40
"""Of a cell of code; the longest hold a conversation."""

SHOWN = {
    "01_langchain_swap": [
        "4 of 204 memories would lose weight",
        "0 of 20 triggered requests still retrieve poison",
    ],
    "02_langgraph_dream_node": ["dream: queued because of new_pages", "answer with true: all, false: none"],
    "03_llamaindex_query_engine": [
        "4 of 204 memories lost weight",
        "undone: orders.lookup(id=4468)",
        "redone: Per diem table",
    ],
    "04_attack_and_forget": [
        "hardened: 5 of 5 poisons forgotten, 0 honest memories below 0.5",
        "with the phrase at the end:           0 of 5",
        "redone: 0 of 5",
        "weight of the lie: 1.0",
        "weights of the pair: [1. 1.]",
    ],
    "05_dream_cycle": ["all weights are 1: True", "repairs that hold: 0\n"],
    "06_train_a_policy": ["policy less rules: ", "decides: "],
    "07_production": ["last error None", "all written: True", "The lower field is dry", "applied repairs: 0"],
}
"""What the text beside the cells relies on."""


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook: NotebookNode) -> str:
    return "".join(output.get("text", "") for cell in code(notebook) for output in cell.outputs)


def named(path: Path) -> str:
    return path.stem


def test_there_is_a_notebook_for_each_subject() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(SHOWN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    done = notebooks.run(notebooks.read(path), tmp_path)
    text = printed(done)
    for line in SHOWN[path.stem]:
        assert line in text
    if path.stem == "05_dream_cycle":
        check_dream(text)
    if path.stem == "02_langgraph_dream_node":
        check_places(text)
    if path.stem == "04_attack_and_forget":
        assert "all weights are 1 again: True" in text


def check_dream(text: str) -> None:
    """Two questions got better by the dream and one worse; each undo brings back what there was."""
    found = {}
    for when in ("before", "after", "without that one", "undone"):
        parts = text.split(f"\n{when}: ")[1:]
        found[when] = [part.partition("\n  ")[2].splitlines()[0] for part in parts]
    assert [len(hits) for hits in found.values()] == [3, 3, 3, 3]
    assert found["before"] == found["undone"]
    assert found["after"][0].endswith("Iris: The key of the water tap hangs at the lock keeper's.")
    assert found["before"][0] != found["after"][0]
    assert "The smell came from a cracked fuel line" in text.partition("\nafter: ")[2]
    assert found["before"][2] != found["after"][2]
    assert found["before"][2] == found["without that one"][2]


def check_places(text: str) -> None:
    """The dream lifted what belongs to the question, and the undo let it sink again."""
    place = {
        line.partition(":")[0]: int(line.partition("tea at place ")[2].split()[0])
        for line in text.splitlines()
        if "tea at place" in line
    }
    assert place["after the dream"] < place["before the dream"] <= place["undone"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_committed_outputs_are_there_in_order_and_clean(path: Path) -> None:
    notebook = notebooks.read(path)
    cells = code(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs, "run `make cookbook`"
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    for line in SHOWN[path.stem]:
        assert line in printed(notebook)
    assert notebook == notebooks.cleaned(copy.deepcopy(notebook)), "run `make cookbook`"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_committed_files_are_small_and_name_no_machine(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    notebook = notebooks.read(path)
    told = printed(notebook)
    for place in (tempfile.gettempdir(), str(Path.home()), str(ROOT), "127.0.0.1:"):
        assert f"{place}/" not in told
    assert f"/{getpass.getuser()}/" not in told
    assert max(len(cell.source.splitlines()) for cell in code(notebook)) <= MOST_LINES


def test_the_page_of_the_cookbook_lists_each() -> None:
    page = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if path.name not in page] == []
