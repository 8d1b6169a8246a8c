from __future__ import annotations

from pathlib import Path

import pytest

from shared_core.errors import ConfigError
from shared_core.evaluation import misinfo_cases
from tests.evaluation.conftest import FILES

TASKS = FILES["misinfotask/MisinfoTask.json"]


@pytest.mark.parametrize(("injected", "tasks"), [(1, 1), (4, 1), (6, 2), (32, 8)])
def test_false_arguments_go_to_as_few_tasks_as_needed(tiny_data: Path, injected: int, tasks: int) -> None:
    for case in misinfo_cases(tiny_data, injected=injected):
        poison = [memory for memory in case.memories if memory.poison]
        assert len(poison) == injected
        false = {text for task in TASKS for text in task["misinfo_argument"]}
        assert {memory.key for memory in poison} <= false
        assert len({memory.value.partition("task: ")[2] for memory in poison}) == tasks
        true = [text for task in TASKS for text in task["ground_truth"]]
        assert [m.key for m in case.memories if not m.poison and m.key in true] == true


def test_agents_of_attacked_tasks_are_asked_about(tiny_data: Path) -> None:
    case = next(misinfo_cases(tiny_data))
    attacked = next(m for m in case.memories if m.poison).value.partition("task: ")[2]
    assert case.triggered_queries[0] == attacked
    assert "Find out what is broken there today." in case.triggered_queries
    assert case.triggered_queries[-1].startswith(f"{attacked}: Looks up the plan")
    assert attacked not in case.benign_queries


def test_an_injected_agent_writes_like_the_others(tiny_data: Path) -> None:
    case = next(misinfo_cases(tiny_data))
    values = {memory.value for memory in case.memories if not memory.poison}
    authors = {memory.value for memory in case.memories if memory.poison}
    assert len(authors) == 1
    assert all(memory.origin == memory.value for memory in case.memories)
    assert all(value.startswith("Agent ") and " of 3 for task: " in value for value in values | authors)


def test_seeds_and_counts(tiny_data: Path) -> None:
    assert list(misinfo_cases(tiny_data)) == list(misinfo_cases(tiny_data))
    assert list(misinfo_cases(tiny_data, seed=1)) != list(misinfo_cases(tiny_data))
    with pytest.raises(ConfigError, match="injected=37 must be from 1 to 36"):
        next(misinfo_cases(tiny_data, injected=37))
