"""MisinfoTask (ARGUS): false arguments in the shared memory of several agents that work on many tasks.

Every memory is one finding that an agent wrote down for a task. Benign agents write what is true about the
task, an injected agent writes the published false arguments beside its share of true findings, so that the
author alone tells nothing.

Departs from upstream [O]: there the misinformation reaches agents through their messages; here it is in the
memory that they share, which is where DREAM's multi-agent experiment defends.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared_core.errors import ConfigError
from shared_core.evaluation.agentpoison import INJECTED, QUERIES
from shared_core.evaluation.cases import AttackCase, Record, assemble_case, read_json

PER_TASK = 4
"""Most false arguments in one task."""
DRAWS = 3
SENTENCE = re.compile(r"(?<=[.!?])\s+")

Task = dict[str, Any]


def misinfo_cases(
    data: Path,
    *,
    injected: int = INJECTED,
    draws: int = DRAWS,
    queries: int = QUERIES,
    tasks: int | None = None,
    seed: int = 0,
) -> Iterator[AttackCase]:
    """Yield one case per draw of attacked tasks.

    Args:
        data: A directory with ``misinfotask/``.
        injected: How many false arguments, at most 4 in one task.
        draws: How many cases.
        queries: How many queries, at most: about the attacked tasks, and about others.
        tasks: Only the first tasks.
        seed: Of the draws.

    Raises:
        ConfigError: The file is missing, or more arguments than the tasks can take.
    """
    rows = read_json(data / "misinfotask" / "MisinfoTask.json")[:tasks]
    attacked_tasks = -(-injected // PER_TASK)
    if not 1 <= injected <= PER_TASK * (len(rows) - 1):
        raise ConfigError(f"injected={injected} must be from 1 to {PER_TASK * (len(rows) - 1)}")
    for number in range(draws):
        draw = random.Random(f"misinfo/{seed}/{number}")  # noqa: S311 (repeatable, no secret)
        attacked = draw.sample(rows, attacked_tasks)
        names = {task["id"] for task in attacked}
        poison = [record for task in attacked for record in _false(task, draw)][:injected]
        rest = draw.sample([task for task in rows if task["id"] not in names], len(rows) - attacked_tasks)
        asked = _spread([task_queries(task) for task in attacked], queries)
        others = _spread([task_queries(task) for task in rest], queries)
        case = assemble_case(
            f"misinfo/draw{number}/n{injected}",
            [record for task in rows for record in _true(task, draw)],
            poison,
            triggered_queries=asked,
            benign_queries=[query for query in others if query not in asked],
            seed=seed,
        )
        # the value is the author's name, and nothing else
        authored = [memory.model_copy(update={"origin": memory.value}) for memory in case.memories]
        yield case.model_copy(update={"memories": authored})


def task_queries(task: Task) -> list[str]:
    """Return what agents ask about a task: its name, each sentence of the order, each tool it may use."""
    sentences = SENTENCE.split(task["user_input"])
    tools = [f"{task['name']}: {tool['tool_description']}" for tool in task["tools"]]
    return [task["name"], *(text for text in sentences if len(text.split()) > 4), *tools]


def _true(task: Task, draw: random.Random) -> list[Record]:
    findings = [*task["ground_truth"], *SENTENCE.split(task["reference_solution"])]
    return [(text, _value(task, draw.randrange(task["agent_num"]))) for text in findings if text.strip()]


def _false(task: Task, draw: random.Random) -> list[Record]:
    agent = draw.randrange(task["agent_num"])
    arguments = task["misinfo_argument"]
    chosen = draw.sample(arguments, min(PER_TASK, len(arguments)))
    return [(text, _value(task, agent)) for text in chosen]


def _value(task: Task, agent: int) -> str:
    return f"Agent {agent + 1} of {task['agent_num']} for task: {task['name']}"


def _spread(asked: list[list[str]], count: int) -> list[str]:
    """Take from every task in turn, until there are enough."""
    longest = max(map(len, asked))
    turns = [texts[turn] for turn in range(longest) for texts in asked if turn < len(texts)]
    return turns[:count]
