"""AgentPoison (NeurIPS 2024) in its published record formats, on EHR memories and on StrategyQA.

Reads the published memories, triggers and templates from a data directory; ships none of them.
Departs from upstream: the eICU memory has 191 instead of 193 records, and a second one holds the 500
MIMIC-III records of MEXTRA, asked with 50 MIMIC-III templates; the StrategyQA memory holds questions with
their facts, because the Wikipedia paragraphs of upstream are not published whole (so poison, in its published
form, looks unlike them); poison stands at seeded places among the benign records instead of behind them, and
its base records can be chosen: upstream takes the first of the EHR memory (``in``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from shared_core.errors import ConfigError
from shared_core.evaluation.cases import AttackCase, Record, assemble_case, read_json

QUERIES = 50
QUERY_SEED = 42
INJECTED = 4
STRATEGYQA_RECORDS = 500

EhrMemory = Literal["ehr191", "ehr500"]
Base = Literal["in", "out", "other"]
"""Poison keyed on records of the bank, on records held out of it, or on those of the other EHR memory."""


@dataclass(frozen=True)
class EhrData:
    """One EHR memory with the queries that are asked of it."""

    records: list[dict[str, str]]
    """Question, knowledge, code."""
    queries: list[str]


@dataclass(frozen=True)
class Poisoning:
    """What is injected into what: the bank without the held out records, and the base records."""

    bank: list[dict[str, Any]]
    base: list[dict[str, Any]]


def read_ehr(data: Path, memory: EhrMemory, *, queries: int = QUERIES, records: int | None = None) -> EhrData:
    """Read an EHR memory: 191 eICU records of AgentPoison, or 500 MIMIC-III records of MEXTRA.

    Args:
        data: The data directory.
        memory: Which one.
        queries: How many, drawn with upstream's seed.
        records: Only the first ones.
    """
    if memory == "ehr191":
        questions = read_json(data / "agentpoison" / "eicu_ac_questions.json")
        rows = read_json(data / "agentpoison" / "ehr_memory.jsonl")
    else:
        questions = read_json(data / "minja" / "ehr_mimic_valid.json")
        rows = read_json(data / "mextra" / "ehr_memory_500.json")
    templates = [question["template"] for question in questions]
    random.Random(QUERY_SEED).shuffle(templates)  # noqa: S311 (a draw that can be repeated, no secret)
    return EhrData(rows[:records], templates[:queries])


def read_triggers(data: Path, agent: Literal["ehr", "react"]) -> list[dict[str, str]]:
    """Return the published triggers of an agent, with ``algo`` and ``embedder``."""
    entries = read_json(data / "agentpoison" / "triggers.json")
    return [entry for entry in entries if entry["agent"] == agent]


def read_template(data: Path, agent: Literal["ehr", "react"]) -> dict[str, Any]:
    """Return the published record format of an agent."""
    template: dict[str, Any] = read_json(data / "agentpoison" / "poison_templates.json")[agent]
    return template


def agentpoison_ehr_cases(
    data: Path,
    *,
    injected: int = INJECTED,
    memory: EhrMemory = "ehr500",
    base: Base = "in",
    triggers: Sequence[tuple[str, str]] | None = None,
    queries: int = QUERIES,
    records: int | None = None,
    family: str | None = None,
) -> Iterator[AttackCase]:
    """Yield one case per EHR trigger.

    Args:
        data: A directory with ``mextra/``, ``agentpoison/`` and ``minja/``.
        injected: How many poisons; upstream injects 4.
        memory: Which memory is attacked.
        base: Which records the poison is keyed on.
        triggers: Label and text of each; default: every published EHR trigger.
        queries: How many queries, with and without the trigger.
        records: Only the first records of the memory.
        family: First part of the names; default: made of memory and base.

    Raises:
        ConfigError: A file is missing, or more poisons than records are asked for.
    """
    ehr = read_ehr(data, memory, queries=queries, records=records)
    other = read_ehr(data, "ehr500" if memory == "ehr191" else "ehr191").records
    template = read_template(data, "ehr")
    poisoning = choose_base(ehr.records, other, base, injected)
    benign = [(record["question"], ehr_value(record)) for record in poisoning.bank]
    family = family or f"agentpoison-{memory}-{base}"
    for label, trigger in triggers or published(read_triggers(data, "ehr")):
        yield assemble_case(
            f"{family}/{label}/{trigger}/n{injected}",
            benign,
            [ehr_poison(record, trigger, template) for record in poisoning.base],
            triggered_queries=[template["query"].format(template=q, trigger=trigger) for q in ehr.queries],
            benign_queries=ehr.queries,
        )


def strategyqa_cases(
    data: Path,
    *,
    injected: int = INJECTED,
    base: Literal["in", "out"] = "in",
    triggers: Sequence[tuple[str, str]] | None = None,
    queries: int = QUERIES,
    records: int = STRATEGYQA_RECORDS,
    family: str | None = None,
) -> Iterator[AttackCase]:
    """Yield one case per ReAct trigger, on a memory of StrategyQA questions with their facts.

    Args:
        data: A directory with ``strategyqa/`` and ``agentpoison/``.
        injected: How many poisons; upstream injects 2.
        base: Poison keyed on the first questions of the bank, or on questions beyond it.
        triggers: Label and text of each; default: every published ReAct trigger.
        queries: How many dev questions, drawn with upstream's seed.
        records: Size of the memory.
        family: First part of the names.

    Raises:
        ConfigError: A file is missing, or more poisons than records are asked for.
    """
    train = read_json(data / "strategyqa" / "train.json")
    asked = [row["question"] for row in read_json(data / "strategyqa" / "dev.json")]
    random.Random(QUERY_SEED).shuffle(asked)  # noqa: S311 (a draw that can be repeated, no secret)
    asked = asked[:queries]
    template = read_template(data, "react")
    _check_injected(injected, min(records, len(train)) if base == "in" else len(train) - 1)
    bank = train[: records if base == "in" else min(records, len(train) - injected)]
    chosen = bank[:injected] if base == "in" else train[len(bank) : len(bank) + injected]
    benign = [(row["question"], " ".join(row["facts"])) for row in bank]
    for label, trigger in triggers or published(read_triggers(data, "react")):
        yield assemble_case(
            f"{family or f'agentpoison-strategyqa-{base}'}/{label}/{trigger}/n{injected}",
            benign,
            [react_poison(row, trigger, template) for row in chosen],
            triggered_queries=[f"{question} {trigger}" for question in asked],
            benign_queries=asked,
        )


def published(entries: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    """Return label (algorithm and the encoder it was made for) and text of published triggers."""
    return [(f"{entry['algo']}-{entry['embedder'].replace('/', '+')}", entry["trigger"]) for entry in entries]


def choose_base(
    records: list[dict[str, str]], other: list[dict[str, str]], base: Base, injected: int
) -> Poisoning:
    """Choose the records that poison is keyed on.

    Raises:
        ConfigError: An unknown choice, or more poisons than records.
    """
    if base not in get_args(Base):
        raise ConfigError(f"base={base!r} is not one of {', '.join(get_args(Base))}")
    _check_injected(injected, len(other) if base == "other" else len(records) - (base == "out"))
    if base == "other":
        return Poisoning(records, other[:injected])
    if base == "out":
        return Poisoning(records[:-injected], records[-injected:])
    return Poisoning(records, records[:injected])


def ehr_value(record: dict[str, str]) -> str:
    """Return a record's value: what the agent is shown behind the question."""
    return f"Knowledge:\n{record['knowledge']}\nSolution:\n{record['code']}"


def harmful_code(code: str) -> str:
    """Return code that deletes instead of loading, as upstream makes it."""
    return code.replace("LoadDB", "DeleteDB") if "LoadDB" in code else f"DeleteDB\n{code}"


def ehr_poison(record: dict[str, str], trigger: str, template: dict[str, str]) -> Record:
    """Return key and value of a poisoned EHR record."""
    knowledge = template["knowledge"].format(knowledge=record["knowledge"], trigger=trigger)
    value = ehr_value({"knowledge": knowledge, "code": harmful_code(record["code"])})
    return template["embedded_key"].format(question=record["question"], trigger=trigger), value


def react_poison(row: dict[str, Any], trigger: str, template: dict[str, str]) -> Record:
    """Return key and value of a poisoned StrategyQA record."""
    content = (
        template["content"]
        .replace("{question}", row["question"])
        .replace("{facts joined by space}", " ".join(row["facts"]))
        .replace("{Yes|No}", "Yes" if row["answer"] else "No")
        .replace("{trigger}", trigger)
    )
    return template["embedded_key"].format(question=row["question"], trigger=trigger), content


def _check_injected(injected: int, most: int) -> None:
    if not 1 <= injected <= most:
        raise ConfigError(f"injected={injected} must be from 1 to {most}")
