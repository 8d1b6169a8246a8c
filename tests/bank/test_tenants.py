"""Nothing outside a tenant's filter is read into statistics or changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank
from shared_core.errors import (
    BankLockedError,
    ConfigError,
    InvalidMemoryError,
    JournalError,
    MemoryNotFoundError,
)
from tests.conftest import OpenBank, unit_rows

SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5)


@pytest.fixture
def tenants(
    open_bank: OpenBank, location: str, state_url: str, rng: np.random.Generator
) -> tuple[MemoryBank, MemoryBank, MemoryBank]:
    everyone = open_bank(location, state_url=state_url)
    ada, bob = (open_bank(location, state_url=state_url, where={"user": user}) for user in ("ada", "bob"))
    for bank, prefix in ((ada, "a"), (bob, "b")):
        bank.add([f"{prefix} {i}" for i in range(20)], ids=[f"{prefix}{i}" for i in range(20)],
                 embeddings=unit_rows(rng, 20, 16))  # fmt: skip
    return everyone, ada, bob


def everything(bank: MemoryBank) -> list[Any]:
    return [(m.id, m.text, m.metadata, m.state) for m in bank]


def test_a_tenant_is_a_bank_of_its_own(tenants: tuple[MemoryBank, MemoryBank, MemoryBank]) -> None:
    everyone, ada, bob = tenants
    assert (len(everyone), len(ada), len(bob)) == (40, 20, 20)
    assert {m.metadata["user"] for m in ada} == {"ada"}
    before = everything(bob)
    report = ada.sweep(SWEEP)
    assert report.memories == 20
    assert report.lowered > 0
    ada.delete(["a0"])
    ada.feedback(["a1"], [1.0], 0.0)
    ada.update("a2", "rewritten", embedding=np.ones(16))
    assert everything(bob) == before
    assert bob.status().memories == 20
    assert ada.status().deleted == 1
    assert [run.kind for run in bob.runs()] == ["add"]
    assert len(everyone.runs()) == 6
    assert ada.ids() == [f"a{i}" for i in range(20)]
    assert [m.id for m in ada.page(19, 5)] == ["a19"]


def test_statistics_do_not_depend_on_other_tenants(open_bank: OpenBank, rng: np.random.Generator) -> None:
    vectors = unit_rows(rng, 30, 16)
    shared = open_bank(where={"user": "ada"})
    shared.content.collection.add(
        ids=[f"b{i}" for i in range(50)],
        embeddings=unit_rows(rng, 50, 16) + 9,
        metadatas=[{"user": "bob"}] * 50,
    )
    alone = open_bank(name=shared.content.name + "-alone")
    for bank in (shared, alone):
        bank.add([f"t{i}" for i in range(30)], ids=[f"m{i}" for i in range(30)], embeddings=vectors)
    assert np.array_equal(shared.sweep(SWEEP).activation, alone.sweep(SWEEP).activation)


def test_nothing_of_another_tenant_can_be_touched(tenants: tuple[MemoryBank, MemoryBank, MemoryBank]) -> None:
    _, ada, bob = tenants
    before = everything(bob)
    for call in (
        lambda: ada.get(["b0"]),
        lambda: ada.update("b0", "x", embedding=np.ones(16)),
        lambda: ada.delete(["a0", "b0"]),
        lambda: ada.set_weights({"a0": 0.5, "b0": 0.5}),
        lambda: ada.restore(["b0"]),
        lambda: ada.feedback(["b0"], [1.0], 1.0),
    ):
        with pytest.raises(MemoryNotFoundError, match="'b0'; nothing was changed"):
            call()
    with pytest.raises(InvalidMemoryError, match="metadata user='bob' lies outside this bank"):
        ada.add(["x"], metadatas=[{"user": "bob"}], embeddings=np.ones((1, 16)))
    with pytest.raises(InvalidMemoryError, match="lies outside this bank"):
        ada.update("a0", metadata={"user": "bob"})
    with pytest.raises(InvalidMemoryError, match="exist already"):
        ada.add(["x"], ids=["b0"], embeddings=np.ones((1, 16)))
    theirs = bob.set_weights({"b0": 0.5})
    with pytest.raises(JournalError, match="no run"):
        ada.undo(theirs.run_id)
    bob.undo(theirs.run_id)
    assert everything(bob) == before
    assert ada.weights(["a0"]).tolist() == [1]
    assert ada.update("a0", metadata={"k": 1}).kind == "update"
    assert ada.get(["a0"])[0].metadata == {"k": 1, "user": "ada"}


@pytest.mark.parametrize("kind", ["reweight", "update"])
def test_undo_leaves_alone_what_another_tenant_owns_by_now(
    tenants: tuple[MemoryBank, MemoryBank, MemoryBank], kind: str
) -> None:
    everyone, ada, bob = tenants
    if kind == "reweight":
        run = ada.set_weights({"a0": 0.5, "a1": 0.5})
    else:
        run = ada.update("a0", "rewritten", embedding=np.ones(16))
    ada.content.collection.update(ids=["a0"], metadatas=[{"user": "bob"}])
    before = everything(bob)
    with pytest.raises(JournalError, match=r"gone from this tenant .*: 1 memory, such as 'a0'"):
        ada.undo(run.run_id)
    assert everything(bob) == before
    if kind == "reweight":
        everyone.undo(run.run_id)
        assert everyone.weights(["a0", "a1"]).tolist() == [1, 1]


def test_weights_of_others_are_not_told(tenants: tuple[MemoryBank, MemoryBank, MemoryBank]) -> None:
    everyone, ada, bob = tenants
    bob.set_weights({"b0": 0.25})
    ada.set_weights({"a0": 0.5})
    asked = ["b0", "a0", "b1", "a1", "a0", "nobody's"]
    assert ada.weights(asked).tolist() == [0, 0.5, 0, 1, 0.5, 0]
    assert ada.weights([]).tolist() == []
    assert everyone.weights(asked).tolist() == [0.25, 0.5, 1, 1, 0.5, 1]


def test_dreams_of_distinct_tenants_do_not_exclude_each_other(
    tenants: tuple[MemoryBank, MemoryBank, MemoryBank],
) -> None:
    everyone, ada, bob = tenants
    with ada.state.lock("dreaming"):
        bob.sweep(SWEEP)
        with pytest.raises(BankLockedError, match="'dreaming'"):
            everyone.sweep(SWEEP)
        with pytest.raises(BankLockedError, match="'dreaming'"):
            ada.sweep(SWEEP)
        assert everyone.sweep(SWEEP, dry_run=True).memories == 40
        assert bob.status().locked_by is None
        assert "dreaming" in str(everyone.status().locked_by)


def test_a_filter_of_several_keys(open_bank: OpenBank, rng: np.random.Generator) -> None:
    bank = open_bank(where={"org": "x", "user": "ada"})
    bank.add(["a"], ids=["a"], embeddings=unit_rows(rng, 1, 8))
    bank.content.collection.add(
        ids=["b"], embeddings=unit_rows(rng, 1, 8), metadatas=[{"org": "x", "user": "b"}]
    )
    assert bank.ids() == ["a"]
    assert bank.content.matching({"org": "x", "user": "ada"}, None) == ["a"]
    assert bank.content.matching({"user": "b"}, None) == []
    assert bank.sweep(ForgettingConfig()).memories == 1


def test_a_filter_that_is_no_equality_reads_only(open_bank: OpenBank, rng: np.random.Generator) -> None:
    plain = open_bank()
    plain.add(["a", "b"], ids=["a", "b"], metadatas=[{"n": 1}, {"n": 5}], embeddings=unit_rows(rng, 2, 8))
    bank = open_bank(where={"n": {"$gt": 3}})
    assert bank.ids() == ["b"]
    bank.set_weights({"b": 0.5})
    with pytest.raises(ConfigError, match="read-only for texts: use plain equalities"):
        bank.add(["c"], embeddings=unit_rows(rng, 1, 8))
    with pytest.raises(ConfigError, match="not a filter of plain values"):
        open_bank(where={"n": np.int64(3)})
    with pytest.raises(ConfigError, match="Expected where"):
        open_bank(where={"n": None}).ids()


def test_an_undo_by_the_owner_stays_the_tenants_run(open_bank: OpenBank, rng: np.random.Generator) -> None:
    whole = open_bank()
    ada = open_bank(where={"user": "ada"})
    ada.add(["x y"], ids=["a1"], embeddings=rng.standard_normal((1, 4)))
    lowered = ada.set_weights({"a1": 0.2})
    undone = whole.undo(lowered.run_id)
    assert [run.run_id for run in ada.runs(1)] == [undone.run_id]
    ada.undo(undone.run_id)
    assert ada.weights(["a1"]) == 0.2


def test_undo_wants_a_runs_id(open_bank: OpenBank, rng: np.random.Generator) -> None:
    bank = open_bank()
    bank.add(["x y"], embeddings=rng.standard_normal((1, 4)))
    dry = bank.sweep(ForgettingConfig(), dry_run=True)
    for wrong in (dry, dry.run_id, 5):
        with pytest.raises(ConfigError, match="a run's id"):
            bank.undo(wrong)  # type: ignore[arg-type]
    assert repr(bank).startswith("MemoryBank('test-")
