"""What the terms do differently so that a large bank does not take its square in time: against plain ways."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core.dynamics.coupling import (
    Candidate,
    CouplingResult,
    Group,
    Proposal,
    SharedNgrams,
    evidence,
    number_tokens,
    spread,
    tokenize,
)
from shared_core.dynamics.coupling import tokens as tokens_module
from shared_core.dynamics.coupling.ngrams import _grouped
from shared_core.dynamics.terms import nearest as nearest_module
from shared_core.dynamics.terms.nearest import nearest_rows


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


# ---- tokens


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text(max_size=40) | st.text(alphabet="aB1_-. \t\u2009\u0130\u00df", max_size=40), max_size=12
    ),
    st.integers(1, 9),
    st.integers(1, 4),
)
def test_numbered_tokens_are_those_of_each_text(texts: list[str], limit: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_module, "_CHUNK", chunk)
        patch.setattr(tokens_module, "_SHORT", 30)
        found = number_tokens(texts, limit)
        assert list(found) == [tokenize(text, limit) for text in texts]
    assert len(set(found.vocabulary)) == len(found.vocabulary)


def test_tokens_are_a_sequence() -> None:
    found = number_tokens(["a b", "", "b c c"], 9)
    assert (found[-1], found[:2], len(found)) == (["b", "c", "c"], [["a", "b"], []], 3)
    assert found.positions(np.array([2, 0])).tolist() == [2, 3, 4, 0, 1]
    with pytest.raises(IndexError):
        found[3]


# ---- n-grams


@pytest.mark.parametrize("count", [0, 1, 7, 500])
def test_codes_that_differ_in_the_bits_of_the_place_are_told_apart(count: int) -> None:
    rng = np.random.default_rng(count)
    codes = rng.integers(0, 4, count).astype(np.uint64) | (
        rng.integers(0, 3, count).astype(np.uint64) << np.uint64(60)
    )
    order, new = _grouped(codes)
    assert order.tolist() == np.argsort(codes, kind="stable").tolist()
    assert np.flatnonzero(new).tolist() == np.unique(codes[order], return_index=True)[1].tolist()


def test_the_richest_sets_come_first_and_small_ones_can_be_left_out() -> None:
    grams = SharedNgrams(["a b c x", "a b c y", "a b c z", "x", "x", "y z", "y z", "y z"])
    every, rich = grams.member_sets(3, 9), grams.member_sets(3, 9, 6)
    assert [len(found) for found in every] == sorted((len(found) for found in every), reverse=True)
    assert [len(found) for found in rich] == [6]
    assert grams.documents(int(rich[0][0])).tolist() == [0, 1, 2]


# ---- evidence


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_the_nearest_outside_a_group_is_the_same_in_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    unit = unit_rows(rng.standard_normal((50, 6)))
    vectors = unit_rows(rng.standard_normal((9, 6)))
    sizes, groups = np.array([2, 4, 3]), [np.array([0, 3, 49]), np.arange(40), np.array([5])]
    monkeypatch.setattr(evidence, "_BLOCK", block)
    found = evidence._nearest_outside(vectors, sizes, groups, unit)
    cosines = vectors @ unit.T
    for row, group in enumerate(np.repeat([0, 1, 2], sizes)):
        cosines[row, groups[group]] = -9
    np.testing.assert_allclose(found, cosines.max(axis=1), atol=1e-12)


def test_the_typical_cosine_of_a_large_bank_is_that_of_a_sample(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    unit = unit_rows(rng.standard_normal((4000, 8)) + 0.5)
    exact = spread(unit, 200, np.random.default_rng(0))
    monkeypatch.setattr(evidence, "TYPICAL", 1000)
    assert spread(unit, 200, np.random.default_rng(0)) == pytest.approx(exact, abs=0.02)


def group(members: list[int], score: float, *, flagged: bool = True) -> Group:
    return Group("k", "v", np.array(members), 1.0, 1.0, 1.0, 0.0, score, flagged)


def test_a_memory_s_group_is_the_strongest_that_flags_it() -> None:
    groups = (group([0, 1], 4.0), group([1, 2], 6.0), group([2], 6.0), group([3], 9.0, flagged=False))
    found = CouplingResult(np.zeros(5), np.array([1, 1, 1, 0, 0], bool), groups, 1)
    assert [found.group_of(row) for row in range(5)] == [groups[0], groups[1], groups[1], None, None]
    assert [found.strongest_group(row) for row in (1, 3, 4)] == [groups[1], groups[3], None]


def test_groups_are_measured_together() -> None:
    """Each gets its own vectors."""
    unit = np.eye(4)
    table = {"a": unit[0], "b": unit[1], "a x": unit[0], "b x": unit[1]}
    keys = SharedNgrams(["a x", "b x", "c", "d"])
    two = Proposal(
        Candidate(np.arange(2), np.zeros(1, int), np.zeros(0, int)), np.arange(2), ["a", "b"], "x", "", 1, 0
    )
    first, second = evidence.measure(
        [two, two], keys, unit, lambda texts: np.array([table[t] for t in texts]), 1.0
    )
    assert first == second
    assert first.gain == 0.0


# ---- neighbourhoods


@pytest.mark.parametrize("kind", ["scattered", "alike", "half alike", "outliers", "few directions"])
def test_every_bank_has_neighbours_by_cells(kind: str, rng: np.random.Generator) -> None:
    unit = rng.standard_normal((3000, 12)).astype(np.float32)
    if kind == "alike":
        unit[:] = unit[0]
    if kind == "half alike":
        unit[::2] = unit[0]
    if kind == "outliers":
        unit[:2900] = unit[0] + 0.01 * unit[:2900]
    if kind == "few directions":
        unit = unit[rng.integers(5, size=3000)]
    unit = unit_rows(unit)
    found = nearest_rows(unit, 20, exact=100)
    assert found.shape == (3000, 20)
    assert found.min() >= 0
    assert (found != np.arange(3000)[:, None]).all()
    assert (np.diff(np.sort(found, axis=1), axis=1) > 0).all()
    cosines = np.take_along_axis(unit @ unit.T, found, axis=1)
    assert (np.diff(cosines, axis=1) < 1e-5).all()
    np.testing.assert_array_equal(found, nearest_rows(unit, 20, exact=100))


@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_no_cell_grows_with_the_bank(alike: float, rng: np.random.Generator) -> None:
    unit = rng.standard_normal((6000, 8))
    unit[: int(alike * 6000)] = unit[-1]
    parts = nearest_module._split(unit_rows(unit), 64, np.random.default_rng(0))
    assert np.sort(np.concatenate(parts)).tolist() == list(range(6000))
    sizes = [len(part) for part in parts]
    assert min(sizes) >= 16
    assert max(sizes) <= 128
