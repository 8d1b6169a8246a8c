"""The dream cycle on a real bank: what it keeps, what it rolls back, what ends it, and what it never does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.agents import DreamConfig, DreamCycle, DreamEvent
from shared_core.agents.protocol import Diagnosis, Probe, Retrieval, Target
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.agents.verification import HARM, NO_GAIN
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.derived import derived_id, is_derived, sources_of
from shared_core.bank.graph import MemoryGraph, read_graph
from shared_core.bank.repairing import DerivedMemory, Repair
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import BankLockedError, ConfigError
from shared_core.evaluation import CachedEmbedder
from shared_core.language import Entity
from tests.agents.nut_story import ALLERGY, BAKING, pages
from tests.agents.scripted import ScriptedChat
from tests.conftest import OpenBank

QUICK = DreamConfig(groundwork=False, partitions=1, rounds=1)
SMALL = DreamConfig(probes=24)
TWINS = ("I bought a red canoe and named it Falcon.", "I bought a red canoe, and I named it Falcon!")


@pytest.fixture(scope="module")
def embedder(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    """Return the real model, asked once per text: all these banks hold the same pages."""
    return CachedEmbedder(embedder)


@pytest.fixture
def bank(open_bank: OpenBank, embedder: CachedEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages())
    return bank


def state_of(bank: MemoryBank) -> dict[str, tuple[str, float]]:
    ids = bank.ids()
    weights = bank.weights(ids).tolist()
    return {memory.id: (memory.text, w) for memory, w in zip(bank.get(ids), weights, strict=True)}


@dataclass
class Asks:
    """A dreamer with probes of the test's own."""

    probes: list[Probe]

    def probe(self, graph: MemoryGraph, targets: Sequence[Target], *, seed: int) -> list[Probe]:
        return self.probes


@dataclass
class Finds:
    """An analyst that gives every failure the same diagnosis."""

    category: str = "scattered"

    def diagnose(self, graph: MemoryGraph, failures: Sequence[tuple[Probe, Retrieval]]) -> list[Diagnosis]:
        return [
            Diagnosis(
                probe=probe,
                category=self.category,  # type: ignore[arg-type]
                targets=probe.targets,
                confidence=1.0,
                rationale="the test says so",
            )
            for probe, _ in failures
        ]


@dataclass
class Proposes:
    """A consolidator whose repair the test makes."""

    make: Callable[[MemoryGraph], Repair]

    def propose(self, graph: MemoryGraph, diagnosis: Diagnosis) -> Repair | None:
        return self.make(graph)


def probe_of(query: str, *targets: str) -> Probe:
    return Probe(query=query, expected_answer="x", targets=targets, query_type="fact", weakness="isolated")


BOTH = probe_of("Send me a recipe for cookies", BAKING, ALLERGY)


def joining(graph: MemoryGraph, text: str | None = None) -> Repair:
    said = [graph.texts[graph.row_of[one]] for one in (ALLERGY, BAKING)]
    memory = DerivedMemory(text=text or "\n".join(said), sources=(ALLERGY, BAKING), id=derived_id())
    return Repair(operation="synthesize", reason="test", memories=(memory,))


def test_every_kept_repair_is_one_run_and_the_cycle_is_undone_whole(bank: MemoryBank) -> None:
    before = state_of(bank)
    report = DreamCycle(bank, config=SMALL).run()
    assert report.run_id is not None
    assert len(report.repairs) > 4
    assert report.f1_after > report.f1_before
    assert len(repr(report)) < 300 > len(repr(report.repairs[0]))
    assert f"repairs={len(report.repairs)}, f1_before=0." in repr(report)
    runs = {run.run_id: run for run in bank.state.runs()}
    for kept in report.repairs:
        assert kept.run_id is not None
        assert runs[kept.run_id].parent == report.run_id
        assert runs[kept.run_id].report["f1_after"] == kept.proposal.f1_after
        assert runs[kept.run_id].report["reason"]
    journalled = runs[report.run_id].report
    assert journalled["repairs"] == [kept.run_id for kept in report.repairs]
    assert journalled["stopped_by"] == report.stopped_by
    json.dumps(report.to_dict(), allow_nan=False)
    own = {key: text for key, (text, _) in state_of(bank).items() if not is_derived(key)}
    assert own == {key: text for key, (text, _) in before.items()}
    bank.undo(report.run_id)
    assert {key: value for key, value in state_of(bank).items() if not is_derived(key)} == before
    assert not any(read_graph(bank).derived)


