"""The poisoning benchmark: families x injected counts x defences x embedders, resumable.

Does: iterate, skip what a file of rows holds already, write each case's rows at once, search a trigger once.

Does not know: how a case is built or a defence measured (``suite``, ``poison``), how rows become a table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared_core.config import AgentKind
from shared_core.errors import ConfigError
from shared_core.evaluation.agentpoison import INJECTED
from shared_core.evaluation.defences import DEFAULT_DEFENCES, check_defence
from shared_core.evaluation.layouts import Layout, check_layout, laid_out, layout_name
from shared_core.evaluation.poison import CachedEmbedder, evaluate_case
from shared_core.evaluation.saved import Key, Row, SavedRows, SavedTriggers, key_of
from shared_core.evaluation.slow import evaluate_slow, slow_name
from shared_core.evaluation.suite import attack_suite, select_families

if TYPE_CHECKING:
    from shared_core.evaluation.cases import AttackCase
    from shared_core.types import Embedder, Progress


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan:
    """What is measured: every case of every family and count, with every defence.

    Raises:
        ConfigError: There is nothing to measure, or a name or number is wrong.
    """

    defences: Sequence[str] = DEFAULT_DEFENCES
    cases: Sequence[AttackCase] = ()
    """Cases of the user's own, before those of the data directory."""
    data: Path | None = None
    families: Sequence[str] | None = None
    """See ``attack_suite``; default: those whose triggers are published."""
    injected: Sequence[int] = (INJECTED,)
    """Poisons per case of ``data``."""
    per_family: int | None = None
    """Draw at most so many cases of a family, by ``seed``; the same ones for every count and embedder."""
    small: bool = False
    """One cheap case per family, the first count only."""
    agent: AgentKind = "structured"
    seed: int = 0
    limit: int | None = None
    """Only the first cases, of each embedder."""
    arrive: int | None = None
    """Poisons between two runs of a defence, see ``slow``; default: all are there before the first."""
    layout: Layout = "apart"
    """How memories are stored, see ``layouts``."""

    def __post_init__(self) -> None:
        for name in self.defences:
            check_defence(name)
        select_families(self.families)
        check_layout(self.layout)
        if self.data is None and not self.cases:
            raise ConfigError("nothing to evaluate: give --data DIR or --case FILE")
        if self.per_family is not None and self.per_family < 1:
            raise ConfigError(f"--cases-per-family {self.per_family} must be at least 1")
        if self.arrive is not None and self.arrive < 1:
            raise ConfigError(
                f"--arrive {self.arrive} must be at least 1: how many poisons come between runs"
            )

    def settings(self) -> Row:
        """Return what makes a row of the same case another row."""
        return {"agent": self.agent, "seed": self.seed, "small": self.small}


def run_benchmark(
    plan: BenchmarkPlan,
    embedders: Mapping[str, Callable[[], Embedder]],
    *,
    rows: SavedRows | None = None,
    triggers: SavedTriggers | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Measure what a plan says, and return its rows, also those that were measured before.

    Args:
        plan: What is measured.
        embedders: By the name that rows carry, how each is made; one is held at a time.
        rows: Measured before; new ones are appended case by case.
        triggers: Found before; new ones are added.
        progress: Told after each case.

    Raises:
        ConfigError: A file of the data directory is missing, or cannot give so many poisons.
        MissingExtraError: An embedder or a defence needs a package that is not installed.
    """
    rows, triggers = rows or SavedRows(None), triggers or SavedTriggers(None)
    found: list[Row] = []
    done = 0
    for name, make in embedders.items():
        embedder = CachedEmbedder(make())
        known = triggers.of(name, small=plan.small, seed=plan.seed)
        for injected, case in islice(planned_cases(plan, embedder, known), plan.limit):
            keys = {defence: _key(plan, case, defence, name) for defence in plan.defences}
            missing = [defence for defence, key in keys.items() if rows.find(key) is None]
            if missing:
                rows.append(_measured(plan, case, injected, missing, embedder, name))
            found += [row for key in keys.values() if (row := rows.find(key)) is not None]
            done += 1
            if progress is not None:
                progress("cases", done, done if plan.limit is None else plan.limit * len(embedders))
    return found


def planned_cases(
    plan: BenchmarkPlan, embedder: Embedder, triggers: dict[str, str] | None = None
) -> Iterator[tuple[int, AttackCase]]:
    """Yield the plan's cases with the count that each was made for.

    Args:
        plan: What is measured.
        embedder: The one under attack.
        triggers: Found before, by memory; what is found is added.
    """
    for case in plan.cases:
        yield len(case.poison_ids), laid_out(case, plan.layout)
    if plan.data is None:
        return
    for family in select_families(plan.families, searching=False):
        for count in plan.injected[:1] if plan.small else plan.injected:
            cases = attack_suite(
                plan.data,
                families=[family],
                injected=[count],
                small=plan.small,
                embedder=embedder,
                seed=plan.seed,
                triggers=triggers,
            )
            for case in cases if plan.per_family is None else draw_cases(cases, family, plan):
                yield count, laid_out(case, plan.layout)


def draw_cases(cases: Iterator[AttackCase], family: str, plan: BenchmarkPlan) -> list[AttackCase]:
    """Return ``plan.per_family`` of a family's cases, in their order; all of them where there are no more."""
    every = list(cases)
    draw = random.Random(f"cases/{plan.seed}/{family}")  # noqa: S311 (a draw that can be repeated, no secret)
    # a whole permutation, so that fewer cases are some of those that more would be
    chosen = draw.sample(range(len(every)), len(every))[: plan.per_family]
    return [every[row] for row in sorted(chosen)]


def family_of(case: str) -> str:
    """Return the family that the name of a case begins with."""
    return case.split("/", 1)[0]


def _key(plan: BenchmarkPlan, case: AttackCase, defence: str, embedder: str) -> Key:
    name = case.name if plan.arrive is None else slow_name(case.name, plan.arrive)
    return key_of({"case": name, "defence": defence, "embedder": embedder, **plan.settings()})


def _measured(
    plan: BenchmarkPlan,
    case: AttackCase,
    injected: int,
    defences: Sequence[str],
    embedder: Embedder,
    embedder_name: str,
) -> list[Row]:
    options: dict[str, Any] = {
        "embedder_name": embedder_name,
        "agent": plan.agent,
        "seed": plan.seed,
        "data": plan.data,
    }
    if plan.arrive is None:
        measured = evaluate_case(case, defences, embedder, **options)
    else:
        measured = evaluate_slow(case, defences, embedder, batch=plan.arrive, **options)
    family = layout_name(family_of(case.name), plan.layout)
    if plan.arrive is not None:
        family = slow_name(family, plan.arrive)
    made_from = {"family": family, "injected": injected, **plan.settings()}
    return [{**row.to_dict(), **made_from} for row in measured]
