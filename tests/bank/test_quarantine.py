"""What no sweep has seen counts for less, whoever wrote it; the journal says so, and can take it back."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from langchain_chroma import Chroma

from langchain_dream import DreamRetriever
from shared_core import BankRetriever, ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.cli.main import main
from shared_core.errors import ConfigError
from shared_core.evaluation import CaseMemory, bundled_case
from tests.conftest import OpenBank, fill, unit_rows

Q = 0.5
GENTLE = ForgettingConfig(eta=1e3)
"""Finds nobody abnormal: what is stable recovers."""
NEW = ["n0", "n1", "n2"]
Write = Callable[[MemoryBank, np.random.Generator], np.ndarray]


def add_new(bank: MemoryBank, rng: np.random.Generator, dimension: int = 16) -> np.ndarray:
    vectors = unit_rows(rng, len(NEW), dimension)
    bank.add([f"new {i}" for i in NEW], ids=NEW, embeddings=vectors)
    return vectors


def add_behind_our_back(bank: MemoryBank, rng: np.random.Generator, dimension: int = 16) -> np.ndarray:
    vectors = unit_rows(rng, len(NEW), dimension)
    bank.content.collection.add(ids=NEW, documents=[f"new {i}" for i in NEW], embeddings=vectors)
    return vectors


WRITERS = pytest.mark.parametrize("write", [add_new, add_behind_our_back], ids=["ours", "foreign"])


def test_there_is_none_unless_asked_for(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng)
    add_behind_our_back(bank, rng)
    assert set(bank.weights(bank.ids())) == {1.0}
    status = bank.status()
    assert (status.quarantine, status.quarantined) == (None, 0)
    assert [run.kind for run in bank.runs()] == ["add"]


@WRITERS
def test_a_new_memory_waits_for_a_sweep(
    open_bank: OpenBank, state_url: str, rng: np.random.Generator, write: Write
) -> None:
    fill(open_bank(state_url=state_url), rng)
    bank = open_bank(state_url=state_url, quarantine=Q)
    assert bank.status().quarantined == 0, "what stood there before is known"
    write(bank, rng)
    assert bank.weights([*NEW, "m0"]).tolist() == [Q, Q, Q, 1.0]
    assert [memory.state.weight for memory in bank.get(NEW)] == [Q] * 3
    assert (bank.status().quarantine, bank.status().quarantined) == (Q, 3)
    assert bank.status().suspects == [], "waiting is no suspicion"

    report = bank.sweep(GENTLE)
    assert (report.raised, report.lowered) == (3, 0)
    assert bank.weights(NEW).min() > 0.999
    assert bank.status().quarantined == 0

    undone = bank.undo(str(report.run_id))
    assert bank.weights(NEW).tolist() == [Q] * 3
    assert bank.status().quarantined == 3
    bank.undo(undone.run_id)
    assert bank.status().quarantined == 0


def test_adding_is_journalled_and_can_be_undone(open_bank: OpenBank, rng: np.random.Generator) -> None:
    bank = open_bank(quarantine=Q)
    add_new(bank, rng)
    run = bank.runs(1)[0]
    assert (run.kind, run.changes) == ("add", 2 * len(NEW))
    undone = bank.undo(run.run_id)
    assert (bank.status().deleted, bank.status().quarantined) == (3, 0)
    bank.undo(undone.run_id)
    assert bank.weights(NEW).tolist() == [Q] * 3
    assert bank.status().quarantined == 3


@WRITERS
def test_retrieval_honours_it(open_bank: OpenBank, rng: np.random.Generator, write: Write) -> None:
    vectors = fill(open_bank(), rng)
    bank = open_bank(quarantine=Q)
    retriever = BankRetriever(bank)
    retriever.search_by_vector(vectors[0])
    new = write(bank, rng)
    for mode in ("similarity", "hybrid"):
        hits = {hit.id: hit for hit in retriever.search_by_vector(new[0], query="new n0", search_type=mode)}
        assert hits["n0"].weight == Q
    # a known memory at cosine 0.6 goes before the new one at cosine 1
    mixed = 0.6 * new[0] + 0.8 * np.linalg.qr(np.stack([new[0], vectors[0]]).T)[0][:, 1]
    bank.content.collection.update(ids=["m1"], embeddings=[mixed])
    assert [hit.id for hit in retriever.search_by_vector(new[0], k=1)] == ["m1"]
    bank.sweep(GENTLE)
    assert [hit.id for hit in retriever.search_by_vector(new[0], k=2)] == ["n0", "m1"]


@WRITERS
def test_neither_use_nor_praise_lifts_it(open_bank: OpenBank, rng: np.random.Generator, write: Write) -> None:
    bank = open_bank(quarantine=Q)
    new = write(bank, rng)
    retriever = BankRetriever(bank)
    for _ in range(5):
        hits = retriever.search_by_vector(new[0], k=3)
        bank.feedback([hit.id for hit in hits], [hit.score for hit in hits], success=1.0)
    bank.state.flush()
    again = open_bank()
    assert again.weights(NEW).tolist() == [Q] * 3
    assert again.status().quarantined == 3
    assert again.get(["n0"])[0].state.retrievals == 5


@WRITERS
@pytest.mark.parametrize("lift", ["restore", "reweight"])
def test_a_person_can_lift_it(open_bank: OpenBank, rng: np.random.Generator, write: Write, lift: str) -> None:
    bank = open_bank(quarantine=Q)
    write(bank, rng)
    run = bank.restore(["n0"]) if lift == "restore" else bank.set_weights({"n0": 0.9})
    assert bank.weights(NEW).tolist() == [1.0 if lift == "restore" else 0.9, Q, Q]
    assert bank.status().quarantined == 2
    bank.undo(run.run_id)
    assert bank.status().quarantined == 3
    bank.set_weights({"n1": 0.3})
    bank.set_weights({"n1": Q})
    assert bank.status().quarantined == 2, "by hand, and so no longer waiting"


def test_every_process_follows_the_journal(open_bank: OpenBank, rng: np.random.Generator) -> None:
    begun = open_bank(quarantine=Q).runs(1)[0]
    assert (begun.kind, begun.config, begun.report) == (
        "quarantine", {"weight": Q}, {"before": 1.0, "known": 0},
    )  # fmt: skip
    bank = open_bank()
    add_behind_our_back(bank, rng)
    assert bank.weights(NEW).tolist() == [Q] * 3
    assert len(open_bank(quarantine=Q).runs()) == 1, "it is so already"
    assert open_bank(quarantine=0.25).weights(NEW).tolist() == [0.25] * 3
    bank = open_bank()
    bank.undo(bank.runs(1)[0].run_id)
    assert bank.weights(NEW).tolist() == [Q] * 3, "the setting before holds again"
    ended = open_bank(quarantine=1)
    assert ended.weights(NEW).tolist() == [1.0] * 3
    assert ended.status().quarantine is None
    # begun anew: what came meanwhile is known
    assert open_bank(quarantine=Q).weights(NEW).tolist() == [1.0] * 3


def test_retrieved_before_it_began_is_known(open_bank: OpenBank, rng: np.random.Generator) -> None:
    bank = open_bank()
    add_behind_our_back(bank, rng)
    bank.state.record_access(["n0"])
    bank.state.flush()
    bank = open_bank(quarantine=Q)
    assert bank.weights(NEW).tolist() == [1.0] * 3
    assert bank.get(["n0"])[0].state.retrievals == 1


def test_an_id_that_comes_again_waits_again(open_bank: OpenBank, rng: np.random.Generator) -> None:
    bank = open_bank(quarantine=Q)
    add_new(bank, rng)
    bank.sweep(GENTLE)
    bank.content.collection.delete(ids=NEW)
    add_new(bank, rng)
    assert bank.weights(NEW).tolist() == [Q] * 3
    assert bank.status().quarantined == 3


def test_tenants(open_bank: OpenBank, rng: np.random.Generator) -> None:
    ada = open_bank(where={"user": "ada"}, quarantine=Q)
    add_new(ada, rng)
    everyone = open_bank()
    everyone.add(["theirs"], ids=["b"], metadatas=[{"user": "bob"}], embeddings=unit_rows(rng, 1, 16))
    assert everyone.status().quarantine is None
    assert everyone.weights(["b"]).tolist() == [1.0]
    assert ada.status().quarantined == 3
    open_bank(quarantine=0.25)
    bob = open_bank(where={"user": "bob"})
    bob.add(["more"], ids=["c"], embeddings=unit_rows(rng, 1, 16))
    assert bob.weights(["b", "c"]).tolist() == [1.0, 0.25]


@pytest.mark.parametrize("weight", [-0.1, 1.5, float("nan"), "half", True])
def test_a_senseless_weight_is_refused(open_bank: OpenBank, weight: object) -> None:
    with pytest.raises(ConfigError, match=r"quarantine=.* must be a weight in"):
        open_bank(quarantine=weight)
    assert open_bank().runs() == []


def test_poison_written_by_langchain_never_counts_in_full(
    embedder: SentenceTransformerEmbedder, name: str, tmp_path: Path
) -> None:
    """The bundled attack goes past the bank, through the user's own vector store."""
    case = bundled_case()
    benign = [memory for memory in case.memories if not memory.poison]
    poison = [memory for memory in case.memories if memory.poison]
    store = Chroma(
        collection_name=name, embedding_function=embedder, persist_directory=str(tmp_path / "chroma")
    )

    def write(memories: list[CaseMemory]) -> None:
        store.add_texts(
            [m.key for m in memories], [{"value": m.value} for m in memories], [m.id for m in memories]
        )

    write(benign)
    with MemoryBank.from_collection(store._collection, quarantine=Q):
        pass
    retriever = DreamRetriever.from_vectorstore(store, value_key="value", k=4)
    query = case.triggered_queries[0]
    assert not case.poison_ids.intersection(d.id for d in retriever.invoke(query))
    write(poison)
    weight = {d.id: d.metadata["dream_weight"] for d in retriever.invoke(query, k=len(case.memories))}
    assert {weight[m.id] for m in poison} == {Q}
    assert {weight[m.id] for m in benign if m.id in weight} == {1.0}
    retriever.sweep(ForgettingConfig.preset("hardened"))
    assert retriever.bank.weights([m.id for m in poison]).max() < 0.01
    assert set(retriever.bank.weights([m.id for m in benign])) == {1.0}
    assert retriever.bank.status().quarantined == 0
    retriever.bank.close()


