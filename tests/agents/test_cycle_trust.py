"""A dream lowers nothing that a person trusts, and raises nothing above what a person gave it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.agents.approved import make_approved, texts_of
from shared_core.agents.associating import associate
from shared_core.agents.dreaming import NOTHING
from shared_core.agents.rule_consolidator import restoration
from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.graph import read_graph
from shared_core.bank.repairing import Repair
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.evaluation import CachedEmbedder
from tests.agents.nut_story import pages
from tests.agents.test_cycle import Asks, Finds, Proposes, probe_of
from tests.conftest import OpenBank

QUICK = DreamConfig(groundwork=False, partitions=1, rounds=1)


@pytest.fixture(scope="module")
def embedder(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


@pytest.fixture
def bank(open_bank: OpenBank, embedder: CachedEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages())
    return bank


def pruning(bank: MemoryBank, ids: Sequence[str]) -> DreamCycle:
    """Return a cycle that would lower these memories for its one probe, if it may."""
    first, *_, last = bank.ids()
    probe = probe_of(bank.get([last])[0].text, first)
    lowering = Repair(operation="prune", reason="in the way", weights=dict.fromkeys(ids, 0.2))
    return DreamCycle(
        bank,
        dreamer=Asks([probe]),
        analyst=Finds("noisy"),
        consolidator=Proposes(lambda _graph: lowering),
        config=QUICK,
    )


def test_what_is_trusted_is_not_even_proposed(bank: MemoryBank) -> None:
    others = bank.ids()[1:]
    free = pruning(bank, others).run(dry_run=True)
    assert [set(one.repair.weights) for one in free.repairs] == [set(others)]
    bank.restore(others)
    report = pruning(bank, others).run()
    assert report.repairs == []
    assert report.rounds[0].rejected == {NOTHING: 1}
    assert set(bank.weights(others)) == {1.0}


def test_the_rest_of_a_repair_is_verified_without_it(bank: MemoryBank) -> None:
    others = bank.ids()[1:]
    bank.restore(others[:1])
    (kept,) = pruning(bank, others).run().repairs
    assert set(kept.repair.weights) == set(others[1:])
    assert bank.weights(others[:1]).tolist() == [1.0]


def test_what_was_approved_before_it_was_trusted_is_left(bank: MemoryBank) -> None:
    others = bank.ids()[1:]
    (kept,) = pruning(bank, others).run(dry_run=True).repairs
    texts = texts_of(bank, kept.repair)
    bank.restore(others)
    report = make_approved(bank, [(kept, texts)])
    assert report["repairs"] == []
    assert "decided otherwise" in report["left"][kept.proposal.id]
    assert set(bank.weights(others)) == {1.0}


def test_associations_lower_none_of_them(bank: MemoryBank) -> None:
    plain = associate(bank)
    lowered = [i for i, w in zip(bank.ids(), bank.weights(bank.ids()), strict=True) if w < 1.0]
    assert plain.reweighted == len(lowered) > 0
    bank.undo(plain.run_id or "")
    bank.restore(bank.ids())
    trusting = associate(bank)
    assert (trusting.reweighted, trusting.keys) == (0, plain.keys)
    assert set(bank.weights(bank.ids())) == {1.0}


def test_what_proves_useful_is_not_raised_above_what_a_person_gave_it(bank: MemoryBank) -> None:
    by_hand, by_a_dream, *_ = bank.ids()
    bank.set_weights({by_hand: 0.3})
    with bank.state.transaction("repair") as run:
        run.set([by_a_dream], {"weight": [0.3]})
    bank.feedback([by_hand, by_a_dream], [1.0, 1.0], 1.0)
    config = DreamConfig(partitions=1, rounds=1, probes=3)
    useful = restoration(read_graph(bank), config.eta)
    assert useful is not None
    assert set(useful.weights) == {by_hand, by_a_dream}
    DreamCycle(bank, config=config).run()
    weights = bank.weights([by_hand, by_a_dream])
    assert weights[0] == 0.3
    assert weights[1] > 0.3
    assert np.isfinite(weights).all()
