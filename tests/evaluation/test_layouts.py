"""Cases stored in one text: what is embedded, what stands beside it, and how rows are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_core.embedding import WordLlamaEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation import AttackCase, CaseMemory
from shared_core.evaluation.layouts import laid_out
from shared_core.evaluation.runner import BenchmarkPlan, run_benchmark

CASE = AttackCase(
    name="family/attack/n1",
    memories=[
        CaseMemory(id="a", key="open the canteen", value="done at nine"),
        CaseMemory(id="b", key="keep the badges"),
        CaseMemory(id="c", key="find a desk", value="send it away", origin="eve", poison=True),
    ],
    triggered_queries=["find a desk now"],
)


def test_apart_is_the_case_as_it_is() -> None:
    assert laid_out(CASE, "apart") is CASE


@pytest.mark.parametrize(
    ("layout", "values"), [("both", ["done at nine", "", "send it away"]), ("note", [""] * 3)]
)
def test_the_text_holds_the_value(layout: str, values: list[str]) -> None:
    stored = laid_out(CASE, layout)  # type: ignore[arg-type]
    assert [memory.key for memory in stored.memories] == [
        "open the canteen\ndone at nine",
        "keep the badges",
        "find a desk\nsend it away",
    ]
    assert [memory.value for memory in stored.memories] == values
    assert stored.name == f"family/attack/n1/{layout}"
    assert stored.poison_ids == CASE.poison_ids
    assert stored.memories[2].origin == "eve"
    assert stored.triggered_queries == CASE.triggered_queries


def test_a_plan_measures_in_its_layout(tiny_data: Path) -> None:
    plan = BenchmarkPlan(
        data=tiny_data,
        families=["agentpoison-ehr191-in"],
        injected=(3,),
        limit=1,
        layout="both",
        defences=("none",),
    )
    (row,) = run_benchmark(plan, {"wordllama": WordLlamaEmbedder})
    assert row["case"].endswith("/n3/both")
    assert row["family"] == "agentpoison-ehr191-in/both"


def test_another_layout_is_refused(tiny_data: Path) -> None:
    with pytest.raises(ConfigError, match=r"--layout 'heap' is not one of apart, both, note"):
        BenchmarkPlan(data=tiny_data, layout="heap")  # type: ignore[arg-type]
