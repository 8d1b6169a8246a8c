"""The terms that compare one source with the others, and the neighbourhoods they look at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core.config import ForgettingConfig
from shared_core.dynamics.terms import BankView, find_term, judge
from shared_core.dynamics.terms import nearest as nearest_module
from shared_core.dynamics.terms.nearest import nearest_rows
from shared_core.dynamics.terms.sources import OPENING_QUOTE, dominance, hearsay
from shared_core.errors import ConfigError


def subjects(per_subject: int, count: int, seed: int = 0) -> np.ndarray:
    """Unit vectors in tight clusters, one after the other."""
    rng = np.random.default_rng(seed)
    centres = np.repeat(np.eye(count, 16), per_subject, axis=0)
    vectors = centres + 0.05 * rng.standard_normal(centres.shape)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def view(keys: list[str], origins: list[str] | None, unit: np.ndarray) -> BankView:
    return BankView(keys=keys, values=None, unit=unit, origins=origins)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 30), st.integers(0, 8), st.integers(1, 12))
def test_the_nearest_are_those_of_a_full_sort(seed: int, rows: int, count: int, block: int) -> None:
    unit = np.random.default_rng(seed).standard_normal((rows, 5))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    slow = np.argsort(-cosines, axis=1)[:, : max(0, min(count, rows - 1))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_module, "BLOCK", block)
        np.testing.assert_array_equal(nearest_rows(unit, count), slow)


@pytest.mark.parametrize("seed", [0, 1])
def test_in_a_large_bank_most_of_the_nearest_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topics = rng.standard_normal((60, 32))
    unit = topics[rng.integers(60, size=3000)] + 0.7 * rng.standard_normal((3000, 32))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    exact, found = nearest_rows(unit, 10), nearest_rows(unit, 10, exact=100)
    assert found.shape == exact.shape
    assert all(row not in near and len(set(near)) == 10 for row, near in enumerate(found.tolist()))
    recall = np.mean([len({*one} & {*other}) / 10 for one, other in zip(exact, found, strict=True)])
    assert recall > 0.8
    few_cells = nearest_rows(unit[:200], 150, exact=100)
    assert few_cells.shape == (200, 150)


def test_dominance_is_the_share_of_ones_own_source() -> None:
    unit = subjects(21, 2)
    origins = ["ann", "bob", "eve"] * 7 + ["eve"] * 11 + ["bob"] * 10
    result = dominance(view(["text"] * 42, origins, unit))
    # of the 20 others on the first subject 6 are by the same, on the second 10 or 9
    np.testing.assert_allclose(result.score, [6 / 20] * 21 + [10 / 20] * 11 + [9 / 20] * 10)
    assert result.flagged is None
    assert result.level is None
    evidence = result.evidence(21)
    assert evidence is not None
    assert evidence.text == "10 of the 20 nearest memories are by the same source"
    assert set(evidence.neighbours) == set(range(22, 32))


def test_memories_of_unknown_origin_are_nobodys_friends() -> None:
    origins = ["ann"] * 10 + [""] * 11
    result = dominance(view(["text"] * 21, origins, subjects(21, 1)))
    np.testing.assert_allclose(result.score, 9 / 20)
    assert result.evidence(15) is None
    score = hearsay(view(['he said "so"'] * 10 + ["so"] * 11, origins, subjects(21, 1))).score
    assert (score[:10] > 1).all()
    assert (score[10:] == 0).all()


def test_hearsay_by_hand() -> None:
    origins = ["eve"] * 7 + ["ann"] * 14
    keys = (
        ['A blog says "it is flat".'] * 6
        + ["It's flat."]
        + ["It's round, isn't it?"] * 13
        + ["«It is round»"]
    )
    result = hearsay(view(keys, origins, subjects(21, 1)))
    rate = 7 / 21
    error = np.sqrt(rate * (1 - rate) * (1 / 7 + 1 / 14) + 0.05)
    np.testing.assert_allclose(
        result.score, [(6 / 7 - 1 / 14) / error] * 7 + [-(6 / 7 - 1 / 14) / error] * 14
    )
    evidence = result.evidence(0)
    assert evidence is not None
    assert evidence.text == "its source quotes in 6 of 7 memories about this subject, others in 1 of 14"
    assert result.evidence(20) is None


def test_a_subject_of_one_source_only_says_nothing() -> None:
    keys = ['"a"'] * 10 + ["a"] * 11
    assert (hearsay(view(keys, ["ann"] * 21, subjects(21, 1))).score == 0).all()


@pytest.mark.parametrize(
    "text",
    ['He said "no".', "sagte „nein“", "dit « non »", "‘no’", "'no', he said", "彼は「いいえ」と言った"],
)
def test_quotation_marks_of_any_language(text: str) -> None:
    assert OPENING_QUOTE.search(text)


@pytest.mark.parametrize("text", ["It's the dogs' bowl", "6' by 4\" of wood", "l’eau d’un lac", ""])
def test_apostrophes_and_inches_are_none(text: str) -> None:
    assert not OPENING_QUOTE.search(text)


def test_tiny_banks() -> None:
    for rows in (0, 1, 2):
        unit = np.eye(rows, 3) if rows else np.empty((0, 3))
        bank = view(["a"] * rows, ["ann"] * rows, unit)
        assert dominance(bank).score.tolist() == [float(rows > 1)] * rows
        assert hearsay(bank).score.tolist() == [0.0] * rows


def test_they_need_origins_and_flag_nobody() -> None:
    unit = subjects(21, 2)
    with pytest.raises(ConfigError, match="origin_key"):
        dominance(view(["a"] * 42, None, unit))
    assert not find_term("dominance").decides
    assert not find_term("hearsay").decides
    config = ForgettingConfig.preset("hardened", terms=("dominance", "hearsay"))
    origins = ["ann", "bob", "cyd"] * 7 + ["eve"] * 14 + ["bob"] * 7
    keys = ["plain"] * 21 + ['they say "so"'] * 14 + ["plain"] * 7
    verdict = judge(BankView(keys=keys, values=None, unit=unit, origins=origins, config=config))
    assert not verdict.flagged.any()
    assert set(np.argsort(-verdict.score)[:14]) == set(range(21, 35)), "the source that dominates and quotes"
    without = judge(BankView(keys=keys, values=None, unit=unit, config=config))
    assert dict(without.skipped) == {"dominance": "origins", "hearsay": "origins"}


def test_planted_claims_rank_above_others() -> None:
    # nine subjects of 20 honest findings by four agents; on one, an agent adds six claims of hearsay
    rng = np.random.default_rng(7)
    unit = subjects(20, 9, seed=1)
    origins = [f"agent {rng.integers(4)} of subject {row // 20}" for row in range(180)]
    keys = [f"finding {row}" for row in range(180)]
    planted = subjects(6, 1, seed=2)
    bank = view(
        [*keys, *[f'someone says "claim {n}"' for n in range(6)]],
        [*origins, *[origins[0]] * 6],
        np.vstack([unit, planted]),
    )
    for term in (dominance, hearsay):
        score = term(bank).score
        assert score[180:].min() > np.quantile(score[:180], 0.9)