def dream(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def test_the_command_line(tmp_path: Path, rng: np.random.Generator) -> None:
    place = str(tmp_path / "chroma")
    with MemoryBank.open(place, "sample", create=True, quarantine=Q) as bank:
        fill(bank, rng)
    on = (place, "-c", "sample")
    assert "60 in quarantine (w = 0.500 until a sweep has seen them)" in dream("status", *on)[1]
    assert json.loads(dream("status", *on, "--json")[1])["quarantined"] == 60
    code, out, err = dream("forget", "--preset", "paper", *on, "--dry-run")
    assert (code, "60 of them are in quarantine" in out) == (0, True), err
    assert json.loads(dream("forget", "--preset", "paper", *on, "--json")[1])["quarantined_before"] == 60
    assert "0 in quarantine" in dream("status", *on)[1]
    code, _, err = dream("forget", "--preset", "paper", *on, "--dry-run", "--quarantine", "1")
    assert (code, "give one of them" in err) == (2, True)
    assert dream("forget", "--preset", "paper", *on, "--quarantine", "1")[0] == 0
    assert "in quarantine" not in dream("status", *on)[1]


@pytest.mark.parametrize("terms", [("coupling",), ("dominance",)], ids=["too few", "none decides"])
def test_a_sweep_that_can_judge_nobody_lifts_nothing(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder, terms: tuple[str, ...]
) -> None:
    hardened = ForgettingConfig.preset("hardened", terms=terms)
    bank = open_bank(embedder=embedder, quarantine=Q)
    ids = bank.add([f"The {n}th heron stands at the pier." for n in range(8)])
    judged = bank.restore(ids[:1])
    with bank.state.transaction("sweep") as run:
        run.set(ids[1:3], {"suspicion": [0.5, 0.25], "weight": [0.3, 0.4]})
    before = bank.weights(ids).tolist()
    report = bank.sweep(hardened)
    assert bank.weights(ids).tolist() == before == [1.0, 0.3, 0.4, *[Q] * 5]
    assert bank.status().quarantined == 5
    assert (report.raised, report.lowered) == (0, 0)
    told = [line for line in report.warnings if "can flag nobody" in line]
    assert "left in quarantine: 5 memories" in told[0]
    assert "left as before: 2 memories that an earlier sweep doubted" in told[1]
    assert bank.sweep(hardened, dry_run=True).warnings == report.warnings
    assert judged.kind == "restore"


def test_a_sweep_of_enough_memories_lifts_it(
    open_bank: OpenBank, embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder, quarantine=Q)
    ids = bank.add([f"Boat {n} carries {n * 7} crates to island {n % 5}." for n in range(33)])
    report = bank.sweep(ForgettingConfig.preset("hardened"))
    assert bank.weights(ids).min() > 0.999
    assert report.raised == 33
    assert not any("can flag nobody" in line for line in report.warnings)
