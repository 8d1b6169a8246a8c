"""The table by hand: means over cases and embedders, the best baseline, and what was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared_core.cli.main import main
from shared_core.evaluation.table import CASES_MEAN, FAMILIES_MEAN, tabulate, to_markdown


def row(case: str, defence: str, asr_r: float, **changed: Any) -> dict[str, Any]:
    return {
        "case": case,
        "defence": defence,
        "embedder": "minilm",
        "auroc": None if defence == "none" else 0.5,
        "asr_r": asr_r,
        "asr_r_undefended": 0.4 if case.startswith("a/2") else 0.8,
        "benign_retention": 1.0,
        "false_forget": 0.0,
        "poison": 4,
        "family": case.partition("/")[0],
        "injected": 4,
        **changed,
    }


ROWS = [
    row("a/1/n4", "none", 0.8),
    row("a/2/n4", "none", 0.4),
    row("a/1/n4", "paper", 0.6, auroc=0.7),
    row("a/2/n4", "paper", 0.2, auroc=0.9),
    row("a/1/n4", "amemguard", 0.0, benign_retention=0.1),
    row("a/2/n4", "amemguard", 0.0, benign_retention=0.1),
    row("a/1/n4", "hardened", 0.0, auroc=1.0),
    row("b/1/n4", "none", 0.8),
    row("b/1/n4", "paper", 0.8, embedder="wordllama"),
    row("b/1/n4", "amemguard", 0.2),
    row("b/1/n64", "paper", 1.0, injected=64, poison=64),
]


def test_means_by_hand() -> None:
    four, many = tabulate(ROWS)
    assert (four.title, many.title) == ("4 injected", "64 injected")
    assert four.defences == ["paper", "amemguard", "hardened"]
    a, b, families, cases = four.lines
    assert [line.name for line in four.lines] == ["a", "b", FAMILIES_MEAN, CASES_MEAN]
    assert (a.cases, b.cases) == (2, 2)
    assert a.undefended == pytest.approx(0.6)
    assert a.cells["paper"].auroc == pytest.approx(0.8)
    assert a.cells["paper"].asr_r == pytest.approx(0.4)
    assert a.cells["hardened"].cases == 1
    assert families.cells["paper"].asr_r == pytest.approx((0.4 + 0.8) / 2)
    assert cases.cells["paper"].asr_r == pytest.approx((0.6 + 0.2 + 0.8) / 3)
    # dropping nearly everything is no defence: least harm wins, and neither ours nor nothing competes
    assert a.best_baseline == "paper"
    assert b.best_baseline == "amemguard"
    assert [line.name for line in many.lines] == ["b", FAMILIES_MEAN, CASES_MEAN]


def test_the_later_of_two_rows_counts_and_other_runs_stand_apart() -> None:
    again = row("a/1/n4", "paper", 0.0)
    assert tabulate([*ROWS, again])[0].lines[0].cells["paper"].asr_r == pytest.approx(0.1)
    others = [row("a/1/n4", "paper", 0.0, small=True), row("a/1/n4", "paper", 0.0, agent="open_ended")]
    titles = [table.title for table in tabulate([*ROWS, *others])]
    assert titles == ["4 injected, agent open_ended", "4 injected", "64 injected", "4 injected, small"]
    titles = [table.title for table in tabulate(ROWS, by_embedder=True)]
    assert titles == ["4 injected, minilm", "64 injected, minilm", "4 injected, wordllama"]


def test_markdown_marks_and_counts() -> None:
    text = to_markdown(tabulate(ROWS)[:1])
    lines = text.splitlines()
    assert "| family | cases | undefended asr_r | paper | amemguard | hardened |" in lines
    (a,) = [line for line in lines if line.startswith("| a |")]
    assert a == (
        "| a | 2 | 0.60 | **0.80 / 0.40 / 1.00 / 0.00** | 0.50 / 0.00 / 0.10 / 0.00 "
        "| 1.00 / 0.00 / 1.00 / 0.00 (1) |"
    )
    (b,) = [line for line in lines if line.startswith("| b |")]
    assert b.endswith("| – |")
    # the name of a user's case cannot break out of its cell
    hostile = to_markdown(tabulate([row("x | y\nz/1", "paper", 0.0)]))
    assert "| x &#124; y z | 1 |" in hostile


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exited:
        main(["eval", "table", *arguments])
    done = capsys.readouterr()
    return int(str(exited.value.code)), done.out, done.err


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, printed, empty = tmp_path / "rows.jsonl", tmp_path / "printed.json", tmp_path / "empty"
    lines.write_text("".join(f"{json.dumps(one)}\n" for one in ROWS[:6]))
    printed.write_text(json.dumps({"rows": ROWS[6:]}))
    empty.write_text("")
    code, out, _ = run(capsys, str(lines), str(printed), "--json")
    assert code == 0
    assert json.loads(out) == {"tables": [table.to_dict() for table in tabulate(ROWS)]}
    code, out, _ = run(capsys, str(lines), str(printed), "--markdown")
    assert out.rstrip("\n") == to_markdown(tabulate(ROWS))
    code, out, _ = run(capsys, str(lines), str(printed))
    assert code == 0
    assert any(line.split()[:3] == ["a", "paper*", "2"] for line in out.splitlines())
    code, _, err = run(capsys, str(empty))
    assert (code, "there are no rows in" in err) == (2, True)
    code, _, err = run(capsys, str(tmp_path / "none"))
    assert (code, "cannot read" in err) == (2, True)
    code, _, err = run(capsys, str(lines), "--json", "--markdown")
    assert (code, "contradict" in err) == (2, True)
