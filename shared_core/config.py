"""Every option, with its default, its meaning and its source ([S]: stated by a paper; [O]: ours).

Frozen dataclasses validated on construction; they know nothing of how they are used.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from shared_core.errors import ConfigError

NoiseFamily = Literal["isotropic", "uniform", "sparse", "anisotropic"]
ProbeMethod = Literal["auto", "scalar", "full"]
RetrievalForm = Literal["logistic", "softmax"]
DecayLaw = Literal["additive", "multiplicative"]
Preset = Literal["paper"]
AgentKind = Literal["structured", "open_ended"]
ActivationTerm = Literal["geometric", "retrieval", "coherence"]
SearchType = Literal["similarity", "similarity_score_threshold", "mmr", "hybrid"]
SearchBackend = Literal["auto", "index", "scan"]


def _in_range(name: str, value: float, low: float, high: float) -> None:
    if not (isinstance(value, (int, float)) and math.isfinite(value) and low <= value <= high):
        raise ConfigError(f"{name}={value!r} is outside [{low:g}, {high:g}]")


def _positive(name: str, value: float) -> None:
    if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
        raise ConfigError(f"{name}={value!r} must be a finite number above 0")


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(map(str, allowed))}")


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
    terms: tuple[ActivationTerm, ...] = ("geometric", "retrieval", "coherence")
    """Activation terms that are summed [S, Eq. 5; Table 4 switches them off one by one]."""
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
    probe: ProbeMethod = "auto"
    """``full`` draws d-dimensional noise; ``scalar`` draws its exact projections (isotropic only)."""
    seed: int = 0
    """Seed of the sweep's random generator; the same seed and bank give the same weights."""

    def __post_init__(self) -> None:
        if (self.sigma is None) == (self.noise_ratio is None):
            raise ConfigError(
                f"sigma={self.sigma!r} and noise_ratio={self.noise_ratio!r}: give exactly one, the other None"
            )
        _in_range("noise strength", self.sigma if self.noise_ratio is None else self.noise_ratio, 0, 1e6)  # type: ignore[arg-type]
        terms = self.terms if isinstance(self.terms, (tuple, list)) else ()
        for term in terms:
            _one_of("terms", term, get_args(ActivationTerm))
        if not terms or len(set(terms)) != len(terms):
            raise ConfigError(f"terms={self.terms!r} must name at least one activation term, each once")
        _one_of("noise", self.noise, get_args(NoiseFamily))
        _one_of("retrieval_form", self.retrieval_form, get_args(RetrievalForm))
        _one_of("decay_law", self.decay_law, get_args(DecayLaw))
        _one_of("probe", self.probe, get_args(ProbeMethod))
        if self.probe == "scalar" and self.noise != "isotropic":
            raise ConfigError(
                f"probe='scalar' is exact for isotropic noise only, not {self.noise!r}: use 'full'"
            )
        _positive("tau", self.tau)
        for name in ("kappa", "eta", "lambda0", "k", "suspicion_gain"):
            _in_range(name, getattr(self, name), 0, 1e6)
        for name in ("gamma", "alpha_rec", "theta_c"):
            _in_range(name, getattr(self, name), 0, 1)
        if not isinstance(self.iterations, int) or not 1 <= self.iterations <= 10_000:
            raise ConfigError(f"iterations={self.iterations!r} must be a whole number from 1 to 10000")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ConfigError(f"seed={self.seed!r} must be a whole number, 0 or more")

    @classmethod
    def preset(
        cls, name: Preset = "paper", agent: AgentKind = "structured", **overrides: Any
    ) -> ForgettingConfig:
        """Return the published parameters for an agent kind [S, appendix B.1], with overrides applied."""
        _one_of("preset", name, get_args(Preset))
        _one_of("agent", agent, get_args(AgentKind))
        base = cls() if agent == "structured" else cls(noise_ratio=0.70, lambda0=0.20, k=15.0, alpha_rec=0.50)
        if overrides.get("sigma") is not None:
            overrides.setdefault("noise_ratio", None)
        try:
            return replace(base, **overrides)
        except TypeError as error:
            raise ConfigError(f"unknown option for a forgetting sweep: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the journal."""
        return asdict(self)


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
        _in_range("momentum", self.momentum, 0, 1)
        _positive("temperature", self.temperature)


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """How memories are searched and ranked (design section 2).

    Raises:
        ConfigError: A value is outside its range.
    """

    k: int = 4
    """How many memories are returned at most."""
    search_type: SearchType = "similarity"
    backend: SearchBackend = "auto"
    """``index``: the collection's own index, widened until exact; ``scan``: every embedding, read."""
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
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name}={value!r} must be a whole number, 1 or more")
        _one_of("search_type", self.search_type, get_args(SearchType))
        _one_of("backend", self.backend, get_args(SearchBackend))
        _in_range("min_weight", self.min_weight, 0, 1)
        _in_range("lambda_mult", self.lambda_mult, 0, 1)
        _positive("rrf_k", self.rrf_k)
        if self.score_threshold is not None:
            _in_range("score_threshold", self.score_threshold, -1, 1)
        arms = self.rrf_weights if isinstance(self.rrf_weights, (tuple, list)) else ()
        if len(arms) != 2 or not any(arms):
            raise ConfigError(f"rrf_weights={self.rrf_weights!r} must be two numbers, 0 or more, not both 0")
        for arm in arms:
            _in_range("rrf_weights", arm, 0, 1e6)
