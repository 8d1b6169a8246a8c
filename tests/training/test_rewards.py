"""Eq. 8, 9, 10 and 12: each term alone, and their sums."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from shared_core.agents.question_types import asked_type
from shared_core.errors import ConfigError
from shared_core.language import Source
from shared_core.training import rewards
from shared_core.training.rewards import AnalystWeights, ConsolidatorWeights, DreamerWeights, RewardConfig

LONG = Source(
    "Nora sold the violin on 3 May 2021. She paid 900 euros for a cello. The shop smelled of varnish.",
    date(2021, 5, 4),
    "Nora",
)


def test_probes_discriminate_when_the_weak_fail() -> None:
    assert rewards.discrimination([0.0, 1.0], [0.9, 0.1]) == pytest.approx(0.8)
    assert rewards.discrimination([1.0, 0.0], [0.9, 0.1]) == pytest.approx(-0.8)
    assert rewards.discrimination([1.0, 1.0], [0.9, 0.1]) == 0.0


def test_downstream_and_joint_are_the_mean_gain() -> None:
    assert rewards.downstream([0.0, 0.5], [1.0, 0.25]) == pytest.approx(0.375)
    assert rewards.joint([0.2], [0.1]) == pytest.approx(-0.1)
    assert rewards.joint([], []) == 0.0
    with pytest.raises(ConfigError, match="2 and 1"):
        rewards.joint([0.0, 0.0], [1.0])


def test_coverage_counts_known_query_types_once() -> None:
    assert rewards.query_coverage(["fact", "fact", "when", "nonsense"]) == pytest.approx(2 / 6)
    assert rewards.query_coverage(rewards.QUERY_TYPES) == 1.0


def test_a_repair_is_actionable_when_all_its_targets_exist() -> None:
    assert rewards.actionable([["a", "b"], ["a", "x"], []], ["a", "b"]) == pytest.approx(1 / 3)
    assert rewards.actionable([], ["a"]) == 0.0


def test_diversity_is_full_when_no_type_could_be_more() -> None:
    assert rewards.diversity(["merge", "prune"]) == 1.0
    assert rewards.diversity(["merge"] * 4) == pytest.approx(0.25)
    assert rewards.diversity(["merge"] * 2 + ["dance"]) == pytest.approx(1 / 3)
    assert rewards.diversity([]) == 0.0


def test_size_peaks_at_a_moderate_number() -> None:
    found = [rewards.size(count, moderate=6) for count in (0, 1, 3, 6, 12, 40)]
    assert found[0] == 0.0
    assert found[3] == 1.0
    assert found[0] < found[1] < found[2] < found[3] > found[4] > found[5] > 0


def test_structure_is_the_share_of_good_outputs() -> None:
    assert rewards.structure([True, False, True, True]) == 0.75
    assert rewards.structure([]) == 0.0


def test_answers_are_averaged() -> None:
    assert rewards.answered([0.5, 1.0]) == 0.75
    assert rewards.answered([]) == 0.0


def test_retained_is_the_share_of_content_words() -> None:
    assert rewards.retained(LONG.text, [LONG]) == 1.0
    assert 0 < rewards.retained("Nora sold the violin", [LONG]) < 0.6
    assert rewards.retained("", [LONG]) == 0.0


def test_temporal_cues_must_be_kept_to_the_letter() -> None:
    assert rewards.temporal("Nora sold the violin on 3 May 2021.", [LONG]) == 1.0
    assert rewards.temporal("Nora sold the violin.", [LONG]) == 0.0
    assert rewards.temporal("anything", [Source("no time at all")]) == 1.0


def test_bloat_is_not_concise() -> None:
    assert rewards.concise("Nora sold the violin.", [LONG]) == 1.0
    assert rewards.concise(LONG.text, [LONG]) == pytest.approx(0.5)
    assert rewards.concise(" ".join([LONG.text] * 2), [LONG]) == 0.0


def test_grounding_refuses_what_no_source_says() -> None:
    assert rewards.grounded("Nora paid 900 euros.", [LONG]) == 1.0
    assert rewards.grounded("Nora paid 800 euros.", [LONG]) == 0.0


def test_repeated_sentences_are_not_deduplicated() -> None:
    assert rewards.deduplicated("It rained. We sang.") == 1.0
    assert rewards.deduplicated("It rained. it  rained. We sang.") == pytest.approx(2 / 3)
    assert rewards.deduplicated("") == 0.0


def test_the_consolidators_terms_depend_on_the_operation() -> None:
    twice = "Nora paid 800 euros. Nora paid 800 euros."
    extract = rewards.consolidator_terms("extract", [0.4], twice, [LONG])
    merge = rewards.consolidator_terms("merge", [0.4], twice, [LONG])
    prune = rewards.consolidator_terms("prune", [0.4], "", [LONG])
    assert (extract["temporal"], extract["concise"]) == (0.0, rewards.concise(twice, [LONG]))
    assert (merge["temporal"], merge["concise"]) == (0.0, 0.5)
    assert prune == {"qa": 0.4, "coverage": 1.0, "temporal": 1.0, "concise": 1.0}


def test_rewards_are_weighted_sums() -> None:
    config = RewardConfig()
    dreamer = {"discrimination": 1.0, "downstream": 0.5, "coverage": 0.0}
    analyst = {"actionable": 0.0, "diversity": 1.0, "size": 0.0, "structure": 1.0}
    consolidator = {"qa": 1.0, "coverage": 0.0, "temporal": 0.0, "concise": 1.0}
    assert rewards.dreamer_reward(dreamer, config.dreamer) == pytest.approx(0.4 + 0.4 * 0.5)
    assert rewards.analyst_reward(analyst, config.analyst) == pytest.approx(0.15 + 0.2)
    assert rewards.consolidator_reward(consolidator, config.consolidator) == pytest.approx(0.5 + 0.15)
    only = DreamerWeights(discrimination=0.0, downstream=1.0, coverage=0.0)
    assert rewards.dreamer_reward(dreamer, only) == 0.5


def test_a_term_too_many_or_too_few_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be exactly"):
        rewards.dreamer_reward({"discrimination": 1.0})


@pytest.mark.parametrize("weights", [DreamerWeights(), AnalystWeights(), ConsolidatorWeights()])
def test_weights_must_sum_to_one(weights: DreamerWeights) -> None:
    first = next(iter(weights.__dataclass_fields__))
    for wrong in (-0.1, 0.99):
        with pytest.raises(ConfigError, match="sum to 1"):
            replace(weights, **{first: wrong})


def test_the_peak_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="moderate=0"):
        RewardConfig(moderate=0)


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Who sold the violin?", "who"),
        ("When did Nora go to the shop?", "when"),
        ("What day was the violin sold?", "when"),
        ("How many euros did the cello cost?", "number"),
        ("How old is the cello?", "number"),
        ("What is the name of the shop?", "name"),
        ("What is the cello called?", "name"),
        ("What did the shop smell of?", "fact"),
        ("Whoever knows this?", "fact"),
        ("", "fact"),
    ],
)
def test_a_question_is_of_a_kind(question: str, kind: str) -> None:
    assert asked_type(question) == kind
    assert asked_type(question, targets=2) == "bridge"


def test_the_first_question_word_decides() -> None:
    assert asked_type("Who knows when she left?") == "who"
    assert asked_type("When did the one who plays leave?") == "when"


def test_a_failed_probe_about_a_weak_memory_discriminates() -> None:
    def earned(f1: float, weakness: float) -> float:
        return rewards.rollout_discrimination(f1, weakness, mean=0.4, spread=0.2)

    assert earned(0.0, 0.6) == pytest.approx(1.0)
    assert earned(1.0, 0.6) == pytest.approx(0.0)
    assert earned(0.0, 0.2) == pytest.approx(0.0)
    assert earned(1.0, 0.3) == pytest.approx(0.75)
    assert earned(0.5, 0.6) == earned(0.0, 0.4) == pytest.approx(0.5)
    assert earned(0.0, 0.9) == pytest.approx(1.0)
    assert rewards.rollout_discrimination(0.0, 0.4, mean=0.4, spread=0.0) == 0.5


def test_shares_count_the_kinds_of_a_group() -> None:
    shares = rewards.rollout_shares(["who", "who", "when", "fact"])
    assert shares == [0.5, 0.5, 1.0, 1.0]
    assert sum(shares) == 3
    assert rewards.rollout_shares([]) == []


def test_a_diagnosis_is_half_right_when_its_repair_does_not_help() -> None:
    assert rewards.rollout_actionable(True, helps=True) == 1.0
    assert rewards.rollout_actionable(True, helps=False) == 0.5
    assert rewards.rollout_actionable(False, helps=False) == 0.0


def test_a_diagnosis_names_as_many_memories_as_it_needs() -> None:
    assert rewards.rollout_size(2, 2) == 1.0
    assert rewards.rollout_size(1, 2) < 1.0 > rewards.rollout_size(4, 2) > 0.0
    assert rewards.rollout_size(1, 0) == 1.0
