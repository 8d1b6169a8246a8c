"""The open set of terms: registering one's own, what is refused, and how scores become one verdict."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shared_core.config import PAPER_TERMS, ForgettingConfig
from shared_core.dynamics import SweepState, forgetting_sweep, update_suspicion
from shared_core.dynamics.terms import (
    BankView,
    TermEvidence,
    TermResult,
    activation_term,
    find_term,
    judge,
    registry,
    standardise,
    term_names,
)
from shared_core.errors import ConfigError
from tests.dynamics.test_coupling import TRIGGER, embed, office, with_rule


@pytest.fixture(autouse=True)
def own_terms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(registry, "_TERMS", dict(registry._TERMS))
    return


def view_of(keys: list[str], values: list[str] | None = None, **config: object) -> BankView:
    chosen = ForgettingConfig.preset("hardened", **config)  # type: ignore[arg-type]
    return BankView(keys, values, embed(keys), embed, config=chosen)


def long_key(view: BankView) -> TermResult:
    """Length of the key."""
    return TermResult(score=np.array([float(len(key)) for key in view.keys]))


def with_marker(view: BankView) -> TermResult:
    """Keys with a marker."""
    marked = np.array(["MARK" in key for key in view.keys])
    return TermResult(
        score=2.0 * marked,
        flagged=marked,
        level=2.0,
        evidence=lambda row: TermEvidence("holds a marker") if marked[row] else None,
    )


def test_the_published_terms_are_there_and_sum_to_the_sweep_s_activation() -> None:
    assert set(PAPER_TERMS) <= set(term_names())
    keys, _ = office(60)
    unit = embed(keys)
    for options in ({}, {"probe": "full"}, {"sigma": 0.2}):
        config = ForgettingConfig.preset("paper", seed=5, **options)  # type: ignore[arg-type]
        norms = np.linspace(1.0, 3.0, 60)
        raw = unit * norms[:, None]
        found = judge(BankView(keys, None, unit, config=config, norms=norms))
        state = SweepState(np.ones(60), np.zeros(60), np.ones(60))
        rng = np.random.Generator(np.random.SFC64(5))
        swept = forgetting_sweep(raw, state, config, rng)
        together = -sum(one.result.score for one in found.terms)
        assert np.allclose(together, swept.activation, atol=1e-9)
        assert np.array_equal(found.flagged, found.score > 1)
        mean, std = together.mean(), together.std()
        assert np.array_equal(found.flagged, together < mean - config.eta * std)


def test_one_s_own_ranking_term_orders_the_rest_and_flags_nobody() -> None:
    activation_term("long_key")(long_key)
    keys, values, poison = with_rule(150, 4)
    alone = judge(view_of(keys, values))
    both = judge(view_of(keys, values, terms=("coupling", "long_key")))
    assert np.array_equal(both.flagged, poison)
    assert np.array_equal(alone.flagged, poison)
    assert both.score[poison].min() >= 1 > both.score[~poison].max() > 0
    assert both.values(0) == {"coupling": 0.0, "long_key": float(len(keys[0]))}
    silent = np.flatnonzero(~poison & (alone.terms[0].result.score == 0))
    longest = silent[np.argmax([len(keys[row]) for row in silent])]
    assert both.score[longest] == both.score[silent].max()
    clean = judge(view_of(*office(150), terms=("coupling", "long_key")))
    assert not clean.flagged.any()


def test_one_s_own_deciding_term_flags_with_its_reason() -> None:
    activation_term("marker", decides=True)(with_marker)
    keys, values, poison = with_rule(150, 4)
    keys[3] += " MARK"
    found = judge(view_of(keys, values, terms=("coupling", "marker")))
    assert np.flatnonzero(found.flagged).tolist() == [3, *np.flatnonzero(poison).tolist()]
    assert found.score[3] == 1.0
    assert found.evidence(3) == TermEvidence("holds a marker")
    group = found.evidence(150)
    assert group is not None
    assert TRIGGER in group.span
    assert "offshore account" in group.payload
    assert group.neighbours == (151, 152, 153)
    assert found.evidence(0) is None
    assert [one.rank(3) for one in found.terms][1] == 1
    assert found.terms[1].rank(0) == len(keys)

    # whoever is flagged is forgotten, however strongly others are
    state = SweepState(np.ones(154), np.zeros(154), np.ones(154))
    config = ForgettingConfig.preset("hardened", terms=("coupling", "marker"))
    swept = forgetting_sweep(embed(keys), state, config, np.random.default_rng(0), coupling=found)
    assert swept.weights[found.flagged].max() < 0.01
    assert swept.weights[~found.flagged].min() == 1.0
    assert {step.threshold for step in swept.trace} == {None}


def test_the_step_of_suspicion_is_the_score_in_levels() -> None:
    config = ForgettingConfig(suspicion_gain=0.25)
    flagged = np.array([True, True, False])
    new, abnormal = update_suspicion(np.zeros(3), np.array([-2.0, -1.0, -0.9]), config, flagged=flagged)
    assert new.tolist() == [0.5, 0.25, 0.0]
    assert np.array_equal(abnormal, flagged)
    everybody, _ = update_suspicion(np.zeros(2), np.full(2, -1.0), config, flagged=np.ones(2, bool))
    assert everybody.tolist() == [0.25, 0.25]


def test_standardising_by_hand() -> None:
    assert standardise(np.array([1.0, 2.0, 3.0])).tolist() == pytest.approx([-1 / 1.4826, 0, 1 / 1.4826])
    sparse = standardise(np.array([0.0] * 9 + [10.0]))  # MAD 0, mean absolute deviation 1
    assert sparse.tolist() == pytest.approx([0.0] * 9 + [10 / 1.2533])
    assert standardise(np.full(5, 0.1) + 1e-17).tolist() == [0.0] * 5


def test_a_term_that_lacks_what_it_needs_is_skipped_and_an_embedder_is_demanded() -> None:
    activation_term("of_values", needs={"values"})(long_key)
    keys, _ = office(40)
    found = judge(view_of(keys, terms=("coupling", "of_values")))
    assert [one.term.name for one in found.terms] == ["coupling"]
    assert found.skipped == (("of_values", "values"),)
    blind = BankView(keys, None, embed(keys), config=ForgettingConfig.preset("hardened"))
    with pytest.raises(ConfigError, match="'coupling' embeds texts and the bank has no embedder"):
        judge(blind)


def test_an_empty_bank_has_an_empty_verdict() -> None:
    found = judge(BankView([], None, np.empty((0, 4)), embed, config=ForgettingConfig.preset("hardened")))
    assert len(found.score) == len(found.flagged) == 0
    assert found.warnings == []


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned NoneType"),
        (TermResult(score=np.zeros(3)), "shape \\(3,\\) for 40"),
        (TermResult(score=np.full(40, np.nan)), "memory 0 the score nan"),
        (TermResult(score="much"), "no array of numbers"),  # type: ignore[arg-type]
        (TermResult(np.zeros(40), np.zeros(40), 1.0), "flags of shape \\(40,\\) and type float64"),
        (TermResult(np.zeros(40), np.zeros(40, bool), 0.0), "level=0.0"),
        (TermResult(np.zeros(40), np.zeros(40, bool)), "level=None"),
    ],
)
def test_a_malformed_result_is_refused_by_name(returned: TermResult, message: str) -> None:
    activation_term("odd", decides=True)(lambda _view: returned)
    with pytest.raises(ConfigError, match=f"'odd'.*{message}"):
        judge(view_of(office(40)[0], terms=("odd",)))


def test_a_ranking_term_may_not_flag_and_a_failing_one_is_named() -> None:
    activation_term("ranks")(with_marker)
    with pytest.raises(ConfigError, match="'ranks' flags or has a level, and was registered without"):
        judge(view_of(office(40)[0], terms=("ranks",)))

    @activation_term("fails")
    def fails(_view: BankView) -> TermResult:
        raise ZeroDivisionError("nothing to divide")

    with pytest.raises(ConfigError, match="term 'fails' failed: ZeroDivisionError: nothing to divide"):
        judge(view_of(office(40)[0], terms=("fails",)))


def test_names_and_needs_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"there is no term 'nope'; there are .*coupling"):
        find_term("nope")
    with pytest.raises(ConfigError, match="there is a term 'coupling' already"):
        activation_term("coupling")(long_key)
    activation_term("mine")(long_key)
    activation_term("mine")(long_key)  # a notebook's cell run twice
    for name in ("Mine", "my term", "", "ä"):
        with pytest.raises(ConfigError, match="lower-case letters"):
            activation_term(name)
    for needs in ({"money"}, "values"):
        with pytest.raises(ConfigError, match="give a set of values, embedder, origins"):
            activation_term("needy", needs=needs)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="alone the threshold sums"):
        ForgettingConfig(terms=("coupling",))
    with pytest.raises(ConfigError, match="2 keys, 1 values"):
        BankView(["a", "b"], ["x"], np.eye(2))


def test_every_term_says_what_it_looks_at() -> None:
    for name in term_names():
        assert find_term(name).summary.endswith((".", ":")), name
