"""What a term sees of a bank, and what it says about it.

Does: the bank as texts and arrays, with what several terms compute from them computed once; a score per
memory with flags, warnings and the evidence behind a score.

Does not know: ids, storage, weights, which terms there are.

Source: DREAM Eq. 5 sums three terms [S]; that the set is open, and this interface, are [O].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared_core.config import ForgettingConfig
from shared_core.dynamics.coupling.evidence import Embed, spread
from shared_core.dynamics.coupling.ngrams import SharedNgrams
from shared_core.dynamics.geometry import BankGeometry, measure
from shared_core.dynamics.terms.nearest import nearest_rows
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.types import Array, BoolArray, FloatArray

NEAREST = 20
"""Memories that count as a memory's neighbourhood [O]."""


@dataclass(frozen=True)
class TermEvidence:
    """Why a term scored one memory as it did. Texts in it are the bank's: hostile until escaped."""

    text: str
    """One sentence for people, without a full stop."""
    span: str = ""
    """The stretch of the key that it is about, where there is one."""
    payload: str = ""
    """The same of the value."""
    neighbours: tuple[int, ...] = ()
    """Rows of the memories that it was compared or grouped with, most telling first."""
    details: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by name."""


@dataclass(frozen=True, eq=False)
class SharedWords:
    """Words that memories of different content state, for a person to judge; hostile until escaped."""

    span: str
    rows: Array
    """(M,) who states them, ascending."""


def _no_evidence(_row: int) -> TermEvidence | None:
    return None


@dataclass(frozen=True, eq=False)
class TermResult:
    """What a term says about N memories."""

    score: FloatArray
    """(N,) finite, larger is more suspect; any unit."""
    flagged: BoolArray | None = None
    """(N,) who is abnormal by this term alone; None for a term that only ranks."""
    level: float | None = None
    """The score, above 0, from which this term flags; None for a term that only ranks."""
    held: BoolArray | None = None
    """(N,) who would be flagged but for a cap: a sweep leaves their weights and suspicion as they are."""
    warnings: tuple[str, ...] = ()
    """What kept it from seeing everything."""
    shared: tuple[SharedWords, ...] = ()
    """What it only reports, strongest first."""
    evidence: Callable[[int], TermEvidence | None] = _no_evidence
    """Row in, the reason for its score out; None where there is nothing to say."""


@dataclass(frozen=True, eq=False)
class BankView:
    """A bank of N memories, as its terms see it; nothing in it is ever written to.

    Raises:
        ConfigError: Keys, values, origins and embeddings disagree in number.
    """

    keys: Sequence[str]
    """N texts that were embedded."""
    values: Sequence[str] | None
    """N answers or solutions, "" where a memory has none; None where the bank has none."""
    unit: FloatArray
    """(N, d) unit embeddings of the keys."""
    embed: Embed | None = None
    """Embeds further texts as the keys were, to unit vectors; None without an embedder."""
    origins: Sequence[str] | None = None
    """N names of who wrote each memory, "" where unknown; None where the bank has none."""
    config: ForgettingConfig = field(default_factory=ForgettingConfig)
    """Every constant, and the seed: a term draws from ``np.random.default_rng(view.config.seed)``."""
    norms: FloatArray | None = None
    """(N,) norms of the stored embeddings; None where they are 1."""
    trusted: BoolArray | None = None
    """(N,) whom a person has looked at and restored; None where nobody is. They are judged as any other, but
    vouch for the words that several of them repeat."""
    whole: tuple[Sequence[str], FloatArray] | None = None
    """The texts as they are stored, and their unit embeddings, where the keys are parts of them."""

    def __post_init__(self) -> None:
        names = ("keys", "values", "origins", "norms", "trusted")
        columns = {name: getattr(self, name) for name in names}
        sizes = {name: len(column) for name, column in columns.items() if column is not None}
        if self.unit.ndim != 2 or set(sizes.values()) != {len(self.unit)}:
            given = ", ".join(f"{size} {name}" for name, size in sizes.items())
            raise ConfigError(
                f"a bank with {given} and embeddings of shape {self.unit.shape}: give one of each per memory"
            )

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def geometry(self) -> BankGeometry:
        """Centroid of the bank and the cosine of each memory with it; N at least 1."""
        return measure(self.unit)

    @cached_property
    def spread(self) -> float:
        """Scale of cosines: median nearest neighbour less median cosine, on a sample; N at least 2."""
        rng = np.random.default_rng(self.config.seed)
        return spread(self.unit, self.config.coupling.spread_sample, rng)

    @cached_property
    def nearest(self) -> Array:
        """(N, 20 or fewer) rows of the nearest other memories of each memory, nearest first."""
        return nearest_rows(self.unit, NEAREST)

    @cached_property
    def key_grams(self) -> SharedNgrams:
        """Tokens of the keys, and the n-grams that at least two keys share."""
        return SharedNgrams(self.keys, self.config.coupling.ngram, self.config.coupling.token_limit)

    @cached_property
    def value_grams(self) -> SharedNgrams | None:
        """The same of the values; None where the bank has none."""
        if self.values is None:
            return None
        return SharedNgrams(self.values, self.config.coupling.ngram, self.config.coupling.token_limit)

    @cached_property
    def value_unit(self) -> FloatArray:
        """(N, d) unit embeddings of the values; zeros where a memory has none.

        Costs an embedding per distinct value. Only a term that needs ``values`` and ``embedder`` may ask.
        """
        if self.values is None or self.embed is None:
            raise ConfigError(
                "embeddings of values were asked for, and the bank has no values or no embedder"
            )
        distinct = {text: row for row, text in enumerate(dict.fromkeys(self.values)) if text.strip()}
        found = np.zeros((len(self), self.unit.shape[1]), np.float32)
        if distinct:
            matrix = np.asarray(self.embed(list(distinct)), np.float32)
            place = {text: position for position, text in enumerate(distinct)}
            rows = [row for row, text in enumerate(self.values) if text in place]
            found[rows] = matrix[[place[self.values[row]] for row in rows]]
        return found
