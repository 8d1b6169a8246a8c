"""The attack suite: every family of cases by name, built lazily from the data directory.

A case's name begins with its family: ``family/attack/.../n<injected>``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from shared_core.errors import ConfigError
from shared_core.evaluation.adaptive import Hiding, adaptive_cases
from shared_core.evaluation.agentpoison import (
    INJECTED,
    QUERIES,
    STRATEGYQA_RECORDS,
    Base,
    EhrMemory,
    agentpoison_ehr_cases,
    read_ehr,
    strategyqa_cases,
)
from shared_core.evaluation.cases import AttackCase, read_json
from shared_core.evaluation.minja import QA_RECORDS, minja_drug_cases, minja_patient_cases, minja_qa_cases
from shared_core.evaluation.misinfo import misinfo_cases
from shared_core.evaluation.triggers import TriggerConfig, optimise_trigger
from shared_core.types import Embedder

INJECTED_ALL = (4, 8, 16, 32, 64)
"""Counts of the full suite."""
DRUG_RECORDS = 14
"""Records of the eICU memory that name a drug; no more drug questions can be injected."""
SMALL_RECORDS = 100
SMALL_QUERIES = 10
SMALL_TASKS = 20
SMALL_SEARCH = TriggerConfig(pool=100, screened=16, beam=1, train_queries=4, substitutions=8)


@dataclass(frozen=True, kw_only=True)
class SuiteContext:
    """What every family is built from."""

    data: Path
    small: bool = False
    embedder: Embedder | None = None
    seed: int = 0
    search: TriggerConfig = field(default_factory=TriggerConfig)
    triggers: dict[str, str] = field(default_factory=dict)
    """Triggers found so far, by memory; a search is made once."""

    @property
    def queries(self) -> int:
        """How many queries a case asks."""
        return SMALL_QUERIES if self.small else QUERIES

    def records(self, most: int | None = None) -> int | None:
        """How many records a memory has: all of them unless small."""
        return SMALL_RECORDS if self.small else most

    def trigger(self, memory: str) -> str:
        """Return a trigger for a memory and the embedder, optimised on queries that no case asks."""
        if memory not in self.triggers:
            keys, queries = self._attacked(memory)
            found = optimise_trigger(keys, queries, self.model(), config=self.search)
            self.triggers[memory] = found.trigger
        return self.triggers[memory]

    def model(self) -> Embedder:
        """Return the embedder itself, not a cache: a search tries thousands of texts once each."""
        if self.embedder is None:
            raise ConfigError("families 'optimised' and 'adaptive' are made for an embedder: give one")
        inner: Embedder = getattr(self.embedder, "inner", self.embedder)
        return inner

    def _attacked(self, memory: str) -> tuple[list[str], list[str]]:
        beyond = self.queries + self.search.train_queries
        if memory == "strategyqa":
            rows = read_json(self.data / "strategyqa" / "train.json")
            count = self.records(STRATEGYQA_RECORDS)
            keys = [row["question"] for row in rows[:count]]
            return keys, [row["question"] for row in rows[-self.search.train_queries :]]
        ehr = read_ehr(self.data, memory, queries=beyond, records=self.records())  # type: ignore[arg-type]
        return [record["question"] for record in ehr.records], ehr.queries[self.queries :]


Family: TypeAlias = Callable[[SuiteContext, int], Iterator[AttackCase]]


def attack_suite(
    data: Path,
    *,
    families: Sequence[str] | None = None,
    injected: Sequence[int] = (INJECTED,),
    small: bool = False,
    embedder: Embedder | None = None,
    seed: int = 0,
    search: TriggerConfig | None = None,
    triggers: dict[str, str] | None = None,
) -> Iterator[AttackCase]:
    """Yield the cases of the suite one by one.

    Args:
        data: The data directory.
        families: Names of ``FAMILIES``, or the beginnings of names such as ``minja``; ``all`` for all of
            them. Default: all, but without an embedder those that need none.
        injected: How many poisons; each count makes its own cases. The 14 drug questions of MINJA are left
            out of larger counts.
        small: One cheap case per family: small memories, few queries, the first count only.
        embedder: The one under attack, for the families ``optimised`` and ``adaptive``.
        seed: Of every draw.
        search: How long triggers are searched.
        triggers: Triggers by memory that were found before; what is found is added.

    Raises:
        ConfigError: An unknown family, a missing file, or no embedder where one is needed.
    """
    chosen = select_families(families, searching=embedder is not None)
    context = SuiteContext(
        data=data,
        small=small,
        embedder=embedder,
        seed=seed,
        search=search or replace(SMALL_SEARCH if small else TriggerConfig(), seed=seed),
        triggers={} if triggers is None else triggers,
    )
    for name in chosen:
        for count in injected[:1] if small else injected:
            yield from islice(FAMILIES[name](context, count), 1 if small else None)


def select_families(families: Sequence[str] | None, *, searching: bool = True) -> list[str]:
    """Return the names of families that were asked for, in the order of the suite.

    Args:
        families: See ``attack_suite``.
        searching: Whether the default has the families whose triggers are searched.

    Raises:
        ConfigError: No family is called so.
    """
    if families is None:
        return [name for name in FAMILIES if searching or not needs_search(name)]
    for asked in families:
        if not any(_is_of(name, asked) for name in FAMILIES):
            raise ConfigError(f"--family {asked!r} is not one of all, {', '.join(FAMILIES)}")
    return [name for name in FAMILIES if any(_is_of(name, asked) for asked in families)]


def needs_search(family: str) -> bool:
    """Tell whether a family's trigger is searched for the embedder."""
    return family.startswith(("optimised-", "adaptive-"))


