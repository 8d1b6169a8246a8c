"""What a report holds, as plain data that becomes JSON; the page and every other reader see only this.

Decides nothing and reads nothing. Texts are the bank's own, shortened but not cleaned: hostile. Whoever shows
them must treat them as text, as ``html_page`` and the page's script do.

``FORMAT`` names this shape. A field may be added under the same name; one that changes its meaning, or goes,
gets a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

FORMAT = "dream-report/1"

Standing = Literal["full", "reduced", "weakened", "forgotten", "deleted"]
"""w = 1; 0.5 <= w < 1; 0.1 <= w < 0.5; w < 0.1; softly deleted."""
Tone = Literal["calm", "look", "act"]
EdgeShown = Literal["provenance", "merged", "session", "entity", "near", "bridge"]
EDGE_KINDS: tuple[EdgeShown, ...] = ("provenance", "merged", "session", "entity", "near", "bridge")


@dataclass(frozen=True, kw_only=True)
class ShownText:
    """A text, or its beginning."""

    text: str
    length: int
    """Of the whole, in characters."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One thing to do next."""

    text: str
    command: str | None = None
    """A whole command line; None where there is none, or nobody said how the bank is reached."""
    section: str | None = None
    """Where in the page to look: suspects, memories, graph, timeline, repairs."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """How the memory is, in one sentence, and what to do next."""

    tone: Tone
    sentence: str
    advice: tuple[Advice, ...]


@dataclass(frozen=True, kw_only=True)
class BankFacts:
    """Which bank this is."""

    collection: str
    scope: str
    """The tenant's filter as JSON, "" for the whole collection."""
    dimension: int | None
    space: str
    version: int
    locked_by: str | None
    quarantine: float | None
    """Weight of what no sweep has seen yet; None where there is no quarantine."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Over the whole bank, shown in the page or not."""

    memories: int
    """Softly deleted ones left out."""
    deleted: int
    full: int
    reduced: int
    weakened: int
    forgotten: int
    suspects: int
    derived: int
    quarantined: int
    trusted: int
    keys: int
    edges: int
    orphans: int
    mean_weight: float | None
    runs: Mapping[str, int]
    """Of the journal, by kind."""


@dataclass(frozen=True, kw_only=True)
class MemoryRow:
    """One memory."""

    id: str
    word: str
    """The id as a shell reads it, for a command line."""
    text: ShownText
    standing: Standing
    weight: float
    """As retrieval sees it, but for soft deletion."""
    suspicion: float
    consolidation: float
    retrievals: int
    successes: float
    last_access: float | None
    derived: bool
    suspect: bool
    waiting: bool
    """In quarantine: no sweep has seen it."""
    trusted: bool
    """Somebody restored it as it is: no sweep lowers it."""
    digest: str
    """Of the whole text and metadata: whoever restores it from this page has seen no other."""
    keys: int
    sources: tuple[str, ...] = ()
    """What a derived memory quotes."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Shortened, ours left out."""


@dataclass(frozen=True, kw_only=True)
class SuspectRow:
    """Why one memory counts for less; its text is in ``memories``."""

    id: str
    weight: float
    weight_before: float | None
    """Before the run that lowered it last and still holds; None where there is none."""
    suspicion: float
    reason: str
    """In words; quotes the bank's text."""
    by: str | None
    """Kind of that run."""
    run_id: str | None
    at: float | None
    """Unix time of that run."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """Its score by each term of the sweep."""


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run of the journal."""

    run_id: str
    word: str
    """The same as a shell reads it."""
    kind: str
    status: str
    at: float
    changes: int
    what: str
    """What it did, in words."""
    target: str | None = None
    parent: str | None = None
    children: int = 0
    """Repairs of a cycle."""
    f1_before: float | None = None
    """Mean of a cycle's probes."""
    f1_after: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class WeightShift:
    """A weight before and after."""

    id: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class IdText:
    """A memory and a text of it."""

    id: str
    text: ShownText


@dataclass(frozen=True, kw_only=True)
class RepairRow:
    """One repair of a dream, or one text that was rewritten by hand, before and after."""

    run_id: str
    word: str
    """The same as a shell reads it."""
    parent: str | None
    status: str
    operation: str
    """extract, synthesize, merge, prune, restore, link; update where somebody rewrote a text."""
    reason: str
    at: float
    question: str | None
    """What it was made for; None for a repair of many memories at once."""
    f1_before: float | None
    f1_after: float | None
    before: tuple[IdText, ...]
    """What it quotes, as it stands now; of an update the old text."""
    after: tuple[IdText, ...]
    """What it wrote."""
    reweighted: int
    weights: tuple[WeightShift, ...]
    """The most lowered ones."""
    keys: int
    key_texts: tuple[IdText, ...]
    """The first ones."""
    edges: int


@dataclass(frozen=True, kw_only=True)
class GraphView:
    """The memory graph, laid out."""

    nodes: tuple[tuple[str, float, float], ...]
    """(id of a memory that is in ``memories``, x, y), x and y in [0, 1000]."""
    edges: tuple[tuple[int, int, int], ...]
    """(node, node, kind), numbers of ``nodes`` and of ``kinds``."""
    kinds: tuple[str, ...] = EDGE_KINDS


@dataclass(frozen=True, kw_only=True)
class ReportLimits:
    """How much of a large bank is shown; what is left out is counted in ``ReportData.left_out``."""

    memories: int = 2000
    nodes: int = 1000
    edges: int = 4000
    runs: int = 300
    repairs: int = 150
    characters: int = 2000
    """Of one memory's text."""
    total: int = 1_000_000
    """Characters of all memories' texts together; where they are more, each is shortened further."""


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything that the page shows."""

    made_at: float
    """Unix time."""
    made_by: str
    """Name and version of this package."""
    bank: BankFacts
    counts: Counts
    headline: Headline
    memories: tuple[MemoryRow, ...]
    """Suspects first, then those that are lowered, deleted, derived, or quoted; then the newest."""
    suspects: tuple[SuspectRow, ...]
    """Lowest weight first."""
    runs: tuple[RunRow, ...]
    """Newest first; additions and feedback are only counted."""
    repairs: tuple[RepairRow, ...]
    """Newest first."""
    graph: GraphView
    left_out: tuple[str, ...]
    """What the page does not show, said plainly."""
    place: str | None
    """How a command reaches the bank: ``PATH --collection NAME``; None where nobody said it."""
    format: str = FORMAT

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)
