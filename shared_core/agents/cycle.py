"""The dream cycle: a memory asks itself, finds out what it misses, and repairs it.

Joins the agents to a bank: takes its lock, reads the snapshot, and writes every kept repair as a run of its
own under one run of the cycle, so that each, and all, can be undone.

Source: MemDream section 3.2 [S]; design 4.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.agents.cycle_report import (
    Approve,
    CycleReport,
    KeptRepair,
    OnEvent,
    RoundReport,
    StoppedBy,
    tell,
)
from shared_core.agents.dream_config import DreamConfig
from shared_core.agents.dreaming import Dreaming, Write
from shared_core.agents.llm_agents import LlmAgents, llm_agents
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.agents.rule_dreamer import RuleDreamer
from shared_core.agents.tenant_parts import TenantPart, TenantParts, check_tenant_keys
from shared_core.agents.weakness import usable
from shared_core.agents.writing import begin_cycle, write_repair
from shared_core.bank import intake
from shared_core.bank.graph import GraphKeys, MemoryGraph, read_graph
from shared_core.bank.repairing import Repair, heeding, remove_unborn
from shared_core.bank.tenants import known_tenant_keys, owner_of
from shared_core.errors import ConfigError, InvalidMemoryError
from shared_core.telemetry import told, traced

if TYPE_CHECKING:
    from shared_core.agents.asking import AskingLimits, AskingReport
    from shared_core.agents.protocol import Analyst, Consolidator, Dreamer
    from shared_core.bank.lock import BankLock
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.chat import ChatModel
    from shared_core.language import EntityExtractor
    from shared_core.types import Embedder

LEAST_SECONDS = 1e-9
_BUDGETS: tuple[StoppedBy, ...] = ("repairs", "rounds")
"""Of what can end the dream of one tenant, what says most about all of them, most first."""


class DreamCycle:
    """Probes a bank, diagnoses what retrieval misses, repairs it, and keeps what verification finds good.

    ::

        report = DreamCycle(bank).run()
        bank.undo(report.run_id)  # or one repair: bank.undo(report.repairs[0].run_id)

    Args:
        bank: With the embedder that it was filled with.
        dreamer, analyst, consolidator: Default: by rules, without a language model.
        config: Options.
        graph_keys: Metadata fields that say where a memory belongs; default: those of our own pages.
        extractor: Finds entities, such as ``SpacyExtractor`` or one that asks a model; default: the rules.
        asking: Report of the agents' chat model, for the report of the cycle; each run counts anew.

    Raises:
        ConfigError: The bank has no embedder.
    """

    def __init__(
        self,
        bank: MemoryBank,
        *,
        dreamer: Dreamer | None = None,
        analyst: Analyst | None = None,
        consolidator: Consolidator | None = None,
        config: DreamConfig | None = None,
        graph_keys: GraphKeys | None = None,
        extractor: EntityExtractor | None = None,
        asking: AskingReport | None = None,
    ) -> None:
        if bank.embedder is None:
            raise ConfigError(
                "probes are embedded: open the bank with embedder=..., the one it was filled with"
            )
        self.bank = bank
        self.config = config or DreamConfig()
        self.dreamer = dreamer or RuleDreamer()
        self.analyst = analyst or RuleAnalyst()
        self.consolidator = consolidator or RuleConsolidator(self.config.gamma)
        self.graph_keys = graph_keys
        self.extractor = extractor
        self.asking = asking
        self._embedder: Embedder = bank.embedder

    @classmethod
    def with_model(
        cls,
        bank: MemoryBank,
        model: ChatModel,
        *,
        limits: AskingLimits | None = None,
        config: DreamConfig | None = None,
        graph_keys: GraphKeys | None = None,
    ) -> DreamCycle:
        """Return a cycle whose agents ask a chat model, and fall back to the rules; see ``llm_agents``."""
        config = config or DreamConfig()
        made = llm_agents(model, limits, gamma=config.gamma)
        return cls.with_agents(bank, made, config=config, graph_keys=graph_keys)

    @classmethod
    def with_agents(
        cls,
        bank: MemoryBank,
        agents: LlmAgents,
        *,
        config: DreamConfig | None = None,
        graph_keys: GraphKeys | None = None,
    ) -> DreamCycle:
        """Return a cycle with agents that ask a model, such as ``llm_agents`` or trained ``lora_agents``."""
        return cls(
            bank,
            dreamer=agents.dreamer,
            analyst=agents.analyst,
            consolidator=agents.consolidator,
            config=config,
            graph_keys=graph_keys,
            asking=agents.report,
        )

    @traced("dream.cycle", told.cycle, logged=True)
    def run(
        self,
        *,
        dry_run: bool = False,
        stop: Callable[[], bool] | None = None,
        on_event: OnEvent | None = None,
        approve: Approve | None = None,
    ) -> CycleReport:
        """Dream once.

        Args:
            dry_run: Propose and verify, and write nothing.
            stop: Asked between repairs; True ends the cycle there, and what was repaired stays.
            on_event: Told of every step; what it raises is logged and does not end the dream.
            approve: Asked before a verified repair is written; what it refuses is left. Not asked in a dry
                run, whose repairs are the proposals.

        Raises:
            BankLockedError: Another dreamer is at work (not raised by a dry run, which writes nothing).
            DimensionMismatchError: The bank's embedder is not the one that it was filled with.
            ConfigError: The bank was opened with a filter that is more than equalities (a dry run may be).
        """
        started = time.perf_counter()
        if self.asking is not None:
            self.asking.begin()
        self._check_embedder()
        if not dry_run:
            # before anything is written: what a dream derives must lie inside the filter
            intake.in_scope({}, self.bank.content.where)
        named = known_tenant_keys(self.bank.state, self.config.tenant_keys)
        config = replace(self.config, tenant_keys=named or self.config.tenant_keys)
        with ExitStack() as stack:
            run_id, write = None, None
            if not dry_run:
                lock = stack.enter_context(self.bank.state.lock("cycle", wait=0.0))
                remove_unborn(self.bank, lock)
            graph = read_graph(self.bank, self.graph_keys, extractor=self.extractor, tenant_keys=named)
            check_tenant_keys(graph, self.config.tenant_keys or ())
            earlier = len(self.bank.state.runs(kinds=["cycle"]))
            if not dry_run:
                run_id = begin_cycle(self.bank, lock, config.to_dict())
                write = partial(self._write, graph, named, lock, run_id)
            tell(on_event, "start", 0, {"memories": len(graph), "usable": len(usable(graph))})
            rng = np.random.default_rng(config.seed + earlier)
            parts = TenantParts(graph, self.bank.state.retrieval_keys(), named, rng)
            heed = heeding(self.bank)
            dream = partial(self._dreaming, config, earlier, write, stop, on_event, approve, heed)
            dreams, ended = _dream_all(parts, config.seconds, dream)
            seconds = time.perf_counter() - started
            report = self._report(graph, config, parts, dreams, ended, run_id, seconds)
            if run_id is not None:
                self.bank.state.amend_report(run_id, _journalled(report))
        tell(on_event, "end", report.rounds[-1].number if report.rounds else 0, report.to_dict())
        return report

    async def arun(self, **options: Any) -> CycleReport:
        """``run`` in a thread, without blocking the event loop; cancelling stops it at the next repair."""
        asked = options.pop("stop", None)
        cancelled = False

        def stop() -> bool:
            return cancelled or (asked is not None and asked())

        work = asyncio.ensure_future(asyncio.to_thread(self.run, stop=stop, **options))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled = True
            await asyncio.wait([work])
            raise

    # ---- inner

    def _check_embedder(self) -> None:
        matrix = intake.as_matrix([self._embedder.embed_query("dimension")])
        intake.check_embeddings(matrix, 1, self.bank.content.dimension(), self.bank.content.name)

    def _dreaming(
        self,
        config: DreamConfig,
        earlier: int,
        write: Write | None,
        stop: Callable[[], bool] | None,
        on_event: OnEvent | None,
        approve: Approve | None,
        heed: Callable[[Repair], Repair],
        part: TenantPart,
        seconds: float,
    ) -> Dreaming:
        return Dreaming(
            graph=part.graph,
            embedder=self._embedder,
            dreamer=self.dreamer,
            analyst=self.analyst,
            consolidator=self.consolidator,
            config=replace(config, seconds=seconds),
            write=write,
            earlier=earlier,
            keys=part.keys,
            tenant=part.tenant,
            stop=stop,
            on_event=on_event,
            approve=approve,
            heed=heed,
        )

    def _write(
        self, graph: MemoryGraph, tenant_keys: Sequence[str], lock: BankLock, parent: str, repair: Repair
    ) -> str:
        if repair.memories:
            _check_unchanged(self.bank, graph, repair)
        else:
            repair = _of_unchanged(self.bank, graph, repair, tenant_keys)
        return write_repair(self.bank, repair, lock, parent, tenant_keys)

    def _report(
        self,
        graph: MemoryGraph,
        config: DreamConfig,
        parts: TenantParts,
        dreams: Sequence[_Dreamt],
        ended: StoppedBy,
        run_id: str | None,
        seconds: float,
    ) -> CycleReport:
        probes = sum(one.probes for one in dreams)
        before, after = (
            sum(one.f1[at] * one.probes for one in dreams) / probes if probes else 1.0 for at in (0, 1)
        )
        return CycleReport(
            run_id=run_id,
            dry_run=run_id is None,
            memories=len(graph),
            usable=len(usable(graph)),
            tenants=len(parts),
            dreamt=len(dreams),
            rounds=[one for each in dreams for one in each.rounds],
            repairs=[one for each in dreams for one in each.kept],
            f1_before=before,
            f1_after=after,
            stopped_by=ended,
            agents=dict(self.asking.to_dict()) if self.asking else {},
            seconds=seconds,
            config=config.to_dict(),
        )


@dataclass(frozen=True)
class _Dreamt:
    """What is kept of a dream, whose graph and rankings would else all be held until the last one ends."""

    rounds: list[RoundReport]
    kept: list[KeptRepair]
    probes: int
    f1: tuple[float, float]


def _dream_all(
    parts: TenantParts, seconds: float, dream: Callable[[TenantPart, float], Dreaming]
) -> tuple[list[_Dreamt], StoppedBy]:
    """Dream of each part until the time is up or somebody says stop; returns what came of it and its end.

    Args:
        parts: At least one.
        seconds: For all of them.
        dream: Makes the dream of a part that ends after some seconds.
    """
    started, dreams, endings = time.monotonic(), list[_Dreamt](), list[StoppedBy]()
    for part in parts:
        left = seconds - (time.monotonic() - started)
        if dreams and left <= 0:
            return dreams, "seconds"
        dreaming = dream(part, max(left, LEAST_SECONDS))
        endings.append(dreaming.run())
        dreams.append(_Dreamt(dreaming.rounds, dreaming.kept, len(dreaming.verifier.first), dreaming.f1))
        if endings[-1] in ("seconds", "cancelled"):
            return dreams, endings[-1]
    return dreams, next((end for end in _BUDGETS if end in endings), "converged")


def _journalled(report: CycleReport) -> dict[str, Any]:
    """Return the report for the journal, which holds each repair's own already."""
    kept = report.to_dict()
    return {**kept, "repairs": [repair.run_id for repair in report.repairs]}


