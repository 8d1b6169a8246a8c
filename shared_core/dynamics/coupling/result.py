"""What the diagnosis says of a bank: groups of memories, and who is flagged, held or only explained for them.

Does: holds the groups, and answers which one speaks against a memory.

Does not know: how groups are found, measured and decided.

Source: none, ours [O].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shared_core.dynamics.coupling.evidence import Ratios
    from shared_core.types import Array, BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class Group:
    """Memories that were judged as one, with everything that was measured on them."""

    key_span: str
    """Longest stretch of words that their keys share, lower-cased."""
    payload_span: str
    """The same of their values; "" where values are unknown, or take no part."""
    members: Array
    """(M,) rows that the group stands for, ascending."""
    payload: float
    gain: float
    unexplained: float
    extended: float
    score: float
    flagged: bool
    """False: too weak, or refused because it would have taken the flagged share above the cap."""
    named: float = 0.0
    """New words in the stretch of the values that names the trigger."""
    ratios: Ratios | None = None
    """The factors of the score; None for a repeated stretch."""
    repeated: bool = False
    """A long stretch of the texts themselves, ``key_span``, of ``payload`` words."""

    def holds(self, row: int) -> bool:
        """Return whether a memory is a member."""
        place = int(np.searchsorted(self.members, row))
        return place < len(self.members) and int(self.members[place]) == row


@dataclass(frozen=True, eq=False)
class CouplingResult:
    """What was found in a bank of N memories."""

    score: FloatArray
    """(N,) how suspect each is, 0 or more; flagged ones stand above all others."""
    flagged: BoolArray
    """(N,)."""
    groups: tuple[Group, ...]
    """Those that were strong enough to be flagged, strongest of the first round first."""
    refused: int
    """How many of them were not flagged because of the cap."""
    unexamined: int = 0
    """Sets of memories that were not looked at because there were too many, and might have been flagged."""
    reported: tuple[Group, ...] = ()
    """Repeated stretches that nobody is flagged for, see ``CouplingConfig.repeated``; strongest first."""
    weaker: tuple[Group, ...] = ()
    """Too weak to be flagged: for each memory that is in any such group, the strongest; at most
    ``max_measured`` per round."""

    @property
    def held(self) -> BoolArray:
        """(N,) who is in a refused or reported group, not flagged by another: neither cleared nor guilty."""
        held = np.zeros(len(self.flagged), np.bool_)
        for group in (*self.groups, *self.reported):
            if not group.flagged:
                held[group.members] = True
        return held & ~self.flagged

    def strongest_group(self, row: int) -> Group | None:
        """Return the strongest group that holds a memory: flagged, else refused, reported, else too weak."""
        for kind in (
            [group for group in self.groups if group.flagged],
            [group for group in self.groups if not group.flagged],
            self.reported,
            self.weaker,
        ):
            holding = [group for group in kind if group.holds(row)]
            if holding:
                return max(holding, key=lambda group: group.score)
        return None

    def group_of(self, row: int) -> Group | None:
        """Return the strongest flagged group that holds a memory."""
        strongest = int(self._strongest_flagged[row])
        return None if strongest < 0 else self.groups[strongest]

    def reported_for(self, row: int) -> Group | None:
        """Return the strongest repeated stretch that is reported only and stands in a memory."""
        return next((group for group in self.reported if group.holds(row)), None)

    @cached_property
    def _strongest_flagged(self) -> Array:
        """(N,) place in ``groups`` of the strongest flagged one that holds a memory, -1 where none does."""
        found = np.full(len(self.flagged), -1, np.int32)
        # who is written last stays: the strongest, and of equals the first
        for place in sorted(range(len(self.groups)), key=lambda place: (self.groups[place].score, -place)):
            if self.groups[place].flagged:
                found[self.groups[place].members] = place
        return found