def test_a_repair_that_does_not_help_or_harms_another_probe_is_rolled_back(bank: MemoryBank) -> None:
    useless = DreamCycle(
        bank,
        dreamer=Asks([BOTH]),
        analyst=Finds(),
        consolidator=Proposes(lambda graph: joining(graph, graph.texts[graph.row_of["s8-2"]])),
        config=QUICK,
    ).run()
    assert useless.rounds[0].rejected == {NO_GAIN: 1}

    other = probe_of("The tenants' union costs seven euros a month.", "s8-2")
    harmful = DreamCycle(
        bank,
        dreamer=Asks([BOTH, other]),
        analyst=Finds(),
        consolidator=Proposes(lambda graph: replace(joining(graph), weights={"s8-2": 0.2})),
        config=QUICK,
    ).run()
    assert harmful.rounds[0].failures == 1
    assert harmful.rounds[0].rejected == {HARM: 1}
    assert not useless.repairs
    assert not harmful.repairs
    assert not any(is_derived(memory_id) for memory_id in bank.ids())
    assert set(bank.weights(bank.ids()).tolist()) == {1.0}


def test_what_was_rolled_back_leaves_no_trace_in_later_trials(bank: MemoryBank) -> None:
    tries = iter(["s8-2", None])

    def make(graph: MemoryGraph) -> Repair:
        page = next(tries)
        return joining(graph, graph.texts[graph.row_of[page]] if page else None)

    report = DreamCycle(
        bank,
        dreamer=Asks([BOTH, probe_of("quick ideas for baking, and an EpiPen", BAKING, ALLERGY)]),
        analyst=Finds(),
        consolidator=Proposes(make),
        config=QUICK,
    ).run()
    assert (report.rounds[0].rejected.get(NO_GAIN), len(report.repairs)) == (1, 1)
    assert len([memory_id for memory_id in bank.ids() if is_derived(memory_id)]) == 1


def test_suspects_and_forgotten_memories_are_neither_asked_about_nor_quoted(bank: MemoryBank) -> None:
    with bank.state.transaction("sweep") as run:
        run.set([ALLERGY, "s7-0"], {"suspicion": [0.9, 0.0], "weight": [0.6, 0.05]})
    report = DreamCycle(bank, config=SMALL).run()
    assert report.usable == 48
    for kept in report.repairs:
        assert not {ALLERGY, "s7-0"} & set(kept.proposal.targets)
    derived = [memory for memory in bank.get(bank.ids()) if is_derived(memory.id)]
    assert derived
    for memory in derived:
        assert not {ALLERGY, "s7-0"} & set(sources_of(memory.metadata))
    assert not any("EpiPen" in key.text for key in bank.state.retrieval_keys())
    assert bank.weights([ALLERGY, "s7-0"]).tolist() == [0.6, 0.05]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_dream_ends_between_repairs_when_it_is_told_to(bank: MemoryBank, after: int) -> None:
    kept: list[DreamEvent] = []

    def observe(event: DreamEvent) -> None:
        if event.kind == "repair":
            kept.append(event)

    report = DreamCycle(bank, config=SMALL).run(stop=lambda: len(kept) >= after, on_event=observe)
    assert (report.stopped_by, len(report.repairs)) == ("cancelled", after)
    assert len([run for run in bank.state.runs() if run.kind == "repair"]) == after
    assert bank.state.lock_holder() is None


def test_budgets_end_a_dream(bank: MemoryBank) -> None:
    few = DreamCycle(bank, config=DreamConfig(groundwork=False, repairs=2)).run()
    assert (few.stopped_by, len(few.repairs)) == ("repairs", 2)
    short = DreamCycle(bank, config=DreamConfig(seconds=1e-6)).run()
    assert (short.stopped_by, short.repairs) == ("seconds", [])


