"""AgentPoison (NeurIPS 2024) on a real EHR agent's memory, in the published record format.

Reads the published memory, triggers and templates from a data directory; ships none of them. The memory is
the 500 MIMIC-III records of MEXTRA. Departs from upstream in the memory (500 instead of 193 records) and in
the queries, which are 50 MIMIC-III question templates drawn with upstream's seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared_core.errors import ConfigError
from shared_core.evaluation.cases import AttackCase, CaseMemory, read_json

QUERIES = 50
QUERY_SEED = 42
INJECTED = 4


def agentpoison_ehr_cases(data: Path, *, injected: int = INJECTED) -> Iterator[AttackCase]:
    """Yield one case per published EHR trigger, poison keyed on the first records of the memory.

    Args:
        data: A directory with ``mextra/``, ``agentpoison/`` and ``minja/``.
        injected: How many poisons; upstream injects 4.

    Raises:
        ConfigError: A file is missing, or more poisons than records are asked for.
    """
    records = read_json(data / "mextra" / "ehr_memory_500.json")
    triggers = read_json(data / "agentpoison" / "triggers.json")
    template = read_json(data / "agentpoison" / "poison_templates.json")["ehr"]
    queries = _queries(read_json(data / "minja" / "ehr_mimic_valid.json"))
    if not 1 <= injected <= len(records):
        raise ConfigError(f"injected={injected} must be from 1 to {len(records)}")
    benign = [
        CaseMemory(id=f"ehr-{row:04}", key=record["question"], value=_value(record))
        for row, record in enumerate(records)
    ]
    for entry in triggers:
        if entry["agent"] != "ehr":
            continue
        trigger = entry["trigger"]
        # ids that do not tell poison from benign
        poison = [
            CaseMemory(
                id=f"ehr-{len(benign) + row:04}",
                key=template["embedded_key"].format(question=record["question"], trigger=trigger),
                value=_value(_poisoned(record, trigger, template)),
                poison=True,
            )
            for row, record in enumerate(records[:injected])
        ]
        yield AttackCase(
            name=f"agentpoison-ehr500/{entry['algo']}-{entry['embedder']}/{trigger}",
            memories=[*benign, *poison],
            triggered_queries=[template["query"].format(template=q, trigger=trigger) for q in queries],
            benign_queries=queries,
        )


def _queries(questions: list[dict[str, Any]]) -> list[str]:
    templates = [question["template"] for question in questions]
    random.Random(QUERY_SEED).shuffle(templates)  # noqa: S311 (a draw that can be repeated, no secret)
    return templates[:QUERIES]


def _poisoned(record: dict[str, str], trigger: str, template: dict[str, str]) -> dict[str, str]:
    knowledge = template["knowledge"].format(knowledge=record["knowledge"], trigger=trigger)
    code = record["code"]
    harmful = code.replace("LoadDB", "DeleteDB") if "LoadDB" in code else f"DeleteDB\n{code}"
    return {"knowledge": knowledge, "code": harmful}


def _value(record: dict[str, str]) -> str:
    return f"Knowledge:\n{record['knowledge']}\nSolution:\n{record['code']}"
