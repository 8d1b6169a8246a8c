"""Every option, with its default, its meaning and its source ([S]: stated by a paper; [O]: ours).

Frozen dataclasses validated on construction; they know nothing of how they are used.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from shared_core.errors import ConfigError

NoiseFamily = Literal["isotropic", "uniform", "sparse", "anisotropic"]
ProbeMethod = Literal["auto", "scalar", "full"]
Device = Literal["cpu", "cuda", "auto"]
RetrievalForm = Literal["logistic", "softmax"]
DecayLaw = Literal["additive", "multiplicative"]
Diagnosis = Literal["threshold", "coupling"]
Preset = Literal["paper", "hardened"]
AgentKind = Literal["structured", "open_ended"]
SearchType = Literal["similarity", "similarity_score_threshold", "mmr", "hybrid", "associative"]
SearchBackend = Literal["auto", "index", "scan"]

PAPER_TERMS = ("geometric", "retrieval", "coherence")
"""Terms of Eq. 5 [S]."""
HARDENED_TERMS = ("coupling", "dominance", "hearsay")
"""Terms of preset ``hardened`` [O]; the last two only rank, in banks that know who wrote a memory."""


def checked_range(name: str, value: object, low: float, high: float = 1e300) -> None:
    """Refuse what is no finite number from ``low`` to ``high``.

    Raises:
        ConfigError: It is none.
    """
    if not (isinstance(value, (int, float)) and low <= value <= high):
        raise ConfigError(f"{name}={value!r} is outside [{low:g}, {high:g}]")


def checked_whole(name: str, value: object, least: int = 1) -> None:
    """Refuse what is no whole number of at least ``least``.

    Raises:
        ConfigError: It is none; booleans are none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name}={value!r} must be a whole number, {least} or more")


def checked_positive(name: str, value: float) -> None:
    """Refuse what is no finite number above 0.

    Raises:
        ConfigError: It is none.
    """
    if not (isinstance(value, (int, float)) and 0 < value <= sys.float_info.max):
        raise ConfigError(f"{name}={value!r} must be a finite number above 0")


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(map(str, allowed))}")


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

    def __post_init__(self) -> None:
        shares = {
            "max_group_share", "key_share", "key_exclusive", "tight_share", "stem_share", "alike", "variants",
            "extended_members", "flag_share", "closure_member", "closure_whole", "max_flagged",
        }  # fmt: skip
        smallest = {"seed": 0, "min_bank": 2, "min_members": 2, "sample": 2, "lexical_sample": 2}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in shares:
                checked_range(item.name, value, 0, 1)
            elif isinstance(item.default, int):
                checked_whole(item.name, value, smallest.get(item.name, 1))
            else:
                checked_positive(item.name, value)