def test_a_memory_that_answers_its_probes_is_left_alone(bank: MemoryBank) -> None:
    version = len(bank.state.runs())
    report = DreamCycle(bank, dreamer=Asks([probe_of(pages()[2].text, ALLERGY)]), config=QUICK).run()
    assert (report.stopped_by, report.repairs, report.f1_before) == ("converged", [], 1.0)
    assert len(bank.state.runs()) == version + 1


def test_only_approved_repairs_are_written(bank: MemoryBank) -> None:
    dry = DreamCycle(bank).run(dry_run=True)
    wanted = next(one.proposal.id for one in dry.repairs if ALLERGY in one.proposal.targets)
    seen: list[str] = []

    def approve(proposal) -> bool:  # type: ignore[no-untyped-def]
        seen.append(proposal.id)
        return proposal.id == wanted

    report = DreamCycle(bank).run(approve=approve)
    assert [one.proposal.id for one in report.repairs] == [wanted]
    assert len(seen) > 1
    assert sum(one.rejected.get("not approved", 0) for one in report.rounds) == len(seen) - 1


def test_an_observer_that_fails_does_not_end_a_dream(
    bank: MemoryBank, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: DreamEvent) -> None:
        raise RuntimeError("no screen")

    report = DreamCycle(bank, config=QUICK).run(on_event=fail)
    assert report.rounds
    assert "no screen" in caplog.text


def test_events_tell_the_whole_dream(bank: MemoryBank) -> None:
    events: list[DreamEvent] = []
    report = DreamCycle(bank, config=SMALL).run(on_event=events.append)
    kinds = [event.kind for event in events]
    assert (kinds[0], kinds[-1]) == ("start", "end")
    assert kinds.count("repair") == len(report.repairs)
    assert kinds.count("round") == len(report.rounds)
    assert kinds.count("rejected") == sum(sum(one.rejected.values()) for one in report.rounds)
    json.dumps([event.to_dict() for event in events], allow_nan=False)


def test_what_changed_meanwhile_is_not_repaired(bank: MemoryBank) -> None:
    def rewrite(graph: MemoryGraph) -> Repair:
        collection = bank.content.collection
        held = collection.get(ids=[ALLERGY], include=["embeddings"])
        collection.update(ids=[ALLERGY], documents=["I can eat nuts again."], embeddings=held["embeddings"])
        return joining(graph)

    report = DreamCycle(
        bank, dreamer=Asks([BOTH]), analyst=Finds(), consolidator=Proposes(rewrite), config=QUICK
    ).run()
    assert report.rounds[0].rejected == {"the memories changed meanwhile": 1}
    assert not any(is_derived(memory_id) for memory_id in bank.ids())


def test_one_dreamer_at_a_time_and_bad_input(open_bank: OpenBank, bank: MemoryBank) -> None:
    with bank.state.lock("sweep"), pytest.raises(BankLockedError):
        DreamCycle(bank).run()
    with bank.state.lock("sweep"):
        assert DreamCycle(bank, config=QUICK).run(dry_run=True).dry_run
    with pytest.raises(ConfigError, match="embedder"):
        DreamCycle(open_bank(name="other"))
    for wrong in ({"rounds": 0}, {"tau": 2.0}, {"seconds": 0.0}, {"gamma": 0.0}, {"growth": -1.0}):
        with pytest.raises(ConfigError):
            DreamConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", [[], ["One thing only."], ["the same", "the same", "the same"]])
def test_small_banks_dream_too(open_bank: OpenBank, embedder: CachedEmbedder, texts: list[str]) -> None:
    bank = open_bank(embedder=embedder)
    if texts:
        bank.add(texts)
    report = DreamCycle(bank).run()
    assert report.memories == len(texts)
    json.dumps(report.to_dict(), allow_nan=False)


