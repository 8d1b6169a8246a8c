"""A sweep is one transaction and one undo; random histories agree with a plain oracle."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared_core import ForgettingConfig, MemoryBank
from shared_core.dynamics import SweepState, forgetting_sweep
from shared_core.errors import BankLockedError, ConfigError, JournalError
from tests.conftest import OpenBank, fill, unit_rows

SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5)


def states(bank: MemoryBank) -> list[Any]:
    return [(m.id, m.state) for m in bank]


def test_a_sweep_writes_what_the_pure_sweep_computes(
    open_bank: OpenBank, state_url: str, rng: np.random.Generator
) -> None:
    bank = open_bank(state_url=state_url, space="l2")
    vectors = fill(bank, rng, rows=40)
    bank.feedback(["m1"], [1.0], 0.0)
    start = SweepState(np.ones(40), np.zeros(40), np.where(np.arange(40) == 1, 0.8, 1.0))
    expected = forgetting_sweep(vectors, start, SWEEP, np.random.Generator(np.random.SFC64(SWEEP.seed)))
    seen: list[int] = []
    report = bank.sweep(SWEEP, progress=lambda *step: seen.append(step[1]))
    assert np.array_equal(bank.weights(bank.ids()), expected.weights)
    assert np.array_equal(report.weights, bank.weights(report.ids))
    assert np.array_equal(report.activation, expected.activation)
    assert seen == list(range(1, SWEEP.iterations + 1))
    assert report.lowered == int((expected.weights < 1).sum()) > 0
    assert report.suspects[0].weight == expected.weights.min()
    run = bank.state.run(str(report.run_id))
    assert json.loads(json.dumps(run.report))["memories"] == 40
    assert json.dumps(report.to_dict())


def test_a_dry_run_writes_nothing(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=40)
    before, version = states(bank), bank.state.version()
    with bank.state.lock("somebody"):
        dry = bank.sweep(SWEEP, dry_run=True)
    assert (states(bank), bank.state.version(), len(bank.runs())) == (before, version, 1)
    assert dry.run_id is None
    real = bank.sweep(SWEEP)
    assert (real.lowered, real.suspects) == (dry.lowered, dry.suspects)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_tiny_bank(bank: MemoryBank, rng: np.random.Generator, rows: int) -> None:
    if rows:
        fill(bank, rng, rows=rows)
    report = bank.sweep(ForgettingConfig())
    assert (report.memories, report.skipped) == (rows, 0)
    status = bank.status()
    assert (status.memories, status.mean_weight) == (rows, 1.0 if rows == 1 else status.mean_weight)
    bank.undo(str(report.run_id))
    assert bank.weights(bank.ids()).tolist() == [1.0] * rows
    json.dumps(status.to_dict())


def test_embeddings_without_a_direction_are_skipped(open_bank: OpenBank, rng: np.random.Generator) -> None:
    bank = open_bank(space="l2")
    vectors = unit_rows(rng, 30, 8)
    vectors[0], vectors[1], vectors[2] = 0.0, vectors[1] * 1e-20, vectors[2] * 1e18
    # as others may have filled it: ``add`` refuses two of these
    bank.content.collection.add(ids=[f"m{i}" for i in range(30)], embeddings=vectors)
    report = bank.sweep(SWEEP)
    assert (report.memories, report.skipped) == (27, 3)
    assert bank.weights(["m0", "m1", "m2"]).tolist() == [1, 1, 1]
    zeros = open_bank(name=bank.content.name + "-z", space="l2")
    zeros.add(["a", "b"], embeddings=np.zeros((2, 8)))
    assert zeros.sweep(ForgettingConfig()).skipped == 2


def test_the_length_of_embeddings_does_not_matter(open_bank: OpenBank, rng: np.random.Generator) -> None:
    vectors = unit_rows(rng, 40, 8)
    lengths = 2.0 ** rng.integers(-3, 6, (40, 1))
    banks = [open_bank(name=f"len-{uuid.uuid4().hex[:8]}", space="l2") for _ in range(2)]
    for bank, matrix in zip(banks, (vectors, vectors * lengths), strict=True):
        bank.add([f"t{i}" for i in range(40)], embeddings=matrix)
    assert np.allclose(*(bank.sweep(SWEEP).activation for bank in banks), atol=1e-5)


def test_only_one_dreams_at_a_time(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=10)
    before = states(bank)
    with bank.state.lock("other"), pytest.raises(BankLockedError, match="'other' by pid"):
        bank.sweep(SWEEP)
    assert states(bank) == before


def test_a_failing_sweep_writes_nothing_and_lets_the_lock_go(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=10)
    before = states(bank)

    def stop(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bank.sweep(SWEEP, progress=stop)
    assert states(bank) == before
    assert bank.status().locked_by is None
    assert bank.sweep(SWEEP).run_id


async def test_a_sweep_does_not_block_the_event_loop(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=2_000, dimension=64)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.002)
            ticks += 1

    ticking = asyncio.create_task(tick())
    report = await bank.asweep(ForgettingConfig(eta=0.3, iterations=50, probe="full"))
    ticking.cancel()
    assert report.memories == 2_000
    assert ticks > 3


def test_feedback_while_a_sweep_computes_is_kept(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=20)

    def meanwhile(stage: str, done: int, total: int) -> None:
        if done == 1:
            bank.feedback(["m1"], [1.0], 0.0)
            bank.delete(["m2"])

    report = bank.sweep(SWEEP, progress=meanwhile)
    one, two = bank.get(["m1", "m2"])
    assert one.state.consolidation == pytest.approx(0.8)
    assert two.state.deleted
    bank.undo(str(report.run_id))
    assert bank.get(["m1"])[0].state.consolidation == pytest.approx(0.8)
    assert bank.get(["m2"])[0].state.deleted


IDS = [f"m{i}" for i in range(6)]
some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True)
Oracle = dict[str, dict[str, float]]


class History(RuleBasedStateMachine):
    """The oracle keeps every state as a plain dictionary, and the journal as a list of differences.

    And what a person decided as the ids of each run that did: the last applied one counts.
    """

    @initialize()
    def start(self) -> None:
        self.bank = MemoryBank.open(":memory:", f"history-{uuid.uuid4().hex}", create=True)
        self.bank.add(IDS, ids=IDS, embeddings=unit_rows(np.random.default_rng(0), 6, 8))
        self.now: Oracle = {i: {"w": 1.0, "s": 0.0, "c": 1.0, "d": 0.0, "n": 0.0} for i in IDS}
        self.log: list[dict[str, Any]] = []

    def teardown(self) -> None:
        if hasattr(self, "bank"):
            self.bank.close()

    def seen(self) -> Oracle:
        return {
            m.id: {
                "w": m.state.weight, "s": m.state.suspicion, "c": m.state.consolidation,
                "d": float(m.state.deleted), "n": m.state.successes,
            }
            for m in self.bank
        }  # fmt: skip

    def note(
        self,
        run_id: str,
        after: Oracle,
        target: str | None = None,
        *,
        trusts: dict[str, bool] | None = None,
        ceilings: dict[str, float] | None = None,
    ) -> None:
        difference = {
            (i, f): (self.now[i][f], after[i][f])
            for i in IDS
            for f in after[i]
            if after[i][f] != self.now[i][f]
        }
        self.log.append(
            {
                "id": run_id,
                "diff": difference,
                "target": target,
                "status": "applied",
                "trusts": trusts or {},
                "ceilings": ceilings or {},
            }
        )
        self.now = after

    def decided(self, name: str, default: Any) -> dict[str, Any]:
        found = dict.fromkeys(IDS, default)
        for entry in self.log:
            if entry["status"] == "applied":
                found |= entry[name]
        return found

    def trusted(self) -> list[str]:
        return [i for i, holds in self.decided("trusts", False).items() if holds and not self.now[i]["d"]]

    def changed(self, ids: list[str], **values: float) -> Oracle:
        return {i: {**fields, **(values if i in ids else {})} for i, fields in self.now.items()}

    @rule(ids=some_ids, weight=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    def set_weights(self, ids: list[str], weight: float) -> None:
        run = self.bank.set_weights(dict.fromkeys(ids, weight))
        self.note(run.run_id, self.changed(ids, w=weight), ceilings=dict.fromkeys(ids, weight))

    @rule(ids=some_ids)
    def delete(self, ids: list[str]) -> None:
        self.note(self.bank.delete(ids).run_id, self.changed(ids, d=1.0))

    @rule(ids=some_ids)
    def restore(self, ids: list[str]) -> None:
        run = self.bank.restore(ids)
        full = self.changed(ids, w=1.0, s=0.0, d=0.0)
        self.note(run.run_id, full, trusts=dict.fromkeys(ids, True), ceilings=dict.fromkeys(ids, 1.0))

    @rule(ids=some_ids)
    def distrust(self, ids: list[str]) -> None:
        self.note(self.bank.distrust(ids).run_id, self.changed([]), trusts=dict.fromkeys(ids, False))

    @rule(memory_id=st.sampled_from(IDS), success=st.sampled_from([0.0, 0.5, 1.0]))
    def feedback(self, memory_id: str, success: float) -> None:
        run = self.bank.feedback([memory_id], [0.7], success)
        old = self.now[memory_id]
        c = float(np.clip(0.8 * old["c"] + 0.2 * success, 0, 1))
        self.note(run.run_id, self.changed([memory_id], c=c, n=old["n"] + success))

    @rule()
    def sweep(self) -> None:
        report = self.bank.sweep(SWEEP)
        after = self.seen()
        # the numbers are the pure sweep's; here: only w and s of what is alive may move
        for i in IDS:
            allowed = {"w", "s"} if not self.now[i]["d"] else set()
            assert {f for f in after[i] if after[i][f] != self.now[i][f]} <= allowed
        # but what a person decided binds it
        for i in self.trusted():
            assert after[i]["w"] >= self.now[i]["w"]
            assert after[i]["s"] <= self.now[i]["s"]
        for i, ceiling in self.decided("ceilings", 1.0).items():
            assert after[i]["w"] <= max(self.now[i]["w"], ceiling)
        assert report.trusted == len(self.trusted())
        assert not {suspect.id for suspect in report.suspects}.intersection(self.trusted())
        assert {suspect.id for suspect in report.spared_suspects} <= set(self.trusted())
        self.note(str(report.run_id), after)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.log), label="run")
        if run["status"] != "applied" or self.built_upon(run):
            with pytest.raises(JournalError):
                self.bank.undo(run["id"])
            return
        undone = self.bank.undo(run["id"])
        after = {i: dict(fields) for i, fields in self.now.items()}
        for (i, f), (old, _) in run["diff"].items():
            after[i][f] = old
        self.note(undone.run_id, after, target=run["id"])
        by_id = {entry["id"]: entry for entry in self.log}
        status, current = "undone", run
        while current is not None:
            current["status"] = status
            status = "applied" if status == "undone" else "undone"
            current = by_id.get(current["target"])

    def built_upon(self, run: dict[str, Any]) -> bool:
        """Tell whether an applied later run touched the same, other than by cancelling a later run."""
        position = self.log.index(run)
        later = {entry["id"]: entry for entry in self.log[position + 1 :]}
        return any(
            entry["status"] == "applied"
            and entry["diff"].keys() & run["diff"].keys()
            and later.get(entry["target"], {}).get("status") != "undone"
            for entry in later.values()
        )

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "bank"):
            return
        assert self.seen() == self.now
        assert self.bank.trusted() == self.trusted()
        assert self.bank.weights(IDS).tolist() == [0.0 if self.now[i]["d"] else self.now[i]["w"] for i in IDS]
        statuses = {run.run_id: run.status for run in self.bank.runs()}
        assert all(statuses[entry["id"]] == entry["status"] for entry in self.log)


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=12,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


def test_the_whole_history_can_be_undone_backwards(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=12)
    before = states(bank)
    for step in range(4):
        bank.sweep(SWEEP)
        bank.feedback([f"m{step}", "m9"], [0.4, 0.6], step / 4)
        bank.delete([f"m{step}"])
        bank.restore([f"m{step}"])
    for run in bank.runs()[:-1]:
        bank.undo(run.run_id)
    assert states(bank) == before


@pytest.mark.parametrize("wrong", [{"eta": 1.0}, "hardened", 5])
def test_a_config_that_is_none_is_refused(bank: MemoryBank, rng: np.random.Generator, wrong: Any) -> None:
    fill(bank, rng, rows=6)
    with pytest.raises(ConfigError, match="takes a ForgettingConfig, not"):
        bank.sweep(wrong)
    assert bank.runs()[0].kind == "add"


def test_reports_show_themselves_in_one_short_line(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng)
    report = bank.sweep(ForgettingConfig())
    assert len(report.suspects) > 3
    explained = bank.explain("m0", ForgettingConfig())
    for told in (report, bank.status(), explained, bank.runs(1)[0]):
        assert len(repr(told)) < 600, type(told)
        assert "array(" not in repr(told)
    assert repr(report).startswith(f"SweepReport(run_id={report.run_id!r}, dry_run=False, memories=60, ")
    assert f"lowered={report.lowered}" in repr(report)
