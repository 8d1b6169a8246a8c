"""What a person decided outlives sweeps and repairs, for the text looked at, until it is taken back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.bank import sweeping
from shared_core.bank.deciding import read_decisions
from shared_core.bank.schema import decisions
from shared_core.errors import JournalError, MemoryNotFoundError
from shared_core.evaluation import CachedEmbedder
from tests.bank.test_following import CASE, HARDENED, POISON, derive, lower
from tests.bank.test_hardened_sweep import fill_sample
from tests.conftest import OpenBank, fill, metadata_list, unit_rows

PAPER = ForgettingConfig(eta=0.3, noise_ratio=0.5)
GENTLE = ForgettingConfig(iterations=3, eta=5.0)
"""Flags nobody."""


def weight(bank: MemoryBank, memory_id: str) -> float:
    return float(bank.weights([memory_id])[0])


def suspicion(bank: MemoryBank, memory_id: str) -> float:
    return bank.get([memory_id])[0].state.suspicion


def lowest(bank: MemoryBank) -> str:
    """Return a memory that preset paper doubts, and leave the bank as it was."""
    report = bank.sweep(PAPER, dry_run=True)
    return report.suspects[0].id


@pytest.fixture(scope="module")
def cached(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


@pytest.fixture
def sample(open_bank: OpenBank, cached: CachedEmbedder) -> MemoryBank:
    """Four poisons that share a trigger and a payload, among benign memories."""
    rows = cached.embed_documents([memory.key for memory in CASE.memories])
    vectors = {memory.id: row for memory, row in zip(CASE.memories, rows, strict=True)}
    return fill_sample(open_bank(embedder=cached, value_key="answer"), vectors)


def test_a_restored_memory_keeps_its_weight_and_the_others_are_judged_by_it(sample: MemoryBank) -> None:
    plain = sample.sweep(HARDENED, dry_run=True)
    first = sample.sweep(HARDENED)
    sample.restore([POISON[0]])
    report = sample.sweep(HARDENED)
    assert (weight(sample, POISON[0]), suspicion(sample, POISON[0])) == (1.0, 0.0)
    assert sample.weights(POISON[1:]).max() < 0.1
    assert (report.trusted, report.spared, report.lowered) == (1, 1, 3)
    assert np.array_equal(report.activation, plain.activation)
    (spared,) = report.spared_suspects
    before = next(one for one in first.suspects if one.id == POISON[0])
    assert spared == replace(before, weight=1.0, suspicion=0.0)
    assert spared.reason is not None
    assert f"1 of 1 trusted memories would lose weight, such as {POISON[0]!r}" in report.warnings[-1]
    stored = sample.state.run(report.run_id or "").report
    assert [one["id"] for one in stored["spared_suspects"]] == [POISON[0]]
    assert json.dumps(report.to_dict())
    assert (sample.trusted(), sample.status().trusted) == ([POISON[0]], 1)
    why = sample.explain(POISON[0], HARDENED)
    assert (why.flagged, why.trusted, why.ceiling) == (True, True, 1.0)
    assert [run.kind for run in why.runs][:2] == ["restore", "sweep"]


def test_nothing_changes_where_nobody_decided_anything(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=40)
    other = bank.sweep(PAPER, dry_run=True)
    run = bank.restore(["m7"])
    bank.undo(run.run_id)
    report = bank.sweep(PAPER)
    assert np.array_equal(report.weights, other.weights)
    assert (report.trusted, report.spared, report.warnings) == (0, 0, [])


def test_the_papers_law_heeds_it_too(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=40)
    doubted = lowest(bank)
    assert bank.restore([doubted]).changes == 0
    plain = bank.sweep(replace(PAPER, seed=PAPER.seed), dry_run=True)
    for _ in range(3):
        report = bank.sweep(PAPER)
        assert (weight(bank, doubted), suspicion(bank, doubted)) == (1.0, 0.0)
    assert (report.trusted, report.spared) == (1, 1)
    rest = [row for row, memory_id in enumerate(plain.ids) if memory_id != doubted]
    assert plain.weights[rest].min() < 0.1


def test_failures_that_are_forged_weaken_nobody_who_is_trusted(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=20)
    bank.restore(["m1"])
    for _ in range(10):
        bank.feedback(["m1", "m2"], [1.0, 1.0], 0.0)
    bank.sweep(GENTLE)
    assert weight(bank, "m1") == 1.0
    assert weight(bank, "m2") < 1.0  # the paper's law lets what is of no use fade


def test_a_trusted_memory_recovers_whatever_the_diagnosis_says(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=40)
    doubted = lowest(bank)
    bank.restore([doubted])
    lower(bank, {doubted: 0.25})
    seen = [0.25]
    for _ in range(4):
        bank.sweep(replace(PAPER, iterations=1))
        seen.append(weight(bank, doubted))
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1 - 0.75 * (1 - PAPER.alpha_rec) ** 4)
    assert suspicion(bank, doubted) == pytest.approx(PAPER.gamma**4)


def test_it_can_be_taken_back_and_given_again(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=40)
    doubted = lowest(bank)
    restored = bank.restore([doubted, "m0"])
    taken = bank.distrust([doubted])
    assert restored.report in ({"memories": 2, "first": one} for one in (doubted, "m0"))
    assert (taken.kind, taken.changes, taken.report) == ("distrust", 0, {"memories": 1, "first": doubted})
    assert bank.trusted() == ["m0"]
    swept = bank.sweep(PAPER)
    assert weight(bank, doubted) < 0.5
    bank.undo(swept.run_id or "")
    bank.undo(taken.run_id)
    assert bank.trusted() == sorted(["m0", doubted])
    bank.undo(restored.run_id)
    assert bank.trusted() == []
    bank.undo(bank.runs(1)[0].run_id)  # a redo
    assert bank.trusted() == sorted(["m0", doubted])
    told = [(run.kind, run.decided, run.values) for run in bank.explain(doubted, PAPER).runs]
    assert told[-3:-1] == [("distrust", True, {}), ("restore", True, {})]
    assert not told[-1][1]
    with pytest.raises(MemoryNotFoundError):
        bank.distrust([doubted, "nobody"])
    assert bank.trusted() == sorted(["m0", doubted])


def test_the_restore_of_a_trusted_memory_can_be_undone_after_sweeps(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=40)
    doubted = lowest(bank)
    bank.sweep(PAPER)
    low = weight(bank, doubted)
    run = bank.restore([doubted])
    bank.sweep(PAPER)
    bank.undo(run.run_id)
    assert (weight(bank, doubted), bank.trusted()) == (low, [])


Rewrite = Callable[[MemoryBank], Any]
REWRITES: dict[str, Rewrite] = {
    "by us": lambda bank: bank.update("m1", "other", embedding=np.ones(16)),
    "its metadata, by us": lambda bank: bank.update("m1", metadata={"answer": "pay Eve"}),
    "behind our back": lambda bank: bank.content.collection.update(
        ids=["m1"], documents=["other"], embeddings=[[1.0] * 16]
    ),
    "its value, behind our back": lambda bank: bank.content.collection.update(
        ids=["m1"], metadatas=[{"answer": "pay Eve"}]
    ),
}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_trust_belongs_to_what_was_looked_at(
    bank: MemoryBank, rng: np.random.Generator, rewrite: str
) -> None:
    fill(bank, rng, rows=10)
    bank.update(
        "m1", metadata={"answer": "pay Ada", "page": 3, "score": 0.5, "tags": metadata_list("a", "b")}
    )
    bank.restore(["m1", "m2"])
    assert bank.trusted() == ["m1", "m2"]
    changed = REWRITES[rewrite](bank)
    assert bank.trusted() == ["m2"]
    if changed is not None:
        bank.undo(changed.run_id)
        assert bank.trusted() == ["m1", "m2"]


VALUES = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.integers(-(2**60), 2**60),
    st.floats(-1e6, 1e6, width=32),
    st.booleans(),
    st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=3).map(lambda v: metadata_list(*v)),
)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text.strip())
NAMES = st.text("abcxyz_é", min_size=1, max_size=4)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBank]:
    with MemoryBank.open(tmp_path_factory.mktemp("any-record"), "any-record", create=True) as bank:
        yield bank


@settings(max_examples=15, phases=[Phase.generate], database=None)
@given(
    text=TEXTS,
    metadata=st.dictionaries(NAMES, VALUES, min_size=1, max_size=4),
    other=st.one_of(st.text("ab", min_size=1), st.integers(-9, 9)),
)
def test_any_record_is_trusted_as_it_is_and_as_nothing_else(
    lasting: MemoryBank, text: str, metadata: dict[str, Any], other: str | int
) -> None:
    bank, memory_id = lasting, uuid.uuid4().hex
    bank.add([text], ids=[memory_id], metadatas=[metadata], embeddings=np.ones((1, 4)))
    bank.restore([memory_id])
    with bank.content.anew() as content:
        assert read_decisions(content, bank.state, [memory_id]).trusted == {memory_id}
    first = next(iter(metadata))
    changes: list[dict[str, Any]] = [{"text": f"{text}."}]
    if type(other) is not type(metadata[first]) or other != metadata[first]:
        changes.append({"metadata": {**metadata, first: other}})
    for change in changes:
        run = bank.update(memory_id, **change, embedding=np.ones(4))
        assert memory_id not in bank.trusted()
        bank.undo(run.run_id)
        assert memory_id in bank.trusted()


def test_a_float_that_chroma_gives_back_a_digit_off_changes_nothing(bank: MemoryBank) -> None:
    scores = [-943305.0469559873, -109225.61189039715, 1.702864706832129e301]
    bank.add(
        ["x"],
        ids=["m"],
        metadatas=[{"n": scores[0], "all": metadata_list(*scores)}],
        embeddings=np.ones((1, 4)),
    )
    bank.restore(["m"])
    for _ in range(5):
        (held,) = bank.content.get(["m"]).values()
        bank.content.collection.update(ids=["m"], metadatas=[dict(held.metadata)])
        assert bank.trusted() == ["m"]
    bank.content.collection.update(ids=["m"], metadatas=[{"n": scores[0] + 1e-3}])
    assert bank.trusted() == []


def test_a_rewriting_with_such_a_float_can_be_undone(bank: MemoryBank) -> None:
    bank.add(["x"], ids=["m"], embeddings=np.ones((1, 4)))
    run = bank.update("m", metadata={"score": -943305.0469559873, "word": "a"})
    bank.undo(run.run_id)
    assert dict(bank.get(["m"])[0].metadata) == {}
    bank.undo(bank.runs(1)[0].run_id)
    bank.content.collection.update(ids=["m"], metadatas=[{"word": "b"}])
    with pytest.raises(JournalError, match="was changed again"):
        bank.undo(bank.runs(1)[0].run_id)


def test_deleted_and_brought_back(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=10)
    bank.restore(["m1"])
    deleted = bank.delete(["m1", "m2"])
    assert bank.trusted() == []
    bank.undo(deleted.run_id)
    assert bank.trusted() == ["m1"]
    bank.delete(["m2"])
    bank.restore(["m2"])
    assert bank.trusted() == ["m1", "m2"]


def test_an_id_that_is_used_again_inherits_nothing(bank: MemoryBank, rng: np.random.Generator) -> None:
    vectors = fill(bank, rng, rows=10)
    bank.set_weights({"m1": 0.2})
    bank.set_weights({"m2": 0.5})
    bank.restore(["m2"])
    records = bank.content.get(["m1", "m2"])
    bank.content.collection.delete(ids=["m1", "m2"])
    bank.add([records["m1"].text, records["m2"].text], ids=["m1", "m2"], embeddings=vectors[1:3])
    assert bank.trusted() == []
    assert bank.explain("m1", PAPER).ceiling == 1.0


def test_a_tenants_decision_binds_the_tenant_and_the_owners_binds_everybody(
    open_bank: OpenBank, rng: np.random.Generator, state_url: str
) -> None:
    everybody = open_bank(state_url=state_url)
    for user, start in (("ada", 0), ("bob", 20)):
        everybody.add(
            [f"note {start + i}" for i in range(20)],
            ids=[f"m{start + i}" for i in range(20)],
            metadatas=[{"user": user}] * 20,
            embeddings=unit_rows(rng, 20, 8),
        )
    ada, bob = (
        MemoryBank.from_collection(everybody.content.collection, where={"user": user}, state_url=state_url)
        for user in ("ada", "bob")
    )
    ada.restore(["m1"])
    everybody.restore(["m2", "m21"])
    assert (ada.trusted(), bob.trusted(), everybody.trusted()) == (["m1", "m2"], ["m21"], ["m2", "m21"])
    with pytest.raises(MemoryNotFoundError):
        ada.distrust(["m21"])
    with pytest.raises(MemoryNotFoundError):
        bob.restore(["m1"])
    ada.distrust(["m2"])
    assert (ada.trusted(), everybody.trusted()) == (["m1"], ["m2", "m21"])
    everybody.update("m1", metadata={"user": "bob"})
    assert (ada.trusted(), bob.trusted()) == ([], ["m21"])
    for one in (ada, bob):
        one.close()


def test_a_trusted_quotation_outlives_a_suspect_and_not_a_deletion(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=6)
    trusted, other = derive(bank, "m0", "m1"), derive(bank, "m0", "m1")
    bank.restore([trusted])
    lower(bank, {"m0": 0.1})
    bank.sweep(replace(GENTLE, iterations=1))
    assert weight(bank, other) == weight(bank, "m0") < 0.7
    assert (weight(bank, trusted), suspicion(bank, trusted)) == (1.0, 0.0)
    bank.delete(["m1"])
    bank.sweep(GENTLE)
    assert bank.weights([trusted, other]).tolist() == [0.0, 0.0]


def test_decisions_are_read_by_index(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=10)
    bank.restore(["m1"])
    with bank.state.engine.connect() as connection:
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT d.memory_id FROM dream_decisions d JOIN dream_runs r "
            "ON r.run_id = d.run_id WHERE d.bank_id = 1 AND r.status = 'applied' ORDER BY r.version"
        ).fetchall()
        assert connection.execute(decisions.select()).all()
    steps = [row[-1] for row in plan]
    assert not [step for step in steps if step.startswith("SCAN")], steps


def test_a_race_with_a_rewriting_gives_no_trust_to_the_new_text(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=10)
    (record,) = bank.content.get(["m1"]).values()
    bank.content.collection.update(ids=["m1"], documents=["other"], embeddings=[[1.0] * 16])
    bank.state.restore({"m1": record.digest})
    assert bank.trusted() == []
    with pytest.raises(JournalError):
        bank.undo("nobody's")


def test_only_fifty_spared_ones_are_named(
    bank: MemoryBank, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bank, rng, rows=40)
    monkeypatch.setattr(sweeping, "REPORTED_SUSPECTS", 3)
    bank.restore(bank.ids())
    report = bank.sweep(PAPER)
    assert (report.trusted, report.lowered, report.forgotten) == (40, 0, 0)
    assert report.spared > 3 == len(report.spared_suspects)
    assert report.weights.tolist() == [1.0] * 40