def test_twins_are_merged_softly_and_nothing_is_lost(open_bank: OpenBank, embedder: CachedEmbedder) -> None:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(
        Page(
            text=text,
            session=f"s{row}",
            speaker="Bo",
            time=datetime(2023, 5, 1 + row, tzinfo=timezone.utc),
            id=f"p{row}",
        )
        for row, text in enumerate((*TWINS, "We had soup.", "It rained all night.", "My aunt called."))
    )
    report = DreamCycle(
        bank,
        dreamer=Asks([probe_of("What did Bo say about the canoe Falcon?", "p1")]),
        config=QUICK,
    ).run()
    (merge,) = report.repairs
    assert merge.proposal.operation == "merge"
    weights = dict(zip(bank.ids(), bank.weights(bank.ids()).tolist(), strict=True))
    assert weights["p0"] == weights["p1"] == 0.2
    assert all(twin in str(merge.proposal.text) for twin in TWINS)


def test_a_useful_memory_regains_weight(bank: MemoryBank) -> None:
    with bank.state.transaction("feedback") as run:
        run.set([ALLERGY], {"weight": [0.3], "successes": [2.0]})
    DreamCycle(bank, config=DreamConfig(decay=0.0, probes=24)).run()
    assert bank.weights([ALLERGY]).tolist() == pytest.approx([0.5])


def test_cycles_grow_a_bank_only_so_far(bank: MemoryBank) -> None:
    config = DreamConfig(groundwork=False, growth=0.0, probes=24)
    sizes = []
    for _ in range(4):
        DreamCycle(bank, config=config).run()
        sizes.append(int(np.count_nonzero(read_graph(bank).derived)))
    assert sizes == sorted(sizes)
    assert sizes[-1] <= 20


def test_long_term_entries_hold_what_a_dream_derives(bank: MemoryBank) -> None:
    report = DreamCycle(bank, config=DreamConfig(groundwork=False, probes=24)).run()
    made = [one for one in report.repairs if one.proposal.text]
    placed = ConversationMemory(bank).tiers()
    entries = [memory_id for memory_id, placement in placed.items() if placement.tier == "ltsm"]
    assert sorted(entries) == sorted(memory_id for memory_id in bank.ids() if is_derived(memory_id))
    assert len(entries) == len(made) > 0


def test_an_event_loop_is_not_blocked_and_cancelling_ends_the_dream(bank: MemoryBank) -> None:
    async def dream() -> int:
        ticks = 0
        task = asyncio.ensure_future(DreamCycle(bank, config=SMALL).arun())
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert (await task).rounds
        task = asyncio.ensure_future(DreamCycle(bank, config=DreamConfig(rounds=50)).arun())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ticks

    assert asyncio.run(dream()) > 10
    assert bank.state.lock_holder() is None


def test_a_model_without_sense_leaves_the_rules_and_is_counted(bank: MemoryBank) -> None:
    before = state_of(bank)
    cycle = DreamCycle.with_model(
        bank, ScriptedChat("I would rather not."), config=DreamConfig(groundwork=False, probes=9)
    )
    report = cycle.run()
    fallbacks = report.agents["fallbacks"]
    assert sum(fallbacks["dreamer"].values()) > 0
    assert report.run_id is not None
    assert {key: text for key, (text, _) in state_of(bank).items() if not is_derived(key)} == {
        key: text for key, (text, _) in before.items()
    }
    bank.undo(report.run_id)
    assert {key: value for key, value in state_of(bank).items() if not is_derived(key)} == before


def test_entities_may_be_found_by_somebody_else(bank: MemoryBank) -> None:
    asked: list[str] = []

    def extract(text: str, *, speaker: str | None = None) -> frozenset[Entity]:
        asked.append(text)
        return frozenset()

    DreamCycle(bank, extractor=extract, config=QUICK).run()
    assert len(asked) == 50


def test_the_consolidator_never_goes_below_gamma(bank: MemoryBank) -> None:
    for _ in range(3):
        DreamCycle(bank, consolidator=RuleConsolidator(0.2), config=SMALL).run()
    assert bank.weights(bank.ids()).min() >= 0.2
