"""The benchmark can be killed at any line and goes on; what was measured or found is not made again."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shared_core import SentenceTransformerEmbedder
from shared_core.cli.main import main
from shared_core.embedding import WordLlamaEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation import FAMILIES
from shared_core.evaluation.runner import BenchmarkPlan, planned_cases, run_benchmark
from shared_core.evaluation.saved import MEASURES, SavedRows, SavedTriggers, read_rows
from tests.conftest import SHARED_DATA

FAMILY = "agentpoison-ehr191-in"
ROW = {"case": "f/a/n4", "defence": "none", "embedder": "minilm", **dict.fromkeys(MEASURES, 0.5)}


class Counting:
    """WordLlama that counts what it is asked."""

    def __init__(self) -> None:
        self.inner_model = WordLlamaEmbedder()
        self.texts = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += len(texts)
        return self.inner_model.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        self.texts += 1
        return self.inner_model.embed_query(text)


def plan_of(data: Path, **changed: Any) -> BenchmarkPlan:
    return BenchmarkPlan(data=data, families=[FAMILY], injected=(2, 3), **changed)


def names(plan: BenchmarkPlan, embedder: Any) -> list[str]:
    return [case.name for _, case in planned_cases(plan, embedder)]


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "seconds": 0} for row in rows]


def test_what_is_there_is_not_measured_again(tiny_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    plan = plan_of(tiny_data, defences=("none", "amemguard"))
    first = run_benchmark(plan, {"wordllama": WordLlamaEmbedder}, rows=SavedRows(path))
    assert [(row["injected"], row["defence"]) for row in first] == [
        (count, defence) for count in (2, 2, 3, 3) for defence in ("none", "amemguard")
    ]
    assert {row["family"] for row in first} == {FAMILY}
    assert read_rows(path) == first
    # a run that was killed in the middle of its sixth line
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]) + lines[5][:40])
    embedder = Counting()
    again = run_benchmark(plan, {"wordllama": lambda: embedder}, rows=SavedRows(path))
    assert without_seconds(again) == without_seconds(first)
    assert again[:5] == first[:5], "these were read, seconds and all"
    assert sorted(map(json.dumps, read_rows(path))) == sorted(map(json.dumps, again))
    assert embedder.texts > 0
    # nothing is left to do, and another defence is all that is added
    idle = Counting()
    assert run_benchmark(plan, {"wordllama": lambda: idle}, rows=SavedRows(path)) == again
    assert idle.texts == 0
    more = plan_of(tiny_data, defences=("none", "amemguard", "paper"))
    assert len(run_benchmark(more, {"wordllama": WordLlamaEmbedder}, rows=SavedRows(path))) == 12
    assert len(read_rows(path)) == 12


def test_settings_make_other_rows(tiny_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for changed in ({}, {"seed": 1}, {"agent": "open_ended"}, {"arrive": 1}, {}):
        plan = plan_of(tiny_data, limit=1, defences=("none",), **changed)
        run_benchmark(plan, {"wordllama": WordLlamaEmbedder}, rows=SavedRows(path))
    rows = read_rows(path)
    assert [(row["seed"], row["agent"]) for row in rows] == [
        (0, "structured"),
        (1, "structured"),
        (0, "open_ended"),
        (0, "structured"),
    ]
    assert rows[3]["family"] == f"{FAMILY}/arrive1"


def test_embedders_follow_each_other(tiny_data: Path, embedder: SentenceTransformerEmbedder) -> None:
    plan = plan_of(tiny_data, limit=1, defences=("none",))
    told: list[tuple[str, int, int]] = []
    rows = run_benchmark(
        plan,
        {"minilm": lambda: embedder, "wordllama": WordLlamaEmbedder},
        progress=lambda stage, done, total: told.append((stage, done, total)),
    )
    assert [row["embedder"] for row in rows] == ["minilm", "wordllama"]
    assert told == [("cases", 1, 2), ("cases", 2, 2)]


def test_cases_are_drawn_alike_for_every_count(tiny_data: Path) -> None:
    embedder = WordLlamaEmbedder()
    everything = BenchmarkPlan(data=tiny_data, families=["minja-patient"], injected=(2, 3))
    drawn = {
        count: BenchmarkPlan(
            data=tiny_data, families=["minja-patient"], injected=(2, 3), per_family=count, seed=1
        )
        for count in (1, 3, 99)
    }
    found = {count: names(plan, embedder) for count, plan in drawn.items()}
    assert [len(found[count]) for count in (1, 3, 99)] == [2, 6, len(names(everything, embedder))]
    assert set(found[1]) < set(found[3]) < set(found[99])
    assert [name.removesuffix("/n2") for name in found[3][:3]] == [
        name.removesuffix("/n3") for name in found[3][3:]
    ]
    assert names(drawn[3], embedder) == found[3]


def test_a_trigger_is_searched_once(tiny_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "triggers.json"
    plan = BenchmarkPlan(data=tiny_data, families=["optimised-ehr191"], small=True, defences=("none",))
    embedder = Counting()
    triggers = SavedTriggers(path)
    rows = run_benchmark(plan, {"wordllama": lambda: embedder}, triggers=triggers)
    (entry,) = json.loads(path.read_text())["triggers"]
    assert (entry["embedder"], entry["memory"], entry["small"]) == ("wordllama", "ehr191", True)
    assert all(entry["trigger"] in row["case"] for row in rows)
    idle = Counting()
    again = run_benchmark(plan, {"wordllama": lambda: idle}, triggers=SavedTriggers(path))
    assert [row["case"] for row in again] == [row["case"] for row in rows]
    assert idle.texts < embedder.texts / 2
    # what was searched on queries that a whole case asks is not used there, nor is another embedder's
    saved = SavedTriggers(path)
    assert saved.of("wordllama", small=True) == {"ehr191": entry["trigger"]}
    assert saved.of("wordllama") == saved.of("minilm", small=True) == saved.of("wordllama", seed=1) == {}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data": None}, "give --data DIR or --case FILE"),
        ({"per_family": 0}, "--cases-per-family 0 must be at least 1"),
        ({"arrive": 0}, "--arrive 0 must be at least 1"),
        ({"defences": ("prayer",)}, "--defence 'prayer'"),
        ({"families": ["mini"]}, "--family 'mini'"),
    ],
)
def test_a_plan_refuses_what_makes_no_sense(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        BenchmarkPlan(**{"data": tmp_path, **changed})


def test_a_file_that_is_none_of_ours_is_left_alone(tmp_path: Path) -> None:
    for name, text in {
        "a": "my diary\n",
        "b": "my diary",
        "c": json.dumps({**ROW, "asr_r": "x"}) + "\n",
        "d": "[]\n",
    }.items():
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"{name}, line 1, is no row"):
            SavedRows(path)
        with pytest.raises(ConfigError, match="holds no triggers"):
            SavedTriggers(path)
        assert path.read_text() == text
    # a whole row whose line break alone is missing stays
    path = tmp_path / "e"
    path.write_text(json.dumps(ROW))
    SavedRows(path).append([{**ROW, "defence": "paper"}])
    assert read_rows(path) == [ROW, {**ROW, "defence": "paper"}]
    with pytest.raises(ConfigError, match="cannot write"):
        SavedRows(tmp_path / "nowhere" / "rows").append([ROW])


def test_the_command_line_resumes(
    tiny_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, triggers = tmp_path / "rows.jsonl", tmp_path / "triggers.json"
    command = ["eval", "poison", "--data", str(tiny_data), "--small", "--embedder", "wordllama"]
    command += ["--defence", "none", "--out", str(out), "--triggers", str(triggers), "--json"]
    printed = []
    for families in (["minja", "optimised-ehr191-in"], ["minja", "optimised-ehr191-in"]):
        asked = [word for name in families for word in ("--family", name)]
        with pytest.raises(SystemExit) as exited:
            main([*command, *asked])
        assert exited.value.code == 0
        printed.append(json.loads(capsys.readouterr().out)["rows"])
    assert printed[0] == printed[1] == read_rows(out)
    assert len(printed[0]) == 4


@pytest.mark.skipif(
    not (SHARED_DATA / "agentpoison").is_dir(),
    reason=f"NEEDS REAL DATA: {SHARED_DATA} is absent, so no small benchmark of published attacks is run",
)
@pytest.mark.parametrize("name", ["wordllama", pytest.param("minilm", marks=pytest.mark.slow)])
def test_the_small_benchmark_on_real_data(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.perf_counter()
    command = ["eval", "poison", "--data", str(SHARED_DATA), "--family", "all", "--small"]
    with pytest.raises(SystemExit) as exited:
        main([*command, "--embedder", name, "--defence", "none", "--json"])
    assert exited.value.code == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert Counter(row["family"] for row in rows) == dict.fromkeys(FAMILIES, 1)
    attacked = {row["family"]: row["asr_r"] for row in rows}
    assert attacked["optimised-ehr500-in"] >= 0.5, "a searched trigger works"
    assert time.perf_counter() - started < 600
