"""Every change is journalled and can be undone; what others built upon is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update
from sqlalchemy.event import listen

from shared_core import ForgettingConfig, MemoryBank
from shared_core.bank.known_fields import known_fields
from shared_core.bank.schema import memories, writing
from shared_core.errors import JournalError
from tests.conftest import OpenBank, fill, metadata_list, unit_rows

SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5)


@pytest.fixture
def filled(open_bank: OpenBank, state_url: str, rng: np.random.Generator) -> MemoryBank:
    bank = open_bank(":memory:", state_url=state_url)
    fill(bank, rng, rows=20)
    return bank


def snapshot(bank: MemoryBank) -> Any:
    return [(m.id, m.text, dict(m.metadata), m.state) for m in bank]


CHANGES: dict[str, Callable[[MemoryBank], Any]] = {
    "add": lambda bank: bank.add(["new"], ids=["new"], embeddings=np.ones((1, 16))),
    "update": lambda bank: bank.update("m1", "other", metadata={"k": 1}, embedding=np.ones(16)),
    "delete": lambda bank: bank.delete(["m1", "m2", "m1"]),
    "restore": lambda bank: bank.restore(["m3", "m3"]),
    "reweight": lambda bank: bank.set_weights({"m1": 0.5, "m2": 0.0, "m3": 1.0}),
    "feedback": lambda bank: bank.feedback(["m1", "m2"], [0.9, 0.2], 0.0),
    "sweep": lambda bank: bank.sweep(SWEEP),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_undo_redo_and_undo_again(filled: MemoryBank, kind: str) -> None:
    if kind == "restore":
        filled.set_weights({"m3": 0.2})
        filled.delete(["m3"])
    before = snapshot(filled)
    CHANGES[kind](filled)
    after = snapshot(filled)
    assert after != before
    run = filled.runs(1)[0]
    assert (run.kind, run.status) == (kind, "applied")
    assert run.changes > 0
    undone = filled.undo(run.run_id)
    assert (undone.kind, undone.target) == ("undo", run.run_id)
    reverted = snapshot(filled)
    if kind == "add":
        assert filled.weights(["new"]).tolist() == [0]
        assert reverted[:-1] == before
    else:
        assert reverted == before
    redone = filled.undo(undone.run_id)
    assert snapshot(filled) == after
    again = filled.undo(redone.run_id)
    assert snapshot(filled) == reverted
    statuses = {r.run_id: r.status for r in filled.runs()}
    assert [statuses[r.run_id] for r in (run, undone, redone, again)] == [
        "undone", "applied", "undone", "applied",
    ]  # fmt: skip


def test_an_undone_or_unknown_run_is_refused(filled: MemoryBank) -> None:
    run = filled.set_weights({"m1": 0.5})
    filled.undo(run.run_id)
    with pytest.raises(JournalError, match=f"{run.run_id} .reweight. is undone, only an applied run"):
        filled.undo(run.run_id)
    with pytest.raises(JournalError, match="no run 'nonsense' in this bank: `dream log` lists"):
        filled.undo("nonsense")


def test_an_undone_update_is_refused(filled: MemoryBank) -> None:
    run = filled.update("m1", "other", embedding=np.ones(16))
    filled.undo(run.run_id)
    with pytest.raises(JournalError, match=r"\(update\) is undone"):
        filled.undo(run.run_id)


def test_a_run_built_upon_names_the_later_ones(filled: MemoryBank) -> None:
    runs = [filled.set_weights({"m1": weight, "m2": weight}) for weight in (0.5, 0.25, 0.125)]
    before = snapshot(filled)
    with pytest.raises(
        JournalError,
        match=f"undo first, newest first: {runs[2].run_id} .reweight., {runs[1].run_id} .reweight.",
    ):
        filled.undo(runs[0].run_id)
    assert snapshot(filled) == before
    for run in reversed(runs):
        filled.undo(run.run_id)
    assert filled.weights(["m1", "m2"]).tolist() == [1, 1]
    assert {run.status for run in filled.runs()} == {"applied", "undone"}


def test_a_conflict_of_another_bank_is_not_named(
    filled: MemoryBank, open_bank: OpenBank, rng: np.random.Generator
) -> None:
    other = open_bank(":memory:", name=filled.content.name + "-o", state_url=filled.state.engine.url)
    fill(other, rng, rows=3)
    first = filled.set_weights({"m1": 0.5})
    mine = filled.set_weights({"m1": 0.25})
    theirs = other.set_weights({"m1": 0.75})
    with pytest.raises(JournalError) as caught:
        filled.undo(first.run_id)
    assert mine.run_id in str(caught.value)
    assert theirs.run_id not in str(caught.value)


def test_sweep_and_feedback_undo_in_either_order(filled: MemoryBank) -> None:
    before = snapshot(filled)
    for first in (0, 1):
        runs = [str(filled.sweep(SWEEP).run_id), filled.feedback(["m1", "m2"], [0.5, 0.4], 0.0).run_id]
        filled.undo(runs[first])
        filled.undo(runs[1 - first])
        assert snapshot(filled) == before


def test_text_changed_by_another_is_not_overwritten(filled: MemoryBank) -> None:
    run = filled.update("m1", "ours", embedding=np.ones(16))
    filled.content.collection.update(ids=["m1"], documents=["theirs"], embeddings=[[2.0] * 16])
    with pytest.raises(JournalError, match="the text of 'm1' was changed again after run"):
        filled.undo(run.run_id)
    assert filled.get(["m1"])[0].text == "theirs"
    filled.content.collection.delete(ids=["m1"])
    with pytest.raises(JournalError, match="'m1' was changed again"):
        filled.undo(run.run_id)


def test_updates_undo_newest_first(filled: MemoryBank) -> None:
    runs = [
        filled.update("m1", f"v{i}", metadata={f"k{i}": i}, embedding=np.full(16, i + 1.0)) for i in (1, 2)
    ]
    with pytest.raises(JournalError, match=f"undo first, newest first: {runs[1].run_id} .update."):
        filled.undo(runs[0].run_id)
    filled.undo(runs[1].run_id)
    filled.undo(runs[0].run_id)
    memory = filled.get(["m1"])[0]
    assert (memory.text, memory.metadata) == ("memory 1", {})


def test_a_run_built_upon_is_refused_though_the_values_are_the_same_again(filled: MemoryBank) -> None:
    first = filled.delete(["m1"])
    restored = filled.restore(["m1"])
    second = filled.delete(["m1"])
    named = f"newest first: {second.run_id} .delete., {restored.run_id} .restore."
    with pytest.raises(JournalError, match=named):
        filled.undo(first.run_id)
    assert filled.weights(["m1"]).tolist() == [0]
    filled.undo(second.run_id)
    filled.undo(restored.run_id)
    filled.undo(first.run_id)
    assert filled.weights(["m1"]).tolist() == [1]


def test_a_text_built_upon_is_refused_though_it_reads_the_same_again(filled: MemoryBank) -> None:
    texts = ("b", "a", "b")
    runs = [filled.update("m1", text, embedding=np.eye(16)[ord(text) % 16]) for text in texts]
    with pytest.raises(JournalError, match=f"newest first: {runs[2].run_id} .update., {runs[1].run_id}"):
        filled.undo(runs[0].run_id)
    assert filled.get(["m1"])[0].text == "b"
    for run in reversed(runs):
        filled.undo(run.run_id)
    assert filled.get(["m1"])[0].text == "memory 1"


def test_a_redo_is_refused_when_it_was_built_upon(filled: MemoryBank) -> None:
    run = filled.delete(["m1"])
    undone = filled.undo(run.run_id)
    redone = filled.undo(undone.run_id)
    again = filled.undo(run.run_id)
    with pytest.raises(JournalError, match=f"newest first: {again.run_id} .undo."):
        filled.undo(redone.run_id)
    filled.undo(again.run_id)
    assert filled.undo(redone.run_id).kind == "undo"
    assert filled.weights(["m1"]).tolist() == [1]


def test_state_altered_outside_the_journal_is_not_overwritten(filled: MemoryBank) -> None:
    run = filled.set_weights({"m1": 0.5})
    with writing(filled.state.engine) as connection:
        connection.execute(update(memories).where(memories.c.memory_id == "m1").values(weight=0.25))
    with pytest.raises(JournalError, match="1 memory, such as 'm1', is not what the journal says"):
        filled.undo(run.run_id)


def test_an_update_of_the_embedding_alone_is_undone(filled: MemoryBank) -> None:
    old = filled.content.get_embeddings(["m1"])["m1"]
    run = filled.update("m1", embedding=np.eye(16)[1])
    later = filled.update("m1", embedding=np.eye(16)[2])
    with pytest.raises(JournalError, match=f"newest first: {later.run_id}"):
        filled.undo(run.run_id)
    filled.undo(later.run_id)
    filled.undo(run.run_id)
    assert np.allclose(filled.content.get_embeddings(["m1"])["m1"], old)


def test_an_update_is_undone_after_reopening(
    open_bank: OpenBank, location: str, state_url: str, rng: np.random.Generator
) -> None:
    bank = open_bank(location, state_url=state_url)
    bank.add(["old"], ids=["a"], embeddings=unit_rows(rng, 1, 4))
    run = bank.update("a", "new", metadata={"k": metadata_list(True)}, embedding=np.ones(4))
    bank.close()
    again = open_bank(location, state_url=state_url, create=False)
    again.undo(run.run_id)
    assert (again.get(["a"])[0].text, again.get(["a"])[0].metadata) == ("old", {})
    assert again.state.rewritten_since(run.version) == ["a"]


def test_a_failed_write_leaves_nothing_behind(filled: MemoryBank) -> None:
    before, runs = snapshot(filled), filled.runs()
    with pytest.raises(ZeroDivisionError), filled.state.transaction("reweight") as run:  # noqa: PT012
        run.set(["m1"], {"weight": [0.5]})
        raise ZeroDivisionError
    assert (snapshot(filled), filled.runs()) == (before, runs)


def test_runs_are_newest_first_and_plain(filled: MemoryBank) -> None:
    import json

    filled.sweep(SWEEP)
    filled.delete(["m1"])
    runs = filled.runs()
    assert [run.kind for run in runs] == ["delete", "sweep", "add"]
    assert [run.version for run in runs] == sorted((run.version for run in runs), reverse=True)
    assert [run.kind for run in filled.runs(limit=1)] == ["delete"]
    json.dumps([run.to_dict() for run in runs])
    assert runs[1].config["eta"] == 0.3
    assert runs[1].report["memories"] == 20


def test_of_configs_only_the_newest_that_says_so_is_read(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=3)
    told = [
        {"value_key": "a", "saw_values": True},
        {"value_key": "b", "saw_values": True},
        {"saw_values": False},
    ]
    made = []
    for config in told:
        with bank.state.transaction("sweep") as run:
            run.config = config
        made.append(run.run_id)
    assert known_fields(bank).value_key == "b"
    assert known_fields(bank).saw_values
    bank.undo(made[1])
    assert known_fields(bank).value_key == "a", "what was undone says nothing"
    statements: list[str] = []
    listen(bank.state.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    known_fields(bank)
    (query,) = [one for one in statements if "dream_runs" in one]
    assert query.startswith("SELECT dream_runs.config \n")
    assert "LIMIT" in query
    bank.undo(made[0])
    assert known_fields(bank).value_key is None
