"""Options of the dream cycle, with their sources ([S]: stated by the paper; [O]: ours)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shared_core.bank.tenants import checked_tenant_keys
from shared_core.config import checked_range, checked_whole
from shared_core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DreamConfig:
    """Options of ``DreamCycle``.

    Raises:
        ConfigError: A value is outside its range.
    """

    rounds: int = 3
    """T_max of Eq. 7; the paper converges within 2-3 [S]."""
    tau: float = 0.95
    """Mean F1 of a round's probes at which a cycle ends (Eq. 7) [O: the paper gives no number]."""
    probes: int = 96
    """Per round at most [O]."""
    partitions: int = 3
    """Each round looks for weak memories in another part of the bank [S]; how many parts is ours [O]."""
    k: int = 5
    """How many memories a probe retrieves [O]."""
    gamma: float = 0.2
    """Soft decay of Eq. 5 [S]; also the least weight that a repair gives [O]."""
    eta: float = 0.1
    """Restoration per success of Eq. 6 [O: the paper gives no number]."""
    groundwork: bool = True
    """Write keys, bridges and graded weights for all pages before the first round [O]."""
    decay: float = 0.15
    """Strength of the graded decay of round 0; 0 leaves weights alone [O]."""
    connectivity: float = 0.4
    """lambda 1 of Eq. 3 [O]."""
    redundancy: float = 0.3
    """lambda 2 of Eq. 3 [O]."""
    staleness: float = 0.3
    """lambda 3 of Eq. 3 [O]."""
    threshold: float = 0.1
    """phi(v) from which a memory is a target, the weakest first [O]."""
    repairs: int = 20
    """Kept per cycle at most, besides those of round 0 [O]."""
    growth: float = 0.1
    """Derived memories in the bank, per memory of its own, at most; never fewer than 20 [O]."""
    seconds: float = 120.0
    """After which no further repair is tried; a call to a chat model is let finish [O]."""
    tenant_keys: tuple[str, ...] | None = None
    """Metadata fields that say whose a memory is, such as ``("tenant",)``: each owner's memories dream by
    themselves, with rounds, probes, repairs and growth of their own and the seconds for all together. ()
    names none; None takes those of an earlier dream of the bank [O]."""
    seed: int = 0
    """Each cycle of a bank draws anew from it: the next one asks other questions."""

    def __post_init__(self) -> None:
        """Check the options."""
        for name in ("rounds", "probes", "partitions", "k", "repairs"):
            checked_whole(name, getattr(self, name))
        for name in (
            "tau",
            "gamma",
            "eta",
            "decay",
            "growth",
            "connectivity",
            "redundancy",
            "staleness",
            "threshold",
        ):
            checked_range(name, getattr(self, name), 0, 1)
        if self.tenant_keys is not None:
            object.__setattr__(self, "tenant_keys", checked_tenant_keys(self.tenant_keys))
        if self.gamma < 0.1:
            raise ConfigError(f"gamma={self.gamma!r} is below 0.1: a repair would forget a memory")
        if not (isinstance(self.seconds, (int, float)) and self.seconds > 0):
            raise ConfigError(f"seconds={self.seconds!r} must be above 0")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        named = None if self.tenant_keys is None else list(self.tenant_keys)
        return {**asdict(self), "tenant_keys": named}
