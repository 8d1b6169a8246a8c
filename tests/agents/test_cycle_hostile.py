"""A dream over memories that were written to break it: forged, malformed, endless."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.agents.associations import MOST_SENTENCES
from shared_core.agents.cycle_report import DreamEvent
from shared_core.bank.conversation import SESSION, SPEAKER, TIME, ConversationMemory
from shared_core.bank.derived import PREFIX, SOURCES, is_derived, sources_of
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.errors import JournalError
from shared_core.language import split_sentences
from shared_core.retrieval.associative import AssociativeRetriever
from tests.agents.nut_story import pages
from tests.conftest import OpenBank

FORGED = f"{PREFIX}forged"
TEXTS = ["Bo keeps a purple canoe named Falcon.", "Bo has a red boat in Rome.", "Kim has three cats."]


@pytest.fixture
def bank(open_bank: OpenBank, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = open_bank(embedder=embedder)
    bank.add(TEXTS, ids=["a", "b", "c"])
    return bank


def write_foreign(bank: MemoryBank, memory_id: str, text: str, sources: str) -> None:
    """Write a record as another client of the collection would."""
    assert bank.embedder is not None
    vector = np.asarray(bank.embedder.embed_query(text), np.float32)
    bank.content.collection.add(
        ids=[memory_id], documents=[text], metadatas=[{SOURCES: sources}], embeddings=[vector]
    )


def derive(bank: MemoryBank, sources: Sequence[str]) -> str:
    text = "\n".join(memory.text for memory in bank.get(sources))
    memory = DerivedMemory(text=text, sources=tuple(sources))
    with bank.state.lock("cycle") as lock:
        apply_repair(bank, Repair(operation="synthesize", reason="join", memories=(memory,)), lock=lock)
    return memory.id


@pytest.mark.parametrize("sources", ["[" * 100_000, '["\\ud800"]', "[7]", "7", '{"a": 1}', "NaN", "["])
def test_what_only_has_the_id_of_a_derived_memory_breaks_nothing_and_is_left_alone(
    bank: MemoryBank, sources: str
) -> None:
    write_foreign(bank, FORGED, "The canoe sank.", sources)
    assert sources_of({SOURCES: sources}) == ()
    assert DreamCycle(bank).run().memories == 3
    bank.sweep()
    assert FORGED not in [hit.id for hit in AssociativeRetriever(bank).search("Did the canoe sink?")]
    assert FORGED in bank.ids()


@pytest.mark.parametrize("how", ["feedback", "delete", "set_weights", "restore", "quarantine"])
def test_no_run_makes_a_forged_derived_memory_visible(
    open_bank: OpenBank, bank: MemoryBank, how: str
) -> None:
    write_foreign(bank, FORGED, "The canoe sank.", json.dumps(["a"]))
    if how == "feedback":
        bank.feedback([FORGED], [1.0], 1.0)
    elif how == "delete":
        bank.undo(bank.delete(bank.ids()).run_id)
    elif how == "set_weights":
        bank.undo(bank.set_weights(dict.fromkeys(bank.ids(), 0.5)).run_id)
    elif how == "restore":
        bank.delete(bank.ids())
        bank.restore(bank.ids())
    else:
        bank = open_bank(embedder=bank.embedder, quarantine=0.5)
    assert bank.weights([FORGED]).tolist() == [0.0]
    assert bank.weights(["a"]).tolist() == [1.0]
    assert FORGED not in [hit.id for hit in AssociativeRetriever(bank).search("Did the canoe sink?")]


def test_a_quotation_starts_with_no_more_weight_than_a_sweep_left_its_source(bank: MemoryBank) -> None:
    with bank.state.transaction("sweep") as run:
        run.set(["a"], {"weight": [0.15], "suspicion": [0.45]})
    made = derive(bank, ["a", "b"])
    assert bank.weights([made]).tolist() == [0.15]
    assert bank.state.get([made])[0].suspicion == 0.45
    bank.restore(["a"])
    bank.sweep(ForgettingConfig.preset("paper", iterations=1))
    assert bank.weights([made]).tolist() == [bank.weights(["a"])[0]]


def test_what_was_lowered_on_purpose_does_not_lower_its_quotation(bank: MemoryBank) -> None:
    bank.set_weights({"a": 0.3})
    made = derive(bank, ["a", "b"])
    assert bank.weights([made]).tolist() == [1.0]
    bank.undo(bank.runs(limit=1)[0].run_id)
    assert bank.weights([made]).tolist() == [0.0]


@pytest.mark.parametrize(
    "moment",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999", "9999-12-31T23:59:59-12:00", "2023\x00", ""],
)
def test_times_that_no_calendar_has_and_odd_metadata_are_dreamed_over(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder, moment: str
) -> None:
    bank = open_bank(embedder=embedder)
    odd = [{TIME: moment, SESSION: True, SPEAKER: 7}, {TIME: 1e300, SESSION: 1.5}, {SPEAKER: ""}]
    bank.add(TEXTS, metadatas=odd)
    assert DreamCycle(bank).run().memories == 3


@pytest.mark.parametrize("unit", [" ", ".", '."', ". ", "\n", " \n", "?!", "。", "…”", "Mr. "])
def test_sentences_of_endless_marks_take_bounded_time(unit: str) -> None:
    text = (unit * 200_000)[:200_000] + "x"
    began = time.process_time()
    assert "".join(split_sentences(text)).strip().endswith("x")
    assert time.process_time() - began < 2


def test_one_page_of_thousands_of_sentences_gets_a_bounded_number_of_keys(bank: MemoryBank) -> None:
    bank.add([" ".join(f"Tulip{i} grows near shop{i}." for i in range(3000))], ids=["big"])
    report = DreamCycle(bank, config=DreamConfig(rounds=1)).run(dry_run=True)
    (keys,) = [one.repair.keys for one in report.repairs if one.proposal.operation == "extract"][:1]
    assert len([key for key in keys if key.memory_id == "big"]) == MOST_SENTENCES


def test_a_tenants_dream_touches_no_other_tenant(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    mine, theirs, all_of_it = (
        open_bank(where=where, embedder=embedder) for where in ({"t": "a"}, {"t": "b"}, None)
    )
    for bank, tag in ((mine, "alpha"), (theirs, "beta")):
        bank.add(
            [f"{page.text} {tag}" for page in pages()],
            ids=[f"{tag}-{page.id}" for page in pages()],
            metadatas=[{SESSION: page.session} for page in pages()],
        )
    report = DreamCycle(mine).run()
    assert report.run_id is not None
    assert report.repairs
    keys, edges = all_of_it.state.retrieval_keys(), all_of_it.state.edges()
    assert keys
    assert not any("beta" in key.text + key.memory_id for key in keys)
    assert not any("beta" in edge.source + edge.target for edge in edges)
    assert theirs.weights(theirs.ids()).tolist() == [1.0] * len(pages())
    for memory in mine.get(mine.ids()):
        assert "beta" not in memory.text
        assert memory.metadata["t"] == "a"
    assert not any("alpha" in hit.text for hit in AssociativeRetriever(theirs).search("alpha nuts"))
    for run_id in (report.run_id, report.repairs[0].run_id):
        with pytest.raises(JournalError, match="no run"):
            theirs.undo(str(run_id))


def test_undo_in_any_order_ends_at_the_beginning(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages())
    first, second = DreamCycle(bank).run(), DreamCycle(bank).run()
    edgeless = [one for one in first.repairs if not one.repair.weights]
    bank.undo(str(edgeless[0].run_id))
    for report in (second, first):
        bank.undo(str(report.run_id))
        with pytest.raises(JournalError, match="undone"):
            bank.undo(str(report.run_id))
    assert (bank.state.retrieval_keys(), bank.state.edges()) == ([], [])
    for memory in bank.get(bank.ids()):
        assert bank.weights([memory.id]).tolist() == [0.0 if is_derived(memory.id) else 1.0]


def test_one_page_that_changes_meanwhile_costs_the_others_nothing(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder)
    ConversationMemory(bank).add_pages(pages())
    deleted, rewritten, removed = bank.ids()[:3]

    def disturb(event: DreamEvent) -> None:
        if event.kind == "start":
            bank.delete([deleted])
            bank.content.collection.delete(ids=[removed])
            bank.content.collection.update(
                ids=[rewritten], documents=["Rewritten."], embeddings=[[1.0] + [0.0] * 383]
            )

    report = DreamCycle(bank, config=DreamConfig(rounds=1)).run(on_event=disturb)
    assert {"extract", "synthesize"} <= {one.proposal.operation for one in report.repairs if one.round == 0}
    keyed = {key.memory_id for key in bank.state.retrieval_keys()}
    assert len(keyed) > 40
    assert not keyed & {deleted, rewritten, removed}