@dataclass(frozen=True, kw_only=True)
class ForgettingConfig:
    """One DREAM sweep (source sections 4.1 to 4.3, appendix B); defaults are preset ``paper``, structured.

    Raises:
        ConfigError: A value is outside its range, or not exactly one of sigma and noise_ratio is given.
    """

    noise_ratio: float | None = 0.12
    """RMS noise norm over embedding norm [O]: the source's sigma 0.05 and 0.30 at norm 11.9, d 768."""
    sigma: float | None = None
    """Noise standard deviation per coordinate, in stored units [S]; instead of noise_ratio."""
    noise: NoiseFamily = "isotropic"
    """Probe family, all of equal energy [S, appendix D]."""
    terms: tuple[str, ...] = PAPER_TERMS
    """Activation terms. With the diagnosis ``threshold`` those of Eq. 5, which are summed [S; Table 4
    switches them off one by one]; with ``coupling`` any that are registered, also one's own."""
    tau: float = 0.05
    """Temperature of the retrieval term [S]."""
    kappa: float = 2.0
    """Sharpness of the coherence energy [S]."""
    retrieval_form: RetrievalForm = "logistic"
    """Chance to win against a typical memory [O], or the softmax over the bank, which is O(1/N)."""
    eta: float = 0.80
    """Threshold mean(R) - eta * std(R) [S]."""
    gamma: float = 0.50
    """Decay of suspicion where a memory responds normally [S]."""
    suspicion_gain: float = 0.25
    """Scale of the standardised deviation that is added to suspicion [O]."""
    lambda0: float = 0.40
    """Base decay rate [S]."""
    k: float = 10.0
    """How strongly suspicion amplifies decay [S]."""
    decay_law: DecayLaw = "additive"
    """lambda0 * max(0, 1 + k s - c), or lambda0 * (1 + k s)(1 - c), where a high c shields [O]."""
    alpha_rec: float = 0.60
    """Reconsolidation rate of stable memories [S]."""
    theta_c: float = 0.50
    """Consolidation above which a stable memory reconsolidates [S]."""
    iterations: int = 10
    """Probe, diagnose, update: how often per sweep [S]."""
    diagnosis: Diagnosis = "threshold"
    """``threshold`` over the activations [S], or ``coupling``: each term flags by a level of its own [O]."""
    coupling: CouplingConfig = field(default_factory=CouplingConfig)
    """Constants of the term ``coupling``."""
    probe: ProbeMethod = "auto"
    """``full`` draws d-dimensional noise; ``scalar`` draws its exact projections (isotropic only)."""
    device: Device = "cpu"
    """What computes scalar probes and what follows: numpy; torch on a GPU; or that where there is one."""
    seed: int = 0
    """Seed of the sweep's random generator; the same seed and bank give the same weights."""

    def __post_init__(self) -> None:
        if (self.sigma is None) == (self.noise_ratio is None):
            raise ConfigError(
                f"sigma={self.sigma!r} and noise_ratio={self.noise_ratio!r}: give exactly one, the other None"
            )
        checked_range("noise strength", self.sigma if self.noise_ratio is None else self.noise_ratio, 0, 1e6)
        _one_of("diagnosis", self.diagnosis, get_args(Diagnosis))
        self._check_terms()
        if not isinstance(self.coupling, CouplingConfig):
            raise ConfigError(f"coupling={self.coupling!r} is no CouplingConfig")
        kinds = {"noise": NoiseFamily, "retrieval_form": RetrievalForm, "decay_law": DecayLaw}
        for name, kind in {**kinds, "probe": ProbeMethod, "device": Device}.items():
            _one_of(name, getattr(self, name), get_args(kind))
        if self.probe == "scalar" and self.noise != "isotropic":
            raise ConfigError(
                f"probe='scalar' is exact for isotropic noise only, not {self.noise!r}: use 'full'"
            )
        checked_positive("tau", self.tau)
        for name in ("kappa", "eta", "lambda0", "k", "suspicion_gain"):
            checked_range(name, getattr(self, name), 0, 1e6)
        for name in ("gamma", "alpha_rec", "theta_c"):
            checked_range(name, getattr(self, name), 0, 1)
        if not isinstance(self.iterations, int) or not 1 <= self.iterations <= 10_000:
            raise ConfigError(f"iterations={self.iterations!r} must be a whole number from 1 to 10000")
        checked_whole("seed", self.seed, 0)

    def _check_terms(self) -> None:
        terms = self.terms if isinstance(self.terms, (tuple, list)) else ()
        named = all(isinstance(term, str) for term in terms)
        if not terms or not named or len(set(terms)) != len(terms):
            raise ConfigError(f"terms={self.terms!r} must name at least one activation term, each once")
        if self.diagnosis == "threshold":
            for term in terms:
                if term not in PAPER_TERMS:
                    raise ConfigError(
                        f"terms={self.terms!r}: {term!r} is not one of {', '.join(PAPER_TERMS)}, which alone "
                        "the threshold sums; preset 'hardened' takes any term"
                    )

    @classmethod
    def preset(
        cls, name: Preset = "hardened", agent: AgentKind = "structured", **overrides: Any
    ) -> ForgettingConfig:
        """Return the published parameters for an agent kind [S, appendix B.1], with overrides applied.

        ``hardened`` replaces the threshold by terms that flag by their own levels [O]. Only suspicion makes a
        memory fade in it (theta_c is 0), because failures can be forged [O].
        """
        _one_of("preset", name, get_args(Preset))
        _one_of("agent", agent, get_args(AgentKind))
        base = cls() if agent == "structured" else cls(noise_ratio=0.70, lambda0=0.20, k=15.0, alpha_rec=0.50)
        if name == "hardened":
            overrides.setdefault("diagnosis", "coupling")
            overrides.setdefault("theta_c", 0.0)
            if overrides["diagnosis"] == "coupling":
                overrides.setdefault("terms", HARDENED_TERMS)
        if overrides.get("sigma") is not None:
            overrides.setdefault("noise_ratio", None)
        try:
            return replace(base, **overrides)
        except TypeError as error:
            raise ConfigError(f"unknown option for a forgetting sweep: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the journal; constants of a diagnosis that is not used are left out."""
        values = asdict(self)
        if self.diagnosis != "coupling":
            del values["coupling"]
        return values


@dataclass(frozen=True, kw_only=True)
class ConsolidationConfig:
    """Online consolidation from task feedback (source section 3.3 and appendix G).

    Raises:
        ConfigError: A value is outside its range.
    """

    momentum: float = 0.20
    """m in c <- (1 - m) c + m * utility [O: the source names an EMA and gives no m]."""
    temperature: float = 0.50
    """Temperature of the softmax over retrieval scores that shares out the credit [O]; at 0.1 a memory
    that always helps from the fourth rank would lose its consolidation."""

    def __post_init__(self) -> None:
        checked_range("momentum", self.momentum, 0, 1)
        checked_positive("temperature", self.temperature)


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """How memories are searched and ranked (design section 2).

    Raises:
        ConfigError: A value is outside its range.
    """

    k: int = 4
    """How many memories are returned at most."""
    search_type: SearchType = "similarity"
    """``associative`` ranks as ``AssociativeRetriever`` does, by what dreams wrote too; of the options below
    only ``k``, ``min_weight`` and ``rerank_top`` count there."""
    backend: SearchBackend = "auto"
    """``index``: the collection's own index, widened until exact; ``scan``: every embedding, read; ``auto``:
    the index, and scans once a bank that fits in memory is searched often enough between two changes."""
    min_weight: float = 0.01
    """A memory below this weight is forgotten: it is not returned however large k is [O]."""
    score_threshold: float | None = None
    """Smallest weighted score w * cos that is returned."""
    fetch_k: int = 20
    """Candidates of MMR, and the first depth of each hybrid arm."""
    lambda_mult: float = 0.5
    """MMR: 1 is relevance only, 0 is diversity only."""
    rrf_k: float = 60.0
    """Constant of reciprocal rank fusion [O, 60]."""
    rrf_weights: tuple[float, float] = (1.0, 1.0)
    """Weights of the dense and the BM25 arm in the fusion."""
    rerank_top: int = 20
    """How many candidates a reranker sees."""

    def __post_init__(self) -> None:
        for name in ("k", "fetch_k", "rerank_top"):
            checked_whole(name, getattr(self, name))
        _one_of("search_type", self.search_type, get_args(SearchType))
        _one_of("backend", self.backend, get_args(SearchBackend))
        checked_range("min_weight", self.min_weight, 0, 1)
        checked_range("lambda_mult", self.lambda_mult, 0, 1)
        checked_positive("rrf_k", self.rrf_k)
        if self.score_threshold is not None:
            if self.search_type == "associative":
                raise ConfigError("score_threshold is for cosines: search_type='associative' has none")
            checked_range("score_threshold", self.score_threshold, -1, 1)
        arms = self.rrf_weights if isinstance(self.rrf_weights, (tuple, list)) else ()
        if len(arms) != 2 or not any(arms):
            raise ConfigError(f"rrf_weights={self.rrf_weights!r} must be two numbers, 0 or more, not both 0")
        for arm in arms:
            checked_range("rrf_weights", arm, 0, 1e6)


@dataclass(frozen=True, kw_only=True)
class AssociativeConfig:
    """Retrieval over conversations by several families of keys; all of it is ours [O], tuned on LoCoMo.

    Raises:
        ConfigError: A value is outside its range.
    """

    k: int = 10
    """How many memories are returned at most."""
    min_weight: float = 0.01
    """A memory below this weight is forgotten: it is not returned however large k is."""
    rrf_k: float = 20.0
    """Constant of reciprocal rank fusion; 60 measured 0.8 points worse."""
    speaker_bonus: float = 0.3
    """Added to the factor of a page whose speaker is the only one that the query names."""
    bridge_share: float = 0.3
    """What a page gets of the mean score of the pages that bridges link it with."""
    rerank_top: int = 20
    """How many candidates a reranker sees."""

    def __post_init__(self) -> None:
        for name in ("k", "rerank_top"):
            checked_whole(name, getattr(self, name))
        checked_range("min_weight", self.min_weight, 0, 1)
        checked_positive("rrf_k", self.rrf_k)
        checked_range("speaker_bonus", self.speaker_bonus, 0, 10)
        checked_range("bridge_share", self.bridge_share, 0, 1)
