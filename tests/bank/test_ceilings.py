"""A weight that was set by hand is a ceiling for sweeps and dreams; repairs heed it, and trust."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank
from shared_core.bank.repairing import Repair, apply_repair
from shared_core.errors import InvalidMemoryError
from tests.bank.test_following import lower
from tests.bank.test_trust import GENTLE, PAPER, lowest, weight
from tests.conftest import OpenBank, fill


@pytest.mark.parametrize("config", [GENTLE, PAPER], ids=["gentle", "paper"])
def test_a_weight_set_by_hand_is_a_ceiling(
    open_bank: OpenBank, rng: np.random.Generator, state_url: str, config: ForgettingConfig
) -> None:
    bank = open_bank(state_url=state_url)
    fill(bank, rng, rows=40)
    doubted = lowest(bank)
    one, other = [memory_id for memory_id in ("m3", "m4", "m5") if memory_id != doubted][:2]
    wanted = {one: 0.2, other: 0.0, doubted: 0.6}
    run = bank.set_weights(wanted)
    assert bank.explain(one, config).ceiling == 0.2
    for _ in range(3):
        bank.sweep(config)
        assert all(weight(bank, memory_id) <= most for memory_id, most in wanted.items())
    if config is GENTLE:
        assert bank.weights(list(wanted)).tolist() == list(wanted.values())
        bank.undo(run.run_id)
        assert bank.weights(list(wanted)).tolist() == [1.0] * 3
    else:
        assert weight(bank, doubted) < 0.6
    # looked at, it counts in full again
    bank.restore([one])
    bank.sweep(config)
    assert weight(bank, one) == 1.0


def test_a_memory_below_its_ceiling_recovers_up_to_it(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=10)
    bank.set_weights({"m1": 0.5})
    lower(bank, {"m1": 0.01, "m2": 0.01}, suspicion=0.0)
    for _ in range(6):
        bank.sweep(GENTLE)
    assert weight(bank, "m1") == 0.5
    assert weight(bank, "m2") == pytest.approx(1.0)
    # a weight that something else raised above it is not lowered to it
    lower(bank, {"m1": 0.8}, suspicion=0.0)
    bank.sweep(GENTLE)
    assert weight(bank, "m1") == 0.8


def test_trusted_and_set_by_hand(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=40)
    doubted = lowest(bank)
    bank.restore([doubted])
    bank.set_weights({doubted: 0.3})
    for _ in range(3):
        report = bank.sweep(PAPER)
        assert weight(bank, doubted) == 0.3
    assert report.spared == 1


def test_a_repair_lowers_nothing_trusted_and_raises_nothing_above_a_ceiling(
    open_bank: OpenBank, rng: np.random.Generator, state_url: str
) -> None:
    bank = open_bank(state_url=state_url)
    fill(bank, rng, rows=6)
    bank.restore(["m0"])
    bank.set_weights({"m1": 0.3})
    repair = Repair(operation="prune", reason="-", weights={"m0": 0.2, "m1": 0.9, "m2": 0.2})
    with bank.state.lock("test") as lock:
        run = apply_repair(bank, repair, lock=lock)
        assert bank.weights(["m0", "m1", "m2"]).tolist() == [1.0, 0.3, 0.2]
        assert run.report["reweighted"] == ["m2"]
        with pytest.raises(InvalidMemoryError, match="decided otherwise"):
            apply_repair(bank, replace(repair, weights={"m0": 0.2}), lock=lock)
    bank.undo(run.run_id)
    assert bank.weights(["m2"]).tolist() == [1.0]
