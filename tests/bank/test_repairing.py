"""Repairs: one run each, invisible until committed, undone one by one or by the cycle, nothing lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import create_engine, text

from shared_core import BankRetriever, MemoryBank
from shared_core.bank.derived import PREFIX, derived_id, provenance, sources_of
from shared_core.bank.edges import Edge
from shared_core.bank.keys import RetrievalKey
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair, remove_unborn
from shared_core.errors import (
    ConfigError,
    DimensionMismatchError,
    InvalidMemoryError,
    JournalError,
    MemoryNotFoundError,
)
from tests.conftest import OpenBank, fill


@pytest.fixture
def bank(open_bank: OpenBank, rng: np.random.Generator) -> MemoryBank:
    bank = open_bank()
    fill(bank, rng, rows=6)
    return bank


def merging(*sources: str, **fields: object) -> Repair:
    memory = DerivedMemory(text=f"quotes {' '.join(sources)}", sources=sources, embedding=np.ones(16))
    return Repair(operation="merge", reason="they overlap", memories=(memory,), **fields)  # type: ignore[arg-type]


def apply(bank: MemoryBank, repair: Repair, parent: str | None = None) -> str:
    with bank.state.lock("cycle") as lock:
        return apply_repair(bank, repair, lock=lock, parent=parent).run_id


def found(bank: MemoryBank) -> list[str]:
    retriever = BankRetriever(bank, track_access=False)
    return [hit.id for hit in retriever.search_by_vector(np.ones(16), k=10)]


def test_a_repair_becomes_visible_whole_and_undo_takes_it_back(bank: MemoryBank) -> None:
    before = [(m.id, m.text, m.state) for m in bank]
    run_id = apply(bank, merging("m0", "m1", weights={"m0": 0.2, "m1": 0.2}))
    new = found(bank)[0]
    assert new.startswith(PREFIX)
    assert sources_of(bank.get([new])[0].metadata) == ("m0", "m1")
    assert bank.weights(["m0", "m1", "m2", new]).tolist() == [0.2, 0.2, 1.0, 1.0]
    assert {(e.source, e.target) for e in bank.state.edges()} == {("m0", new), ("m1", new)}
    undo = bank.undo(run_id)
    assert [(m.id, m.text, m.state) for m in bank if m.id != new] == before
    assert new not in found(bank)
    assert bank.state.edges() == []
    bank.undo(undo.run_id)
    assert found(bank)[0] == new
    assert len(bank.state.edges()) == 2


def test_keys_hold_as_long_as_their_repair(bank: MemoryBank) -> None:
    vector = np.linspace(-1, 1, 16)
    keys = (RetrievalKey("m0", "sentence", "m0 says it", vector), RetrievalKey("m1", "scene1", "m0 m1 m2"))
    run_id = apply(bank, Repair(operation="extract", reason="buried", keys=keys))
    stored = bank.state.retrieval_keys()
    assert [(key.memory_id, key.kind, key.text) for key in stored] == [
        ("m0", "sentence", "m0 says it"),
        ("m1", "scene1", "m0 m1 m2"),
    ]
    assert stored[0].embedding is not None
    np.testing.assert_allclose(stored[0].embedding, vector, atol=1e-3)
    assert stored[1].embedding is None
    assert bank.ids() == [f"m{n}" for n in range(6)]  # the collection holds memories only
    undo = bank.undo(run_id)
    assert bank.state.retrieval_keys() == []
    bank.undo(undo.run_id)
    assert len(bank.state.retrieval_keys()) == 2


def test_what_was_not_committed_is_invisible_and_is_removed(bank: MemoryBank) -> None:
    unborn = derived_id()
    written = provenance("merge", ("m0",))
    bank.content.add([unborn], ["half written"], [written], np.ones((1, 16), np.float32))
    assert unborn not in found(bank)
    assert bank.weights([unborn]).tolist() == [0.0]
    kept = apply(bank, merging("m0"))
    with bank.state.lock("cycle") as lock:
        assert remove_unborn(bank, lock) == [unborn]
        assert remove_unborn(bank, lock) == []
    assert unborn not in bank.ids()
    assert bank.state.run(kept).report["derived"][0] in bank.ids()


def test_a_failing_transaction_leaves_nothing_behind(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("shared_core.bank.repairing.write_edges", refuse)
    before = bank.ids()
    with pytest.raises(RuntimeError, match="disk"):
        apply(bank, merging("m0", weights={"m0": 0.5}))
    assert bank.ids() == before
    assert bank.weights(["m0"]).tolist() == [1.0]
    assert [run.kind for run in bank.runs()] == ["add"]


def test_a_cycle_is_undone_whole_and_redone_whole(bank: MemoryBank) -> None:
    with bank.state.transaction("cycle") as run:
        run.report = {"rounds": 0}
    cycle = run.run_id
    first = apply(bank, merging("m0", weights={"m0": 0.5}), parent=cycle)
    dropped = apply(bank, merging("m2"), parent=cycle)
    apply(bank, merging("m0", weights={"m0": 0.1}), parent=cycle)
    bank.undo(dropped)
    with pytest.raises(JournalError, match="built upon"):
        bank.undo(first)
    undo = bank.undo(cycle)
    assert [i for i in found(bank) if i.startswith(PREFIX)] == []
    assert bank.weights(["m0"]).tolist() == [1.0]
    bank.undo(undo.run_id)
    assert len([i for i in found(bank) if i.startswith(PREFIX)]) == 2  # what was dropped before stays so
    assert bank.weights(["m0"]).tolist() == [0.1]
    assert {r.run_id: r.status for r in bank.runs()}[dropped] == "undone"
    bank.undo(cycle)
    assert bank.weights(["m0"]).tolist() == [1.0]


def test_a_cycle_that_was_built_upon_is_refused_whole(bank: MemoryBank) -> None:
    with bank.state.transaction("cycle") as run:
        pass
    apply(bank, merging("m0", weights={"m0": 0.5}), parent=run.run_id)
    apply(bank, merging("m1", weights={"m1": 0.5}), parent=run.run_id)
    bank.set_weights({"m0": 0.7})
    with pytest.raises(JournalError, match="built upon"):
        bank.undo(run.run_id)
    assert bank.weights(["m0", "m1"]).tolist() == [0.7, 0.5]
    assert {r.status for r in bank.runs() if r.kind == "repair"} == {"applied"}


def test_the_report_of_a_cycle_can_be_completed(bank: MemoryBank) -> None:
    with bank.state.transaction("cycle") as run:
        pass
    bank.state.amend_report(run.run_id, {"rounds": 3})
    assert bank.state.run(run.run_id).report == {"rounds": 3}


@pytest.mark.parametrize(
    ("repair", "error", "message"),
    [
        (Repair(operation="prune", reason="-"), InvalidMemoryError, "changes nothing"),
        (Repair(operation="prune", reason="-", weights={"m0": 2.0}), InvalidMemoryError, "outside"),
        (Repair(operation="prune", reason="-", weights={"gone": 0.2}), MemoryNotFoundError, "gone"),
        (
            Repair(operation="link", reason="-", edges=(Edge("m0", "gone", "bridge"),)),
            MemoryNotFoundError,
            "gone",
        ),
        (
            Repair(operation="extract", reason="-", keys=(RetrievalKey("gone", "sentence", "text"),)),
            MemoryNotFoundError,
            "gone",
        ),
        (
            Repair(operation="extract", reason="-", keys=(RetrievalKey("m0", "sentence", " "),)),
            InvalidMemoryError,
            "empty",
        ),
        (
            Repair(operation="extract", reason="-", keys=(RetrievalKey("m0", "sentence", "t", np.ones(3)),)),
            DimensionMismatchError,
            "dimension",
        ),
        (merging("gone"), MemoryNotFoundError, "gone"),
        (merging(), InvalidMemoryError, "at least one source"),
    ],
)
def test_a_bad_repair_is_refused_whole(
    bank: MemoryBank, repair: Repair, error: type[Exception], message: str
) -> None:
    before = bank.ids()
    with pytest.raises(error, match=message):
        apply(bank, repair)
    assert bank.ids() == before
    assert [run.kind for run in bank.runs()] == ["add"]


def test_suspects_deleted_and_derived_memories_are_never_sources(bank: MemoryBank) -> None:
    with bank.state.transaction("sweep") as run:
        run.set(["m0"], {"suspicion": [0.9]})
    bank.delete(["m1"])
    apply(bank, merging("m2"))
    derived = next(i for i in bank.ids() if i.startswith(PREFIX))
    for source, message in [("m0", "suspect"), ("m1", "deleted"), (derived, "derived itself")]:
        with pytest.raises(InvalidMemoryError, match=message):
            apply(bank, merging(source))


def test_nobody_else_can_use_the_ids_of_derived_memories(bank: MemoryBank) -> None:
    with pytest.raises(InvalidMemoryError, match="use another"):
        bank.add(["text"], ids=[derived_id()], embeddings=np.ones((1, 16)))


def test_only_derived_records_can_be_removed(bank: MemoryBank) -> None:
    with pytest.raises(ConfigError, match="never removed"):
        bank.content.discard_derived([derived_id(), "m0"])
    assert "m0" in bank.ids()


def test_a_state_database_of_version_one_is_brought_up(
    open_bank: OpenBank, rng: np.random.Generator, tmp_path: Path
) -> None:
    bank = open_bank(state_url=f"sqlite:///{tmp_path / 'state.sqlite3'}")
    fill(bank, rng, rows=3)
    kept = bank.set_weights({"m0": 0.5}).run_id
    bank.close()
    engine = create_engine(f"sqlite:///{tmp_path / 'state.sqlite3'}")
    with engine.begin() as connection:
        for statement in (
            "DROP INDEX dream_runs_parent",
            "ALTER TABLE dream_runs DROP COLUMN parent",
            "DROP TABLE dream_edges",
            "DROP TABLE dream_tiers",
            "DROP TABLE dream_keys",
            "UPDATE dream_meta SET value = '1'",
        ):
            connection.execute(text(statement))
    engine.dispose()
    again = open_bank(state_url=f"sqlite:///{tmp_path / 'state.sqlite3'}")
    assert again.weights(["m0"]).tolist() == [0.5]
    apply(again, merging("m1"))
    again.undo(kept)
    assert again.weights(["m0"]).tolist() == [1.0]
