"""The dream cycle: a memory asks itself, finds out what it misses, and repairs it.

Joins the agents to a bank: takes its lock, reads the snapshot, and writes every kept repair as a run of its
own under one run of the cycle, so that each, and all, can be undone.

Source: MemDream section 3.2 [S]; design 4.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shared_core.agents.cycle_report import Approve, CycleReport, OnEvent, StoppedBy
from shared_core.agents.dream_config import DreamConfig
from shared_core.agents.dreaming import Dreaming, Write
from shared_core.agents.llm_agents import LlmAgents, llm_agents
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.agents.rule_dreamer import RuleDreamer
from shared_core.agents.writing import begin_cycle, write_repair
from shared_core.bank import intake
from shared_core.bank.graph import GraphKeys, MemoryGraph, read_graph
from shared_core.bank.repairing import Repair, remove_unborn
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
        """
        started = time.perf_counter()
        if self.asking is not None:
            self.asking.begin()
        self._check_embedder()
        with ExitStack() as stack:
            run_id, write = None, None
            if not dry_run:
                lock = stack.enter_context(self.bank.state.lock("cycle", wait=0.0))
                remove_unborn(self.bank, lock)
            graph = read_graph(self.bank, self.graph_keys, extractor=self.extractor)
            earlier = len(self.bank.state.runs(kinds=["cycle"]))
            if not dry_run:
                run_id = begin_cycle(self.bank, lock, self.config.to_dict())
                write = partial(self._write, graph, lock, run_id)
            dreaming = self._dreaming(graph, earlier, write, stop, on_event, approve)
            ended = dreaming.run()
            report = self._report(dreaming, ended, run_id, time.perf_counter() - started)
            if run_id is not None:
                self.bank.state.amend_report(run_id, _journalled(report))
        dreaming.tell("end", report.to_dict())
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
        graph: MemoryGraph,
        earlier: int,
        write: Write | None,
        stop: Callable[[], bool] | None,
        on_event: OnEvent | None,
        approve: Approve | None,
    ) -> Dreaming:
        return Dreaming(
            graph=graph,
            embedder=self._embedder,
            dreamer=self.dreamer,
            analyst=self.analyst,
            consolidator=self.consolidator,
            config=self.config,
            write=write,
            earlier=earlier,
            keys=self.bank.state.retrieval_keys(),
            stop=stop,
            on_event=on_event,
            approve=approve,
        )

    def _write(self, graph: MemoryGraph, lock: BankLock, parent: str, repair: Repair) -> str:
        if repair.memories:
            _check_unchanged(self.bank, graph, repair)
        else:
            repair = _of_unchanged(self.bank, graph, repair)
        return write_repair(self.bank, repair, lock, parent)

    def _report(
        self, dreaming: Dreaming, ended: StoppedBy, run_id: str | None, seconds: float
    ) -> CycleReport:
        before, after = dreaming.f1
        return CycleReport(
            run_id=run_id,
            dry_run=dreaming.write is None,
            memories=len(dreaming.graph),
            usable=len(dreaming.usable),
            rounds=dreaming.rounds,
            repairs=dreaming.kept,
            f1_before=before,
            f1_after=after,
            stopped_by=ended,
            agents=dict(self.asking.to_dict()) if self.asking else {},
            seconds=seconds,
            config=self.config.to_dict(),
        )


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


def _of_unchanged(bank: MemoryBank, graph: MemoryGraph, repair: Repair) -> Repair:
    """Return a repair without the memories that were rewritten, deleted or removed since the snapshot."""
    ends = {end for edge in repair.edges for end in (edge.source, edge.target)}
    named = sorted({key.memory_id for key in repair.keys} | ends | set(repair.weights))
    held = bank.content.get(named)
    gone = bank.state.columns().gather(named, "deleted") != 0.0
    same = {
        memory_id
        for memory_id, deleted in zip(named, gone, strict=True)
        if not deleted and memory_id in held and held[memory_id].text == graph.texts[graph.row_of[memory_id]]
    }
    return replace(
        repair,
        keys=tuple(key for key in repair.keys if key.memory_id in same),
        edges=tuple(edge for edge in repair.edges if {edge.source, edge.target} <= same),
        weights={memory_id: weight for memory_id, weight in repair.weights.items() if memory_id in same},
    )