def _check_unchanged(bank: MemoryBank, graph: MemoryGraph, repair: Repair) -> None:
    """Refuse a repair of memories whose text somebody rewrote since the snapshot.

    Raises:
        InvalidMemoryError: A text is not what the repair was made from.
    """
    quoted = {source for memory in repair.memories for source in memory.sources}
    held = bank.content.get(sorted(quoted | set(repair.weights)))
    for memory_id, record in held.items():
        if record.text != graph.texts[graph.row_of[memory_id]]:
            raise InvalidMemoryError(f"memory {memory_id!r} was rewritten while the dream read it")


def _of_unchanged(bank: MemoryBank, graph: MemoryGraph, repair: Repair, tenant_keys: Sequence[str]) -> Repair:
    """Return a repair without the memories that are gone, or have another text or owner than they had."""
    ends = {end for edge in repair.edges for end in (edge.source, edge.target)}
    named = sorted({key.memory_id for key in repair.keys} | ends | set(repair.weights))
    held = bank.content.get(named)
    gone = bank.state.columns().gather(named, "deleted") != 0.0
    same = {
        memory_id
        for memory_id, deleted in zip(named, gone, strict=True)
        if not deleted
        and memory_id in held
        and held[memory_id].text == graph.texts[graph.row_of[memory_id]]
        and owner_of(held[memory_id].metadata, tenant_keys) == graph.owners[graph.row_of[memory_id]]
    }
    return replace(
        repair,
        keys=tuple(key for key in repair.keys if key.memory_id in same),
        edges=tuple(edge for edge in repair.edges if {edge.source, edge.target} <= same),
        weights={memory_id: weight for memory_id, weight in repair.weights.items() if memory_id in same},
    )