def _is_of(name: str, asked: str) -> bool:
    return asked in {"all", name} or name.startswith(f"{asked}-")


def _ehr(memory: EhrMemory, base: Base, *, optimised: bool = False) -> Family:
    def cases(context: SuiteContext, injected: int) -> Iterator[AttackCase]:
        options: dict[str, Any] = {}
        if optimised:
            options = {
                "triggers": [("search", context.trigger(memory))],
                "family": f"optimised-{memory}-{base}",
            }
        return agentpoison_ehr_cases(
            context.data,
            injected=injected,
            memory=memory,
            base=base,
            queries=context.queries,
            records=context.records(),
            **options,
        )

    return cases


def _strategyqa(base: Any, *, optimised: bool = False) -> Family:
    def cases(context: SuiteContext, injected: int) -> Iterator[AttackCase]:
        options: dict[str, Any] = {}
        if optimised:
            found = ("search", context.trigger("strategyqa"))
            options = {"triggers": [found], "family": f"optimised-strategyqa-{base}"}
        return strategyqa_cases(
            context.data,
            injected=injected,
            base=base,
            queries=context.queries,
            records=context.records(STRATEGYQA_RECORDS) or STRATEGYQA_RECORDS,
            **options,
        )

    return cases


def _both(make: Callable[..., Iterator[AttackCase]], injected: int, **options: Any) -> Iterator[AttackCase]:
    for trail in (False, True):
        yield from make(injected=injected, trail=trail, **options)


def _patients(context: SuiteContext, injected: int) -> Iterator[AttackCase]:
    return _both(
        minja_patient_cases,
        injected,
        data=context.data,
        queries=context.queries,
        records=context.records(),
        seed=context.seed,
    )


def _drugs(context: SuiteContext, injected: int) -> Iterator[AttackCase]:
    if injected > DRUG_RECORDS:
        return iter(())
    return _both(minja_drug_cases, injected, data=context.data, queries=context.queries, seed=context.seed)


def _qa(context: SuiteContext, injected: int) -> Iterator[AttackCase]:
    return _both(
        minja_qa_cases,
        injected,
        data=context.data,
        queries=context.queries,
        records=context.records(QA_RECORDS),
        seed=context.seed,
    )


def _misinfo(context: SuiteContext, injected: int) -> Iterator[AttackCase]:
    tasks = SMALL_TASKS if context.small else None
    return misinfo_cases(
        context.data, injected=injected, queries=context.queries, tasks=tasks, seed=context.seed
    )


def _adaptive(way: Hiding) -> Family:
    def cases(context: SuiteContext, injected: int) -> Iterator[AttackCase]:
        return adaptive_cases(
            context.data,
            context.trigger("ehr500"),
            context.embedder or context.model(),
            injected=injected,
            hiding=(way,),
            queries=context.queries,
            records=context.records(),
            seed=context.seed,
        )

    return cases


FAMILIES: dict[str, Family] = {
    "agentpoison-ehr191-in": _ehr("ehr191", "in"),
    "agentpoison-ehr191-out": _ehr("ehr191", "out"),
    "agentpoison-ehr191-other": _ehr("ehr191", "other"),
    "agentpoison-ehr500-in": _ehr("ehr500", "in"),
    "agentpoison-ehr500-out": _ehr("ehr500", "out"),
    "agentpoison-ehr500-other": _ehr("ehr500", "other"),
    "agentpoison-strategyqa-in": _strategyqa("in"),
    "agentpoison-strategyqa-out": _strategyqa("out"),
    "minja-patient": _patients,
    "minja-drug": _drugs,
    "minja-qa": _qa,
    "misinfo": _misinfo,
    "optimised-ehr191-in": _ehr("ehr191", "in", optimised=True),
    "optimised-ehr191-out": _ehr("ehr191", "out", optimised=True),
    "optimised-ehr500-in": _ehr("ehr500", "in", optimised=True),
    "optimised-ehr500-out": _ehr("ehr500", "out", optimised=True),
    "optimised-strategyqa-in": _strategyqa("in", optimised=True),
    "optimised-strategyqa-out": _strategyqa("out", optimised=True),
    "adaptive-imitate": _adaptive("imitate"),
    "adaptive-wording": _adaptive("wording"),
    "adaptive-spread": _adaptive("spread"),
    "adaptive-all": _adaptive("all"),
}
"""Every family, the published attacks first."""
