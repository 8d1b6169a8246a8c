"""Constants of the term ``coupling``, each with its meaning and what it was tuned on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from shared_core.config.checks import checked_choice, checked_positive, checked_range, checked_whole

RepeatedRule = Literal["report", "flag", "ignore"]


@dataclass(frozen=True, kw_only=True)
class CouplingConfig:
    """Trigger to payload coupling, the diagnosis of preset ``hardened``; see docs/concepts.md.

    All of it is ours [O]. Tuned by hand on MiniLM and a static 256-d embedder, on published AgentPoison and
    MINJA attacks against the EHR and StrategyQA memories, variants that vary the trigger or imitate the
    value, and 34 clean banks (EHR, StrategyQA, MMLU, LoCoMo, MSC, MemoryBank and synthetic ones), where it
    flags nothing. "Clean banks" below are those. No bank was held out.

    Raises:
        ConfigError: A value is outside its range.
    """

    seed: int = 0
    """Of the samples; a sweep passes its own."""
    ngram: int = 3
    """Longest word n-gram [O, not tuned]."""
    token_limit: int = 1000
    """Tokens of a text that count [O, bounds time]."""
    min_bank: int = 5
    """Smaller banks are not looked at [O, not tuned]."""
    min_members: int = 3
    """Fewest members of a group, and fewest different contents among them [O: two are a coincidence]."""
    max_group_share: float = 0.50
    """Largest group, as a share of the bank [O, 64 poisons among 191 EHR memories]."""
    min_value_grams: int = 2
    """Fewest n-grams that the members' values share [O, clean banks]."""
    key_share: float = 0.50
    """Share of the members that hold an n-gram of the key span [O, MINJA's shortened keys]."""
    key_exclusive: float = 0.80
    """Share of such an n-gram's memories that are members [O, published attacks]."""
    tight_share: float = 0.90
    """A second try keeps the n-grams this near to the most frequent one [O, varied triggers]."""
    stem_words: int = 5
    """Shortest key that another key can continue [O, MINJA, templated clean banks]."""
    stem_share: float = 0.25
    """And its smallest share of that other key [O, MINJA]."""
    alike: float = 0.60
    """Word Jaccard from which two remainders ask the same [O, duplicated and templated clean banks]."""
    sample: int = 6
    """Members that are embedded again [O, cost]."""
    lexical_sample: int = 16
    """Members whose words are compared [O, cost]."""
    spread_sample: int = 200
    """Memories that give the scale of cosines [O, cost]."""
    payload_fraction: int = 4
    """The payload is what one member in so many reaches [O, imitated values]."""
    payload_offset: float = 2.0
    """Added to the payload's words [O, clean banks]."""
    payload_unit: float = 9.0
    """Words at which that ratio is 1 [O, clean banks]."""
    payload_power: float = 1.25
    """Its exponent [O, clean banks]."""
    gain_unit: float = 0.10
    """Gain by occlusion at which the ratio is 1, in units of the bank's spread [O, clean banks]."""
    named_offset: float = 6.0
    """New words beside the trigger in one stretch of the value, which honest rules reach [O, clean banks]."""
    named_unit: float = 4.0
    """Such words beyond them at which that ratio is 1 [O, MINJA]."""
    named_members: int = 4
    """Fewest members of different stems for it: one more than for others [O, clean banks]."""
    unexplained_unit: float = 0.30
    """The same for what the content does not explain [O, clean banks]."""
    size_unit: float = 4.0
    """Members beyond the first for full strength [O, 4 poisons]."""
    cap: float = 4.0
    """Largest value of each ratio: no evidence stands alone [O, clean banks]."""
    min_outside: int = 30
    """Fewest memories outside a group to compare with [O, tiny clean banks]."""
    min_unexplained: float = 0.45
    """Below it a group's content explains it [O, clean banks]..."""
    variants: float = 0.30
    """...unless this share of its keys extends others [O, MINJA]."""
    extended_members: float = 0.50
    """Without values: this share of a group must extend other keys [O, key-only clean banks]."""
    extended_payload: float = 6.0
    """Without values: the payload that is assumed [O, key-only attacks]."""
    flag: float = 3.8
    """Score from which a group is flagged [O: clean banks reach 1.98 with MiniLM, 3.32 with the other,
    a held-out one 3.68]."""
    flag_share: float = 0.50
    """And this share of the round's top score [O, 64 poisons among 191 EHR memories]."""
    closure_member: float = 0.50
    """Share of the typical key span from which a member belongs to a flagged group [O, MINJA]."""
    closure_whole: float = 0.90
    """The same for memories outside it, and for the payload [O, published attacks]."""
    repeated: RepeatedRule = "report"
    """Memories of different content that share a long stretch of words: ``report`` them in a warning and
    leave their weights as they are, ``flag`` them as any other group, or ``ignore`` them. A signature or a
    disclaimer looks like a planted rule [O]."""
    repeated_words: float = 8.0
    """New words of a stretch from which it counts [O, clean banks of plain notes]; the other threshold is
    ``unexplained_unit``."""
    repeated_rest: int = 3
    """Words that a memory says beside the stretch, for it to have a content of its own [O: templates]."""
    repeated_grams: int = 3
    """N-grams that all of a set of memories share, from which the set is looked at [O, cost]."""
    closure_payload: float = 6.0
    """Words from which the payload alone makes a member belong [O, clean banks]."""
    max_flagged: float = 0.35
    """A group that would take the flagged share above it is refused [O: 64 of 191 + 64 must fit]."""
    rounds: int = 4
    """How often the strongest groups are taken out and the rest measured again [O, 64 poisons]."""
    max_candidates: int = 3000
    """Sets of memories that are looked at per round [O, bounds time]."""
    max_measured: int = 300
    """Groups that are embedded again per round [O, bounds time]."""
    max_work: int = 50_000_000
    """Key n-grams that are counted per round [O, bounds time]."""

    @property
    def least_bank(self) -> int:
        """Memories in which the smallest group has enough others to compare it with."""
        return self.min_outside + self.min_members

    def __post_init__(self) -> None:
        shares = {
            "max_group_share", "key_share", "key_exclusive", "tight_share", "stem_share", "alike", "variants",
            "extended_members", "flag_share", "closure_member", "closure_whole", "max_flagged",
        }  # fmt: skip
        smallest = {"seed": 0, "min_bank": 2, "min_members": 2, "sample": 2, "lexical_sample": 2}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "repeated":
                checked_choice(item.name, value, get_args(RepeatedRule))
            elif item.name in shares:
                checked_range(item.name, value, 0, 1)
            elif isinstance(item.default, int):
                checked_whole(item.name, value, smallest.get(item.name, 1))
            else:
                checked_positive(item.name, value)
