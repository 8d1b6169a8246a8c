"""A bank lives through any row of operations as a plain dictionary would (see ``oracle``)."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared_core import BankRetriever, ForgettingConfig, MemoryBank
from shared_core.bank.status import FORGOTTEN, WEAKENED
from shared_core.errors import InvalidMemoryError, JournalError, MemoryNotFoundError
from tests.soak.effort import LetterEmbedder, effort
from tests.soak.oracle import Content, Entry, Oracle

USERS = ("ada", "bob")
SWEEP = ForgettingConfig(eta=0.3, noise_ratio=0.5, iterations=2)
MIN_WEIGHT = 0.01
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda text: text.strip())
SHARES = st.sampled_from([0.0, 0.005, 0.05, 0.3, 0.8, 1.0])
SOME = st.lists(st.integers(0, 1000), min_size=1, max_size=4)


class Life(RuleBasedStateMachine):
    """Everything that can be done to a bank, by its owner and by tenants."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="dream-soak-")
        self.name = f"soak-{uuid.uuid4().hex[:8]}"
        self.embedder = LetterEmbedder()
        self.oracle = Oracle()
        self.user: str | None = None
        self.bank = self.opened()

    def teardown(self) -> None:
        self.bank.close()
        self.folder.cleanup()

    def opened(self, quarantine: float | None = None) -> MemoryBank:
        bank = MemoryBank.open(
            Path(self.folder.name) / "chroma",
            self.name,
            where=None if self.user is None else {"user": self.user},
            embedder=self.embedder,
            quarantine=quarantine,
            create=True,
        )
        self.retriever = BankRetriever(bank)
        return bank

    # ---- helpers

    @property
    def scope(self) -> str:
        return self.bank.state.scope

    def chosen(self, numbers: list[int]) -> list[str]:
        ids = self.oracle.ids(self.user)
        return list(dict.fromkeys(ids[number % len(ids)] for number in numbers))

    def has_memories(self) -> bool:
        return bool(self.oracle.ids(self.user))

    def last_run(self) -> str:
        return self.bank.runs(1)[0].run_id

    def visible(self, least: float = MIN_WEIGHT) -> list[str]:
        return [i for i in self.oracle.ids(self.user) if self.oracle.effective(i) >= least]

    # ---- rules

    @initialize(texts=st.lists(TEXTS, min_size=3, max_size=10))
    def begin(self, texts: list[str]) -> None:
        self.add(texts, 0)

    @rule(texts=st.lists(TEXTS, min_size=1, max_size=4), owner=st.integers(0, 1))
    def add(self, texts: list[str], owner: int) -> None:
        user = self.user or USERS[owner]
        count = len(self.oracle.contents)
        new = {f"m{count + i}": Content(text, {"user": user, "n": i}) for i, text in enumerate(texts)}
        self.bank.add(texts, ids=list(new), metadatas=[{"user": user, "n": i} for i in range(len(texts))])
        self.oracle.add(self.last_run(), self.scope, new)

    @precondition(has_memories)
    @rule(numbers=SOME)
    def add_again(self, numbers: list[int]) -> None:
        with pytest.raises(InvalidMemoryError, match="exist already"):
            self.bank.add(["new", "other"], ids=["brand new", self.chosen(numbers)[0]])

    @precondition(has_memories)
    @rule(
        numbers=SOME, text=TEXTS, mark=st.integers(0, 3), keep=st.sampled_from(["text", "metadata", "none"])
    )
    def update(self, numbers: list[int], text: str, mark: int, keep: str) -> None:
        memory_id = self.chosen(numbers)[0]
        old = self.oracle.contents[memory_id]
        new = Content(
            old.text if keep == "text" else text,
            old.metadata if keep == "metadata" else {"user": old.user, "mark": mark},
        )
        run = self.bank.update(
            memory_id,
            None if keep == "text" else new.text,
            metadata=None if keep == "metadata" else new.metadata,
        )
        self.oracle.update(run.run_id, self.scope, memory_id, new)

    @precondition(has_memories)
    @rule(numbers=SOME)
    def delete(self, numbers: list[int]) -> None:
        ids = self.chosen(numbers)
        run = self.bank.delete(ids)
        self.oracle.run(run.run_id, "delete", self.scope, {(i, "deleted"): 1.0 for i in ids})

    @precondition(has_memories)
    @rule(numbers=SOME)
    def restore(self, numbers: list[int]) -> None:
        ids = self.chosen(numbers)
        run = self.bank.restore(ids)
        full = {"weight": 1.0, "suspicion": 0.0, "deleted": 0.0}
        self.oracle.run(
            run.run_id,
            "restore",
            self.scope,
            {(i, name): value for i in ids for name, value in full.items()},
            trusts={i: self.oracle.contents[i] for i in ids},
            ceilings=dict.fromkeys(ids, 1.0),
        )

    @precondition(has_memories)
    @rule(numbers=SOME)
    def distrust(self, numbers: list[int]) -> None:
        ids = self.chosen(numbers)
        run = self.bank.distrust(ids)
        self.oracle.run(run.run_id, "distrust", self.scope, {}, trusts=dict.fromkeys(ids))

    @precondition(has_memories)
    @rule(numbers=SOME, weight=SHARES)
    def reweight(self, numbers: list[int], weight: float) -> None:
        ids = self.chosen(numbers)
        run = self.bank.set_weights(dict.fromkeys(ids, weight))
        wanted = {(i, "weight"): weight for i in ids}
        ceilings = dict.fromkeys(ids, weight)
        self.oracle.run(run.run_id, "reweight", self.scope, wanted, ceilings=ceilings)

    @precondition(has_memories)
    @rule(numbers=SOME, success=SHARES, spread=st.floats(0, 2))
    def feedback(self, numbers: list[int], success: float, spread: float) -> None:
        ids = self.chosen(numbers)
        scores = np.linspace(1.0, 1.0 - spread, len(ids)).tolist()
        run = self.bank.feedback(ids, scores, success)
        self.oracle.feedback(run.run_id, self.scope, ids, scores, success)

    @rule()
    def sweep(self) -> None:
        """What a sweep computes is tested elsewhere; here, that it does what its report says, and no more."""
        foreseen = self.bank.sweep(SWEEP, dry_run=True)
        self.columns()
        report = self.bank.sweep(SWEEP)
        part = [i for i in self.oracle.ids(self.user) if not self.oracle.value(i, "deleted")]
        assert sorted(report.ids) == sorted(part)
        columns = self.bank.state.columns()
        wanted = {
            (i, name): value
            for name in ("weight", "suspicion")
            for i, value in zip(part, columns.gather(part, name).tolist(), strict=True)
        }
        old = {i: self.oracle.value(i, "weight") for i in part}
        assert report.lowered == foreseen.lowered == sum(wanted[i, "weight"] < old[i] for i in part)
        assert report.raised == foreseen.raised == sum(wanted[i, "weight"] > old[i] for i in part)
        assert {suspect.id: suspect.weight for suspect in report.suspects} == {
            i: wanted[i, "weight"] for i in part if wanted[i, "weight"] < old[i]
        }
        trusted = self.oracle.trusted(self.scope, part)
        assert report.trusted == len(trusted)
        for i in part:
            assert wanted[i, "weight"] <= max(old[i], self.oracle.ceiling(self.scope, i))
            if i in trusted:
                assert wanted[i, "weight"] >= old[i]
                assert wanted[i, "suspicion"] <= self.oracle.value(i, "suspicion")
        self.oracle.run(str(report.run_id), "sweep", self.scope, wanted)

    @rule(back=st.integers(0, 12))
    def undo(self, back: int) -> None:
        log = self.oracle.log
        entry: Entry = log[max(0, len(log) - 1 - back)]
        mine = not self.scope or entry.scope == self.scope
        if mine and entry.run_id in self.oracle.applied() and self.oracle.may_undo(entry.run_id):
            self.oracle.undo(self.bank.undo(entry.run_id).run_id, entry.run_id)
            return
        version = self.bank.state.version()
        with pytest.raises(JournalError):
            self.bank.undo(entry.run_id)
        assert self.bank.state.version() == version

    @rule(query=TEXTS, k=st.integers(1, 30))
    def search(self, query: str, k: int) -> None:
        hits = self.retriever.search(query, k=k)
        asked = unit(self.embedder.embed_query(query))
        score = {
            i: self.oracle.effective(i) * float(asked @ unit(self.embedder.embed_query(content.text)))
            for i, content in self.oracle.contents.items()
        }
        # a score below 0 counts as 0: among those the order is free
        best = sorted((max(0.0, score[i]) for i in self.visible()), reverse=True)[:k]
        assert len({hit.id for hit in hits}) == len(hits)
        assert [max(0.0, hit.score) for hit in hits] == pytest.approx(best, abs=1e-5)
        assert [max(0.0, score[hit.id]) for hit in hits] == pytest.approx(best, abs=1e-5)
        self.found([hit.id for hit in hits])

    @rule(query=TEXTS, k=st.integers(1, 30), kind=st.sampled_from(["hybrid", "mmr"]))
    def search_otherwise(self, query: str, k: int, kind: str) -> None:
        hits = self.retriever.search(query, k=k, search_type=kind)
        assert len(hits) == min(k, len(self.visible()))
        for hit in hits:
            content = self.oracle.contents[hit.id]
            assert (hit.text, dict(hit.metadata)) == (content.text, content.metadata)
            assert hit.weight == self.oracle.effective(hit.id)
        self.found([hit.id for hit in hits])

    def found(self, ids: list[str]) -> None:
        assert set(ids) <= set(self.visible())
        for memory_id in ids:
            self.oracle.retrievals[memory_id] = self.oracle.retrievals.get(memory_id, 0) + 1

    @rule(user=st.sampled_from([None, *USERS]))
    def reopen(self, user: str | None) -> None:
        self.bank.close()
        self.user = user
        self.bank = self.opened()

    @rule(weight=st.sampled_from([0.25, 0.5, 1.0]))
    def quarantine(self, weight: float) -> None:
        self.bank.close()
        self.user = None
        self.bank = self.opened(weight)
        if weight != self.oracle.unseen:
            self.oracle.quarantine(self.last_run(), weight)

    @precondition(lambda self: self.user is not None)
    @rule(number=st.integers(0, 1000))
    def reach_for_the_others(self, number: int) -> None:
        others = [i for i in self.oracle.ids() if self.oracle.contents[i].user != self.user]
        theirs = others[number % len(others)] if others else "nobody's"
        for call in (
            lambda: self.bank.get([theirs]),
            lambda: self.bank.update(theirs, "mine now"),
            lambda: self.bank.delete([theirs]),
            lambda: self.bank.restore([theirs]),
            lambda: self.bank.distrust([theirs]),
            lambda: self.bank.set_weights({theirs: 0.0}),
            lambda: self.bank.feedback([theirs], [1.0], 0.0),
            lambda: self.bank.explain(theirs, SWEEP),
        ):
            with pytest.raises(MemoryNotFoundError):
                call()
        assert self.bank.weights([theirs]).tolist() == [0.0]

    # ---- what holds after every step

    @invariant()
    def contents(self) -> None:
        ids = self.oracle.ids(self.user)
        assert self.bank.ids() == ids
        assert len(self.bank) == len(ids)
        for memory in self.bank:
            content = self.oracle.contents[memory.id]
            assert (memory.text, dict(memory.metadata)) == (content.text, content.metadata)
            assert memory.state.retrievals == self.oracle.retrievals.get(memory.id, 0)
            state = {name: float(getattr(memory.state, name)) for name in ("weight", "suspicion", "deleted")}
            assert state == {name: self.oracle.value(memory.id, name) for name in state}
            assert all(0 <= value <= 1 for value in state.values())

    @invariant()
    def embeddings(self) -> None:
        ids = self.oracle.ids(self.user)
        for memory_id, stored in self.bank.content.get_embeddings(ids).items():
            wanted = self.embedder.embed_query(self.oracle.contents[memory_id].text)
            assert np.allclose(unit(stored), unit(wanted), atol=1e-5)

    @invariant()
    def columns(self) -> None:
        ids = self.oracle.ids(self.user)
        columns = self.bank.state.columns()
        for name in ("weight", "suspicion", "consolidation", "deleted", "successes"):
            assert columns.gather(ids, name).tolist() == [self.oracle.value(i, name) for i in ids]
        assert self.bank.weights(ids).tolist() == [self.oracle.effective(i) for i in ids]

    @invariant()
    def journal(self) -> None:
        applied = self.oracle.applied()
        mine = [entry for entry in self.oracle.log if not self.scope or entry.scope == self.scope]
        assert [(run.run_id, run.kind, run.status) for run in reversed(self.bank.runs())] == [
            (entry.run_id, entry.kind, "applied" if entry.run_id in applied else "undone") for entry in mine
        ]

    @invariant()
    def status(self) -> None:
        ids = self.oracle.ids(self.user)
        weights = [self.oracle.value(i, "weight") for i in ids if not self.oracle.value(i, "deleted")]
        found = self.bank.status()
        counts = {
            "memories": len(weights),
            "deleted": len(ids) - len(weights),
            "full": sum(w == 1 for w in weights),
            "reduced": sum(WEAKENED <= w < 1 for w in weights),
            "weakened": sum(FORGOTTEN <= w < WEAKENED for w in weights),
            "forgotten": sum(w < FORGOTTEN for w in weights),
            "quarantined": len(self.oracle.waiting(ids)),
            "trusted": len(self.oracle.trusted(self.scope, ids)),
            "orphans": 0,
            "derived": 0,
            "keys": 0,
            "edges": 0,
        }
        assert {name: getattr(found, name) for name in counts} == counts
        assert found.mean_weight == pytest.approx(float(np.mean(weights)) if weights else None)
        assert found.locked_by is None
        assert self.bank.trusted() == sorted(self.oracle.trusted(self.scope, ids))


def unit(vector: Any) -> np.ndarray:
    array = np.asarray(vector, float)
    return np.asarray(array / np.linalg.norm(array))


def test_a_bank_is_what_a_dictionary_would_be() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Life, settings=effort(examples=10, steps=30))
