"""What a bank must be after a row of operations, kept in plain dictionaries.

Written from the documents, not from the code: a log of runs, each with what its fields were and became. An
undo puts the values back, and is allowed where nothing that still counts was built on the run: reading the
log backwards, an undo and what it undid cancel each other where both are later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shared_core.dynamics import attribute, consolidate

FIELDS = {"weight": 1.0, "suspicion": 0.0, "consolidation": 1.0, "deleted": 0.0, "successes": 0.0}
MOMENTUM, TEMPERATURE = 0.20, 0.50
Change = tuple[Any, Any]
Key = tuple[str, str]


@dataclass
class Content:
    text: str
    metadata: dict[str, Any]

    @property
    def user(self) -> str:
        return str(self.metadata["user"])


@dataclass
class Entry:
    run_id: str
    kind: str
    scope: str
    changes: dict[Key, Change]
    target: str | None = None
    weight: float | None = None
    """Of a quarantine."""
    trusts: dict[str, Content | None] = field(default_factory=dict)
    """What a person looked at; None: trusted no longer."""
    ceilings: dict[str, float] = field(default_factory=dict)


@dataclass
class Oracle:
    contents: dict[str, Content] = field(default_factory=dict)
    """In order of insertion."""
    state: dict[Key, float] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    """Memories that have state of their own; the others follow the quarantine."""
    retrievals: dict[str, int] = field(default_factory=dict)

    # ---- reading

    @property
    def unseen(self) -> float:
        """w of what no run has touched: that of the newest quarantine that holds."""
        applied = self.applied()
        weights = [e.weight for e in self.log if e.kind == "quarantine" and e.run_id in applied]
        return 1.0 if not weights or weights[-1] is None else weights[-1]

    def value(self, memory_id: str, name: str) -> float:
        default = self.unseen if name == "weight" else FIELDS[name]
        return self.state.get((memory_id, name), default)

    def effective(self, memory_id: str) -> float:
        return 0.0 if self.value(memory_id, "deleted") else self.value(memory_id, "weight")

    def ids(self, user: str | None = None) -> list[str]:
        return [i for i, content in self.contents.items() if user in (None, content.user)]

    def applied(self) -> set[str]:
        """Return the runs that hold: nothing that holds undid them."""
        cancelled: set[str] = set()
        for entry in reversed(self.log):
            if entry.target is not None and entry.run_id not in cancelled:
                cancelled.add(entry.target)
        return {entry.run_id for entry in self.log} - cancelled

    def may_undo(self, run_id: str) -> bool:
        place = next(i for i, entry in enumerate(self.log) if entry.run_id == run_id)
        later = self.log[place + 1 :]
        after = {entry.run_id for entry in later}
        cancelled: set[str | None] = set()
        for entry in reversed(later):
            if entry.run_id in cancelled:
                continue
            if entry.target in after:
                cancelled.add(entry.target)
            elif entry.target == run_id or entry.changes.keys() & self.log[place].changes.keys():
                return False
        return True

    def waiting(self, ids: Iterable[str]) -> set[str]:
        """Return what stands in quarantine and no run has judged."""
        unseen, applied = self.unseen, self.applied()
        if unseen == 1.0:
            return set()
        last: dict[str, str] = {}
        for entry in self.log:
            if entry.run_id in applied and entry.kind != "undo":
                last |= {i: entry.kind for i, name in entry.changes if name == "weight"}
        held = [i for i in ids if not self.value(i, "deleted") and self.value(i, "weight") == unseen]
        return {i for i in held if last.get(i, "add") == "add"}

    def deciding(self, scope: str) -> list[Entry]:
        """Return the runs whose decisions bind a tenant, or with "" everybody: its own and everybody's."""
        applied = self.applied()
        return [entry for entry in self.log if entry.run_id in applied and entry.scope in ("", scope)]

    def trusted(self, scope: str, ids: Iterable[str]) -> set[str]:
        """Return what was restored, is as it was looked at, and is not deleted."""
        last: dict[str, Content | None] = {}
        for entry in self.deciding(scope):
            last |= entry.trusts
        return {i for i in ids if last.get(i) == self.contents[i] and not self.value(i, "deleted")}

    def ceiling(self, scope: str, memory_id: str) -> float:
        """Return the weight that was set by hand, 1 where none was."""
        found = 1.0
        for entry in self.deciding(scope):
            found = entry.ceilings.get(memory_id, found)
        return found

    # ---- writing

    def run(self, run_id: str, kind: str, scope: str, wanted: Mapping[Key, float], **more: Any) -> None:
        """Log a run that sets fields; those that have the value already are no change."""
        changes = {key: (self.value(*key), new) for key, new in wanted.items() if self.value(*key) != new}
        self._take(changes)
        self.log.append(Entry(run_id, kind, scope, changes, **more))

    def add(self, run_id: str, scope: str, new: Mapping[str, Content]) -> None:
        unseen = self.unseen
        self.contents |= new
        changes: dict[Key, Change] = {(i, "deleted"): (1.0, 0.0) for i in new}
        if unseen != 1.0:
            changes |= {(i, "weight"): (1.0, unseen) for i in new}
            self._take(changes)
        self.log.append(Entry(run_id, "add", scope, changes))

    def update(self, run_id: str, scope: str, memory_id: str, content: Content) -> None:
        change = (self.contents[memory_id], content)
        self.contents[memory_id] = content
        self.log.append(Entry(run_id, "update", scope, {(memory_id, "text"): change}))

    def feedback(self, run_id: str, scope: str, ids: list[str], scores: list[float], success: float) -> None:
        utility = attribute(np.array(scores), success, TEMPERATURE)
        old = np.array([self.value(i, "consolidation") for i in ids])
        new = consolidate(old, utility, MOMENTUM).tolist()
        wanted: dict[Key, float] = {(i, "consolidation"): c for i, c in zip(ids, new, strict=True)}
        wanted |= {(i, "successes"): self.value(i, "successes") + success for i in ids}
        self.run(run_id, "feedback", scope, wanted)

    def quarantine(self, run_id: str, weight: float) -> None:
        if self.unseen == 1.0:
            for memory_id in self.contents:
                self._own(memory_id)
        self.log.append(Entry(run_id, "quarantine", "", {}, weight=weight))

    def undo(self, run_id: str, target: str) -> None:
        entry = next(entry for entry in self.log if entry.run_id == target)
        changes = {key: (after, before) for key, (before, after) in entry.changes.items()}
        for (memory_id, name), (_, content) in changes.items():
            if name == "text":
                self.contents[memory_id] = content
        self._take({key: change for key, change in changes.items() if key[1] != "text"})
        # whose the undone run was
        self.log.append(Entry(run_id, "undo", entry.scope, changes, target=target))

    def _take(self, changes: Mapping[Key, Change]) -> None:
        for memory_id, _ in changes:
            self._own(memory_id)
        self.state |= {key: after for key, (_, after) in changes.items()}

    def _own(self, memory_id: str) -> None:
        if memory_id not in self.touched:
            self.touched.add(memory_id)
            self.state[memory_id, "weight"] = self.unseen
