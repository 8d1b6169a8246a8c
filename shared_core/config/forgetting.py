"""Options of a forgetting sweep, and of the feedback between two ([S]: stated by a paper; [O]: ours)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from shared_core.config.checks import checked_choice, checked_positive, checked_range, checked_whole
from shared_core.config.coupling import CouplingConfig
from shared_core.errors import ConfigError

NoiseFamily = Literal["isotropic", "uniform", "sparse", "anisotropic"]
ProbeMethod = Literal["auto", "scalar", "full"]
Device = Literal["cpu", "cuda", "auto"]
RetrievalForm = Literal["logistic", "softmax"]
DecayLaw = Literal["additive", "multiplicative"]
Diagnosis = Literal["threshold", "coupling"]
Preset = Literal["paper", "hardened"]
AgentKind = Literal["structured", "open_ended"]

PAPER_TERMS = ("geometric", "retrieval", "coherence")
"""Terms of Eq. 5 [S]."""
HARDENED_TERMS = ("coupling", "dominance", "hearsay")
"""Terms of preset ``hardened`` [O]; the last two only rank, in banks that know who wrote a memory."""


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
        checked_choice("diagnosis", self.diagnosis, get_args(Diagnosis))
        self._check_terms()
        if not isinstance(self.coupling, CouplingConfig):
            raise ConfigError(f"coupling={self.coupling!r} is no CouplingConfig")
        kinds = {"noise": NoiseFamily, "retrieval_form": RetrievalForm, "decay_law": DecayLaw}
        for name, kind in {**kinds, "probe": ProbeMethod, "device": Device}.items():
            checked_choice(name, getattr(self, name), get_args(kind))
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
        checked_choice("preset", name, get_args(Preset))
        checked_choice("agent", agent, get_args(AgentKind))
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
