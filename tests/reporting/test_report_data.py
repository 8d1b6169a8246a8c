"""What a report says of a bank is what the bank and its journal say; a large one is cut, and that is said."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.bank.conversation import SESSION
from shared_core.bank.edges import Edge
from shared_core.bank.history import counts_by_kind, last_lowerings, weight_changes
from shared_core.bank.keys import RetrievalKey
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.config import ForgettingConfig
from shared_core.reporting import FORMAT, ReportLimits, gather_report
from shared_core.reporting.choosing import length_that_fits, shown
from shared_core.reporting.data import BankFacts, Counts
from shared_core.reporting.headline import ago, headline
from shared_core.reporting.layout import SHEET, place_nodes
from tests.conftest import OpenBank, fill, unit_rows
from tests.reporting.hostile import TEXTS, fill_hostile

PLACE = ["./chroma", "--collection", "notes"]


def swept(bank: MemoryBank, rng: np.random.Generator) -> str:
    fill(bank, rng, rows=60)
    return str(bank.sweep(ForgettingConfig.preset("paper")).run_id)


def repair(bank: MemoryBank, parent: str | None = None) -> str:
    made = Repair(
        operation="synthesize",
        reason="parts are not found together",
        memories=(
            DerivedMemory(text="memory 1\nmemory 2", sources=("m1", "m2"), embedding=np.ones(16, np.float32)),
        ),
        weights={"m1": 0.9},
        edges=(Edge("m1", "m3", "bridge"),),
        keys=(RetrievalKey("m2", "sentence", "a key", np.ones(16, np.float32)),),
        details={"probe": {"query": "what is 1 and 2?"}, "f1_before": 0.5, "f1_after": 1.0},
    )
    with bank.state.lock("cycle") as lock:
        return apply_repair(bank, made, lock=lock, parent=parent).run_id


def test_an_empty_bank_has_a_report(bank: MemoryBank) -> None:
    data = gather_report(bank)
    assert data.headline.sentence == "This memory is empty."
    assert (data.memories, data.suspects, data.runs, data.repairs, data.graph.nodes) == ((), (), (), (), ())
    assert data.left_out == ()


def test_reading_changes_nothing(bank: MemoryBank, rng: np.random.Generator) -> None:
    swept(bank, rng)
    before = bank.state.version(), [run.to_dict() for run in bank.runs()]
    gather_report(bank, place=PLACE)
    assert (bank.state.version(), [run.to_dict() for run in bank.runs()]) == before


def test_suspects_have_the_reason_of_the_last_run_that_lowered_them(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    run_id = swept(bank, rng)
    bank.set_weights({"m7": 0.3})
    data = gather_report(bank, place=PLACE, now=time.time() + 3 * 86_400)
    ids, weights = bank.ids(), bank.weights(bank.ids())
    expected = {one for one, weight in zip(ids, weights.tolist(), strict=True) if weight < 0.5}
    found = {one.id: one for one in data.suspects}
    assert expected <= set(found)
    assert [one.weight for one in data.suspects] == sorted(one.weight for one in data.suspects)
    assert found["m7"].reason == "its weight was set by hand"
    assert (found["m7"].by, found["m7"].weight) == ("reweight", 0.3)
    by_sweep = [one for one in data.suspects if one.run_id == run_id]
    assert by_sweep
    assert all(one.reason.startswith("its activation lay below the threshold in ") for one in by_sweep)
    assert all(one.weight_before == 1.0 for one in by_sweep)
    assert data.headline.tone == "act"
    assert data.headline.sentence == (
        f"60 memories, {len(found)} suspects, last sweep 3 days ago: "
        "the suspects count for little in retrieval."
    )
    assert data.counts.suspects == len(found)
    # an undone run gives no reason, nor does its undo: what lowered it before does
    again = bank.sweep(ForgettingConfig.preset("paper", seed=1)).run_id
    bank.undo(str(again))
    assert {one.id: one.run_id for one in gather_report(bank).suspects} == {
        one.id: one.run_id for one in data.suspects
    }
    bank.undo(str(found["m7"].run_id))
    bank.undo(run_id)
    assert gather_report(bank).suspects == ()
    assert (
        gather_report(bank).headline.sentence
        == "60 memories, never swept: nothing has looked for poison yet."
    )


def test_a_hardened_sweep_gives_its_own_words(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=12)
    words = "its request and its value share 'abracadabra'"
    with bank.state.lock("sweep") as lock, bank.state.transaction("sweep", lock=lock) as run:
        run.set(["m3"], {"weight": [0.0], "suspicion": [1.0]})
        run.report = {
            "memories": 12,
            "suspects": [{"id": "m3", "reason": words, "terms": {"coupling": 7.5, "x": "y"}}],
        }
    (suspect,) = gather_report(bank).suspects
    assert (suspect.reason, suspect.terms) == (words, {"coupling": 7.5})


def test_repairs_before_and_after_and_what_is_undone(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=12)
    with bank.state.lock("cycle") as lock, bank.state.transaction("cycle", lock=lock) as run:
        run.report = {
            "repairs": 1,
            "f1_before": 0.5,
            "f1_after": 0.75,
            "stopped_by": "rounds",
            "seconds": 2.5,
        }
    repair(bank, parent=run.run_id)
    bank.update("m5", "another text", embedding=np.ones(16, np.float32))
    data = gather_report(bank, place=PLACE)
    rewritten, made = data.repairs
    assert (made.operation, made.reason) == ("synthesize", "parts are not found together")
    assert (made.question, made.f1_before, made.f1_after) == ("what is 1 and 2?", 0.5, 1.0)
    assert [(one.id, one.text.text) for one in made.before] == [("m1", "memory 1"), ("m2", "memory 2")]
    assert [one.text.text for one in made.after] == ["memory 1\nmemory 2"]
    assert (made.reweighted, [(one.id, one.before, one.after) for one in made.weights]) == (
        1,
        [("m1", 1.0, 0.9)],
    )
    assert (made.keys, made.edges, [one.text.text for one in made.key_texts]) == (1, 1, ["a key"])
    assert rewritten.operation == "update"
    assert [one.text.text for one in rewritten.before] == ["memory 5"]
    assert [one.text.text for one in rewritten.after] == ["another text"]
    # a cycle's repairs are counted in it, additions are only counted
    assert [one.kind for one in data.runs] == ["update", "cycle"]
    cycle = data.runs[1]
    assert (cycle.f1_before, cycle.f1_after, cycle.children, cycle.seconds) == (0.5, 0.75, 1, 2.5)
    assert (cycle.what, data.runs[0].what) == ("1 repair, ended by rounds", "m5")
    assert any("1 of kind add" in line for line in data.left_out)
    derived = next(one for one in data.memories if one.derived)
    assert derived.sources == ("m1", "m2")
    assert next(one for one in data.memories if one.id == "m2").keys == 1
    bank.undo(run.run_id)
    after = gather_report(bank)
    assert {one.run_id: one.status for one in after.repairs}[made.run_id] == "undone"
    assert after.runs[0].what == f"took back cycle {run.run_id} with its 1 repair"
    assert next(one for one in after.memories if one.derived).standing == "deleted"


def test_the_graph_has_places_and_edges_of_the_shown_memories(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=12)
    bank.add(
        ["x", "y", "z"], ids=["x", "y", "z"], metadatas=[{SESSION: "s"}] * 3, embeddings=unit_rows(rng, 3, 16)
    )
    repair(bank)
    bank.delete(["m9"])
    graph = gather_report(bank).graph
    place = {memory_id: number for number, (memory_id, _, _) in enumerate(graph.nodes)}
    assert len(place) == 15
    assert "m9" not in place
    kinds = {frozenset((a, b)): graph.kinds[kind] for a, b, kind in graph.edges}
    derived = next(number for memory_id, number in place.items() if memory_id.startswith("dream-derived/"))
    assert kinds[frozenset((place["m1"], derived))] == "provenance"
    assert kinds[frozenset((place["m1"], place["m3"]))] == "bridge"
    assert (
        kinds[frozenset((place["x"], place["y"]))] == kinds[frozenset((place["y"], place["z"]))] == "session"
    )
    assert len(kinds) == len(graph.edges)
    assert all(0 <= x <= SHEET and 0 <= y <= SHEET for _, x, y in graph.nodes)


def test_a_layout_is_the_same_again_and_parts_its_nodes(rng: np.random.Generator) -> None:
    start = unit_rows(rng, 300, 24)
    edges = np.stack([np.arange(299), np.arange(1, 300)], axis=1)
    place = place_nodes(start, edges, np.ones(299))
    assert np.array_equal(place, place_nodes(start, edges, np.ones(299)))
    apart = np.linalg.norm(place[:, None] - place, axis=2)
    np.fill_diagonal(apart, np.inf)
    # spread evenly they would stand 58 apart
    assert apart.min() > 15
    tied = np.linalg.norm(place[edges[:, 0]] - place[edges[:, 1]], axis=1).mean()
    assert tied < 0.25 * np.linalg.norm(place[:150] - place[150:], axis=1).mean()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_layout_of_few_or_equal_nodes(count: int) -> None:
    place = place_nodes(np.ones((count, 4), np.float32), np.empty((0, 2), np.int64), np.empty(0))
    assert place.shape == (count, 2)
    assert np.isfinite(place).all()
    assert len({tuple(one) for one in place.round(1).tolist()}) == count


def test_a_large_bank_is_cut_and_says_so(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=60)
    repair(bank)
    bank.set_weights({f"m{i}": 0.1 for i in range(10, 14)})
    data = gather_report(bank, limits=ReportLimits(memories=10, nodes=5, repairs=1, runs=1))
    ids = [one.id for one in data.memories]
    # suspects, what the repair touched, then the newest
    assert ids[:4] == ["m10", "m11", "m12", "m13"]
    assert {"m1", "m2"} <= set(ids)
    assert ids[-1] == "m57"
    assert (len(ids), len(data.graph.nodes), len(data.runs)) == (10, 5, 1)
    told = " ".join(data.left_out)
    assert "10 of 61 memories are on this page" in told
    assert "The timeline holds the last 1 runs" in told
    assert "The graph shows 5 of 61 memories" in told
    # the counts are of the whole bank
    assert (data.counts.memories, data.counts.suspects) == (61, 4)
    fewer = gather_report(bank, limits=ReportLimits(memories=2))
    assert "2 of 4 suspects are shown" in " ".join(fewer.left_out)


def test_long_texts_are_shortened_and_together_they_fit() -> None:
    assert shown("abc", 2).text == "ab"
    assert shown("abc", 2).length == 3
    texts = ["x" * 10_000] * 100
    assert length_that_fits(texts, 2000, 1_000_000) == 2000
    assert length_that_fits(texts, 2000, 60_000) == 500
    assert length_that_fits(texts, 2000, 1) == 60
    assert length_that_fits(["short"] * 100, 2000, 1000) == 2000


def test_a_tenant_sees_its_own_only(open_bank: OpenBank, rng: np.random.Generator) -> None:
    whole = open_bank()
    vectors = unit_rows(rng, 6, 16)
    users = [{"user": "ada" if i < 3 else "bob"} for i in range(6)]
    whole.add(
        [f"secret {i}" for i in range(6)],
        ids=[f"m{i}" for i in range(6)],
        metadatas=users,
        embeddings=vectors,
    )
    whole.set_weights({"m0": 0.2, "m5": 0.1})
    ada = open_bank(where={"user": "ada"})
    ada.set_weights({"m1": 0.3})
    text = json.dumps(gather_report(ada, place=PLACE).to_dict())
    assert all(f"secret {i}" in text for i in range(3))
    assert not any(f"secret {i}" in text or f'"m{i}"' in text for i in range(3, 6))
    found = {one.id: one.reason for one in gather_report(ada).suspects}
    # who lowered m0 is not hers to know
    assert set(found) == {"m0", "m1"}
    assert found["m0"].startswith("no run")
    assert counts_by_kind(ada.state) == {"reweight": 1}
    assert set(last_lowerings(ada.state, ["m0", "m1"])) == {"m1"}


def test_hostile_banks_and_altered_journals_are_read(bank: MemoryBank) -> None:
    fill_hostile(bank)
    with bank.state.lock("cycle") as lock, bank.state.transaction("repair", lock=lock) as run:
        run.set(["letters"], {"weight": [0.2]})
        run.report = {
            "operation": 7, "reason": None, "probe": "no mapping", "f1_before": float("inf"), "f1_after": "x",
            "derived": "none", "sources": [3, "letters", None], "keys": {}, "edges": None,
        }  # fmt: skip
    with bank.state.lock("cycle") as lock, bank.state.transaction("sweep", lock=lock) as run:
        run.set(["emoji"], {"weight": [0.2]})
        run.report = {"suspects": [4, None, {"id": "emoji", "terms": [1]}], "memories": None}
    data = gather_report(bank, place=PLACE)
    json.dumps(data.to_dict(), allow_nan=False)
    rows = {one.id: one for one in data.memories}
    assert rows["nul"].text.text == TEXTS["nul"]
    assert (rows["long"].text.length, len(rows["long"].text.text)) == (1_000_000, 2000)
    assert rows["--json"].word == "-- --json"
    assert rows["line\nfeed"].word == "$'line\\x0afeed'"
    assert rows["turned \u202edi"].word == "$'turned \\xe2\\x80\\xaedi'"
    assert data.format == FORMAT


def test_the_sentence_says_how_the_memory_is() -> None:
    bank = BankFacts(
        collection="c", scope="", dimension=3, space="cosine", version=1, locked_by=None, quarantine=None
    )
    counts = Counts(
        memories=212, deleted=0, full=212, reduced=0, weakened=0, forgotten=0, suspects=0, derived=0,
        quarantined=0, trusted=0, keys=0, edges=0, orphans=0, mean_weight=1.0, runs={"cycle": 1},
    )  # fmt: skip

    class Swept:
        created_at = 1_000_000.0
        report = {"memories": 212}  # noqa: RUF012

    def say(counts: Counts, seconds: float = 3600.0) -> str:
        return headline(bank, counts, Swept, 1_000_000.0 + seconds, None).sentence  # type: ignore[arg-type]

    assert say(counts) == "212 memories, no suspects, last sweep 1 hour ago: nothing needs to be done."
    assert say(replace(counts, memories=213)).endswith(
        "nothing is suspect, but 1 has come since that no sweep has seen."
    )
    assert say(counts, 9 * 86_400).endswith(
        "last sweep 9 days ago: nothing is suspect, but that was a while ago."
    )
    assert "1 suspect, " in say(replace(counts, suspects=1))
    busy = headline(replace(bank, locked_by="cycle by pid 1"), counts, Swept, 1_000_001.0, "p")  # type: ignore[arg-type]
    assert "A dream is at work now (cycle by pid 1)" in busy.advice[0].text
    new = headline(bank, replace(counts, runs={}), None, 0.0, "./c --collection n")
    assert [one.command for one in new.advice] == [
        "dream forget ./c --collection n --dry-run",
        "dream cycle ./c --collection n --dry-run",
    ]
    assert [ago(s) for s in (-5, 59, 60, 7200, 86_400)] == [
        "just now", "just now", "1 minute ago", "2 hours ago", "1 day ago",
    ]  # fmt: skip


def test_the_page_says_what_the_last_sweep_warned_of(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=5)
    with bank.state.lock("sweep") as lock, bank.state.transaction("sweep", lock=lock) as run:
        run.report = {
            "memories": 5,
            "warnings": ["<b>6 memories</b> state 'send all'", 7, "x" * 2000, *"abcdef"],
        }
    data = gather_report(bank, place=PLACE)
    assert data.headline.tone == "look"
    assert data.headline.sentence.endswith("nothing is suspect, but read what it warned of.")
    told = [one.text for one in data.headline.advice if one.text.startswith("The last sweep warned: ")]
    assert told[0] == "The last sweep warned: <b>6 memories</b> state 'send all'"
    assert len(told[1]) < 850
    assert told[-1].endswith("and 3 more, which stand in the run's report")


def test_weight_changes_of_a_run_are_the_most_lowered(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=5)
    run = bank.set_weights({"m0": 0.5, "m1": 0.1, "m2": 0.9})
    count, lowest = weight_changes(bank.state, run.run_id, 2)
    assert (count, [(one.memory_id, one.after) for one in lowest]) == (3, [("m1", 0.1), ("m0", 0.5)])


def test_a_decision_that_changes_no_number_is_told_all_the_same(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=5)
    bank.restore(["m3"])
    bank.distrust(["m3"])
    told = {run.kind: run.what for run in gather_report(bank, place=PLACE).runs}
    assert told["restore"] == "trusted: m3"
    assert told["distrust"] == "no longer trusted: m3"
