"""Derived memories in a sweep: no part in the diagnosis, and never more weight than what they quote."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.bank.derived import derived_id
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.cli.main import main
from shared_core.evaluation import CachedEmbedder
from tests.bank.test_hardened_sweep import CASE, HARDENED, POISON, fill_sample
from tests.conftest import OpenBank, fill, unit_rows

PAPER = ForgettingConfig(eta=0.3, noise_ratio=0.5)
BENIGN = [memory.id for memory in CASE.memories if not memory.poison]


def derive(bank: MemoryBank, *sources: str, weights: dict[str, float] | None = None) -> str:
    memory = DerivedMemory(text=" / ".join(m.text for m in bank.get(sources)), sources=sources)
    memory = DerivedMemory(
        text=memory.text,
        sources=sources,
        embedding=bank.content.get_embeddings(sources)[sources[0]],
        id=memory.id,
    )
    repair = Repair(operation="merge", reason="-", memories=(memory,), weights=weights or {})
    with bank.state.lock("test") as lock:
        apply_repair(bank, repair, lock=lock)
    return memory.id


def weight(bank: MemoryBank, memory_id: str) -> float:
    return float(bank.weights([memory_id])[0])


def suspicion(bank: MemoryBank, memory_id: str) -> float:
    return bank.get([memory_id])[0].state.suspicion


def lower(bank: MemoryBank, weights: dict[str, float], suspicion: float = 1.0) -> None:
    """Do what a sweep that flags exactly these would do."""
    with bank.state.transaction("sweep") as run:
        run.set(list(weights), {"weight": list(weights.values()), "suspicion": [suspicion] * len(weights)})


@pytest.fixture(scope="module")
def cached(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


@pytest.fixture(scope="module")
def vectors(cached: CachedEmbedder) -> dict[str, list[float]]:
    rows = cached.embed_documents([memory.key for memory in CASE.memories])
    return {memory.id: row for memory, row in zip(CASE.memories, rows, strict=True)}


@pytest.fixture
def sample(open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder) -> MemoryBank:
    return fill_sample(open_bank(embedder=cached, value_key="answer"), vectors)


@pytest.mark.parametrize("preset", ["hardened", "paper"])
def test_derived_memories_change_nothing_for_the_others(
    open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder, preset: str
) -> None:
    config = HARDENED if preset == "hardened" else PAPER
    plain = fill_sample(open_bank(embedder=cached, value_key="answer"), vectors)
    quoting = fill_sample(open_bank(embedder=cached, value_key="answer", name="quoting"), vectors)
    for source in POISON + BENIGN[:10]:
        derive(quoting, source)
    one, other = plain.sweep(config), quoting.sweep(config)
    assert (one.followed, other.followed) == (0, 14)
    assert (one.ids, one.memories, one.skipped) == (other.ids, other.memories, other.skipped)
    assert np.array_equal(one.activation, other.activation)
    assert np.array_equal(plain.weights(one.ids), quoting.weights(one.ids))


def test_what_quotes_poison_is_forgotten_with_it_and_undone_with_it(sample: MemoryBank) -> None:
    tainted, clean = derive(sample, BENIGN[0], POISON[0]), derive(sample, BENIGN[0], BENIGN[1])
    dry = sample.sweep(HARDENED, dry_run=True)
    assert weight(sample, tainted) == 1.0
    report = sample.sweep(HARDENED)
    assert report.suspects == dry.suspects
    assert (weight(sample, tainted), weight(sample, clean)) == (weight(sample, POISON[0]), 1.0)
    assert suspicion(sample, tainted) == suspicion(sample, POISON[0]) == 1.0
    assert suspicion(sample, clean) == 0.0
    assert (report.followed, report.lowered, report.forgotten) == (2, 5, 5)
    (suspect,) = [s for s in report.suspects if s.id == tainted]
    assert (suspect.weight_before, suspect.weight) == (1.0, weight(sample, tainted))
    assert suspect.activation is None
    assert suspect.reason is not None
    assert repr(POISON[0]) in suspect.reason
    stored = sample.state.run(report.run_id or "").report
    assert {s["id"] for s in stored["suspects"]} == {*POISON, tainted}
    assert tainted in [s["id"] for s in sample.status().suspects]
    sample.undo(report.run_id or "")
    assert (weight(sample, tainted), suspicion(sample, tainted)) == (1.0, 0.0)


def test_the_paper_preset_has_the_same_rule(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=40)
    derived = [derive(bank, f"m{row}", f"m{row + 1}") for row in range(0, 40, 2)]
    bank.sweep(PAPER)
    for row, memory_id in enumerate(derived):
        sources = [f"m{2 * row}", f"m{2 * row + 1}"]
        assert weight(bank, memory_id) == bank.weights(sources).min()
        assert suspicion(bank, memory_id) == max(suspicion(bank, source) for source in sources)
    assert min(bank.weights(derived)) < 0.5


def test_it_recovers_with_its_sources_to_what_it_had(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=3)
    derived, modest = derive(bank, "m0", "m1"), derive(bank, "m0")
    bank.set_weights({modest: 0.3})
    gentle = ForgettingConfig(iterations=1, eta=5.0)  # flags nobody
    lower(bank, {"m0": 0.1})
    bank.sweep(gentle)
    seen = [(weight(bank, "m0"), weight(bank, derived), weight(bank, modest))]
    for _ in range(30):
        bank.sweep(gentle)
        seen.append((weight(bank, "m0"), weight(bank, derived), weight(bank, modest)))
    assert seen[0][0] < 0.7
    for source, held, limited in seen:
        assert held == source
        assert limited == min(0.3, source)
    assert seen[-1][1] == pytest.approx(1.0)
    assert suspicion(bank, derived) == suspicion(bank, "m0") < 1e-6


def test_what_a_repair_or_a_person_lowered_holds_nothing_down(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=4)
    merged = derive(bank, "m0", "m1", weights={"m0": 0.2, "m1": 0.2})
    by_hand = derive(bank, "m2")
    bank.set_weights({"m2": 0.4})
    gentle = ForgettingConfig(iterations=1, eta=5.0)
    bank.sweep(gentle)
    assert (weight(bank, merged), weight(bank, by_hand)) == (1.0, 1.0)
    # but a suspect does, whoever gave it its weight
    lower(bank, {"m0": 0.05})
    bank.set_weights({"m0": 0.05})
    bank.set_weights({merged: 1.0})
    with bank.state.transaction("repair") as run:
        run.set(["m0"], {"weight": [0.04]})
    report = bank.sweep(ForgettingConfig(iterations=1, eta=5.0, gamma=0.9))
    assert suspicion(bank, "m0") == 0.9
    assert weight(bank, merged) == weight(bank, "m0")
    assert report.followed == 2


def test_a_deleted_or_removed_source_is_not_outlived(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=30)
    deleted, removed, kept = derive(bank, "m0", "m1"), derive(bank, "m2"), derive(bank, "m3")
    run = bank.delete(["m0"])
    bank.content.collection.delete(ids=["m2"])
    quiet = ForgettingConfig(iterations=1, eta=5.0)
    bank.sweep(quiet)
    assert bank.weights([deleted, removed, kept]).tolist() == [0.0, 0.0, 1.0]
    bank.undo(run.run_id)
    bank.sweep(quiet)
    assert weight(bank, deleted) == 1.0


def test_what_is_not_committed_stays_invisible(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=30)
    unborn = derived_id()
    bank.content.add([unborn], ["half written"], [{"dream_sources": '["m0"]'}], np.ones((1, 16), np.float32))
    report = bank.sweep(PAPER)
    assert (report.memories, report.followed, report.skipped) == (30, 0, 0)
    assert weight(bank, unborn) == 0.0
    assert unborn not in bank.state.known_ids()


def test_quarantine_is_lifted_with_the_sources(open_bank: OpenBank, rng: np.random.Generator) -> None:
    bank = open_bank(quarantine=0.5)
    fill(bank, rng, rows=30)
    derived = derive(bank, "m0", "m1")
    assert weight(bank, derived) == 0.5
    assert bank.status().quarantined == 31
    bank.sweep(ForgettingConfig(eta=5.0))
    assert weight(bank, derived) == weight(bank, "m0") > 0.99
    assert bank.status().quarantined == 0
    lower(bank, {"m1": 0.02})
    bank.sweep(ForgettingConfig(eta=5.0, iterations=1))
    assert weight(bank, derived) == weight(bank, "m1") < 0.7
    assert bank.status().quarantined == 0


def test_what_another_tenant_owns_is_not_gone(open_bank: OpenBank, rng: np.random.Generator) -> None:
    everyone = open_bank()
    vectors = unit_rows(rng, 40, 16)
    users = [{"user": ("ada", "bo")[row % 2]} for row in range(40)]
    everyone.add(
        [f"t{row}" for row in range(40)],
        ids=[f"m{row}" for row in range(40)],
        metadatas=users,
        embeddings=vectors,
    )
    memory = DerivedMemory(text="-", sources=("m0", "m1"), metadata={"user": "ada"}, embedding=vectors[0])
    with everyone.state.lock("test") as lock:
        apply_repair(everyone, Repair(operation="merge", reason="-", memories=(memory,)), lock=lock)
    ada = open_bank(where={"user": "ada"})
    quiet = ForgettingConfig(iterations=1, eta=5.0)
    assert ada.sweep(quiet).followed == 1
    assert weight(ada, memory.id) == 1.0
    lower(everyone, {"m1": 0.1})
    ada.sweep(quiet)
    assert weight(ada, memory.id) == 0.1


@pytest.fixture
def explained(sample: MemoryBank) -> tuple[MemoryBank, str]:
    return sample, derive(sample, BENIGN[0], POISON[0])


def test_explain_says_what_it_follows(explained: tuple[MemoryBank, str]) -> None:
    bank, derived = explained
    found = bank.explain(derived, HARDENED)
    assert (found.takes_part, found.flagged, found.score, found.terms) == (False, True, None, [])
    assert [(one.id, one.flagged, one.weight) for one in found.quotes] == [
        (BENIGN[0], False, 1.0),
        (POISON[0], True, 1.0),
    ]
    report = bank.sweep(HARDENED)
    after = bank.explain(derived, HARDENED)
    assert after.memories == report.memories == found.memories
    assert after.state.weight == after.quotes[1].weight == weight(bank, POISON[0])
    assert after.runs[0].values["weight"] == (1.0, after.state.weight)
    assert bank.explain(POISON[0], HARDENED).quotes == []
    bank.delete([BENIGN[0]])
    assert bank.explain(derived, HARDENED).quotes[0].weight == 0.0


def test_the_command_line_agrees(explained: tuple[MemoryBank, str]) -> None:
    bank, derived = explained
    place = [str(bank.content.database_file().parent), "--collection", bank.content.name]  # type: ignore[union-attr]
    bank.close()
    assert "following sources: 1 derived memory" in printed(["forget", *place, "--value-key", "answer"])
    said = printed(["explain", derived, *place, "--value-key", "answer"])
    assert "follows those of the memories that it quotes" in said
    assert POISON[0] in said
    assert derived[:20] in printed(["status", *place])


def printed(arguments: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(arguments)
    return out.getvalue()
