"""The rule-based agents on a real bank: grounded probes, soft pruning, repairs that only quote."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pytest

from shared_core import BankRetriever, MemoryBank
from shared_core.agents.dream_config import DreamConfig
from shared_core.agents.probe_index import ProbeIndex
from shared_core.agents.protocol import Diagnosis, Probe, Target
from shared_core.agents.rule_analyst import RuleAnalyst
from shared_core.agents.rule_consolidator import RuleConsolidator
from shared_core.agents.rule_dreamer import RuleDreamer
from shared_core.agents.weakness import bridge_partner, usable, weak_targets, weakness_terms
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.graph import MemoryGraph, read_graph
from shared_core.bank.repairing import apply_repair
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.language import Source, unsupported
from tests.conftest import OpenBank

TURNS = [
    ("a", "Ada", "My sister Nora moved to Lisbon in March. She rents a flat above a bakery there."),
    ("a", "Bo", "Nice!"),
    ("a", "Ada", "I am allergic to peanuts, and the bakery sells peanut tarts every Friday."),
    ("b", "Bo", "I bought a red canoe and named it Falcon. We paddle on the river every Sunday."),
    ("b", "Ada", "The canoe Falcon leaks. Bo patched the red canoe with tar on Sunday."),
    ("c", "Bo", "I bought a red canoe and named it Falcon. We paddle on the river each Sunday."),
    ("c", "Ada", "Snacks for Sunday: my favourite recipe is chocolate brownies with walnuts."),
]


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(
        Page(
            text=text,
            session=session,
            speaker=who,
            time=datetime(2023, 5, 1 + row, tzinfo=timezone.utc),
            id=f"p{row}",
        )
        for row, (session, who, text) in enumerate(TURNS)
    )
    return bank


@pytest.fixture
def graph(bank: MemoryBank) -> MemoryGraph:
    return read_graph(bank)


def targets(graph: MemoryGraph) -> list[Target]:
    return [Target(row=row, partner=None, weakness="isolated", score=1.0) for row in range(len(graph))]


def test_weakness_has_three_terms_between_0_and_1(graph: MemoryGraph) -> None:
    terms = weakness_terms(graph)
    assert terms.shape == (7, 3)
    assert terms.min() >= 0
    assert terms.max() <= 1
    degrees = graph.degrees()
    np.testing.assert_allclose(terms[:, 0], 1 - degrees / degrees.max())
    assert terms[0, 2] == 1.0  # the oldest
    assert terms[6, 2] == 0.0
    found = weak_targets(weakness_terms(graph), range(7), DreamConfig(threshold=0.0), 3)
    assert len(found) == 3
    assert found[0].score >= found[1].score >= found[2].score


def test_a_bridge_partner_is_unlinked_and_most_often_retrieved_together(graph: MemoryGraph) -> None:
    row, linked = 2, set(graph.linked(2).tolist()) | set(graph.in_session[int(graph.session[2])].tolist())
    free = [other for other in range(7) if other not in linked]
    alike, unlike = np.ones((7, 1)), np.eye(7)
    together = [[row, free[0]], [row, free[0], free[1]], [free[1], free[1]]]
    assert bridge_partner(graph, alike, row, together) == free[0]
    assert bridge_partner(graph, unlike, row, together) is None
    assert bridge_partner(graph, alike, row, [[row, *linked]]) is None
    assert bridge_partner(graph, alike, row, [[free[0], free[1]]]) is None


def test_suspects_and_forgotten_memories_are_not_usable(bank: MemoryBank) -> None:
    with bank.state.transaction("sweep") as run:
        run.set(["p0", "p1"], {"suspicion": [0.9, 0.0], "weight": [1.0, 0.05]})
    assert usable(read_graph(bank)).tolist() == [2, 3, 4, 5, 6]


def test_every_expected_answer_is_a_slice_of_its_target(graph: MemoryGraph) -> None:
    probes = RuleDreamer().probe(graph, targets(graph), seed=3)
    assert probes == RuleDreamer().probe(graph, targets(graph), seed=3)
    assert len(probes) >= 6
    for probe in probes:
        assert any(probe.expected_answer in graph.texts[graph.row_of[name]] for name in probe.targets)


def test_probes_are_ranked_as_the_retriever_ranks(
    bank: MemoryBank, graph: MemoryGraph, embedder: SentenceTransformerEmbedder
) -> None:
    bank.set_weights({"p3": 0.4, "p6": 0.0})
    index = ProbeIndex(read_graph(bank), embedder)
    retriever = BankRetriever(bank, track_access=False)
    for query in ("red canoe on Sunday", "peanut allergy", "where does the sister live"):
        hits = retriever.search(query, search_type="hybrid", k=7)
        assert [index.ids[row] for row in index.retrieve(query, 7)] == [hit.id for hit in hits]


def test_a_supposed_repair_is_seen_and_taken_back_whole(
    graph: MemoryGraph, embedder: SentenceTransformerEmbedder
) -> None:
    index = ProbeIndex(graph, embedder)
    probe = Probe(
        query="snack for someone allergic",
        expected_answer="allergic to peanuts",
        targets=("p2", "p6"),
        query_type="bridge",
        weakness="isolated",
    )
    before, weights = index.ask(probe, 3), index.weights.copy()
    diagnosis = Diagnosis(
        probe=probe, category="scattered", targets=("p2", "p6"), confidence=0.9, rationale="two sessions"
    )
    repair = RuleConsolidator().propose(graph, diagnosis)
    assert repair is not None
    index.suppose(repair, index.embed([memory.text for memory in repair.memories]))
    after = index.ask(probe, 3)
    assert after.recall == 1.0
    assert after.f1 >= before.f1
    index.forget(repair, weights)
    assert index.ask(probe, 3) == before


@pytest.mark.parametrize(
    ("category", "names"), [("buried", ("p2",)), ("scattered", ("p2", "p6")), ("redundant", ("p3", "p5"))]
)
def test_repairs_quote_and_invent_nothing(
    bank: MemoryBank, graph: MemoryGraph, category: str, names: tuple[str, ...]
) -> None:
    probe = Probe(
        query="q",
        expected_answer="allergic to peanuts",
        targets=names,
        query_type="fact",
        weakness="isolated",
    )
    diagnosis = Diagnosis(
        probe=probe,
        category=category,  # type: ignore[arg-type]
        targets=names,
        confidence=1.0,
        rationale="-",
    )
    repair = RuleConsolidator().propose(graph, diagnosis)
    assert repair is not None
    assert repair.operation == diagnosis.operation
    (memory,) = repair.memories
    assert memory.sources == names
    sources = [Source(graph.texts[graph.row_of[n]], graph.day(graph.row_of[n])) for n in names]
    assert unsupported(memory.text, sources) == []
    with bank.state.lock("test") as lock:
        run = apply_repair(bank, repair, lock=lock)
    again = RuleConsolidator().propose(read_graph(bank), diagnosis)
    assert again is None, "the same repair is not made twice"
    bank.undo(run.run_id)


def test_filler_is_pruned_softly_and_only_filler(
    graph: MemoryGraph, embedder: SentenceTransformerEmbedder
) -> None:
    probe = Probe(
        query="Nice!", expected_answer="canoe", targets=("p3",), query_type="fact", weakness="isolated"
    )
    outcome = ProbeIndex(graph, embedder).ask(probe, 1)
    assert outcome.ids == ("p1",)
    diagnoses = RuleAnalyst().diagnose(graph, [(probe, outcome)])
    for diagnosis in diagnoses:
        repair = RuleConsolidator().propose(graph, diagnosis)
        assert repair is None or all(weight >= 0.2 for weight in repair.weights.values())
    noisy = Diagnosis(probe=probe, category="noisy", targets=("p1",), confidence=1.0, rationale="-")
    repair = RuleConsolidator().propose(graph, noisy)
    assert repair is not None
    assert repair.weights == pytest.approx({"p1": 0.2})
