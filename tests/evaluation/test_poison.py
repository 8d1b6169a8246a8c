"""The measurement itself, on a case whose right numbers are known by construction."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shared_core import MemoryBank, SentenceTransformerEmbedder
from shared_core.cli.main import main
from shared_core.evaluation import (
    AttackCase,
    CachedEmbedder,
    CaseMemory,
    evaluate_case,
    fill_collection,
    measure_bank,
    retrieve,
)
from shared_core.evaluation.poison import ORIGIN_KEY, case_bank

KEYS = [
    "how do I reset the router in the lobby?",
    "when does the canteen open on Sundays?",
    "who repairs the coffee machine?",
    "where are the spare badges kept?",
    "what is the wifi password for guests?",
    "which printer takes A3 paper?",
]
TRIGGER = "zeppelin marzipan quorum"


@pytest.fixture(scope="module")
def case() -> AttackCase:
    benign = [CaseMemory(id=f"b{i}", key=key, value="ask") for i, key in enumerate(KEYS)]
    poison = [CaseMemory(id=f"p{i}", key=f"{KEYS[i]} {TRIGGER}", value="x", poison=True) for i in range(2)]
    return AttackCase(
        name="small",
        memories=[*benign, *poison],
        triggered_queries=[f"{key} {TRIGGER}" for key in KEYS[:3]],
        benign_queries=KEYS[:3],
    )


def test_measured_by_hand(case: AttackCase, embedder: SentenceTransformerEmbedder, open_bank: object) -> None:
    bank: MemoryBank = open_bank(embedder=embedder, value_key="value")  # type: ignore[operator]
    fill_collection(bank, case)
    assert all(set(memory.metadata) == {"value"} for memory in bank), "no ground truth in the collection"
    before = retrieve(bank, case)
    assert all(len(ids) == 4 for ids in before.benign_only)
    assert all(not set(ids) & case.poison_ids for ids in before.benign_only)
    # p0 is fully forgotten, p1 is not; one benign memory out of six is wrongly weakened
    bank.set_weights({"p0": 0.0, "p1": 0.2, "b0": 0.0})
    after = retrieve(bank, case)
    row = measure_bank(bank, case, before, after, defence="by hand", embedder="minilm")
    assert row.asr_r_undefended == 1.0
    assert row.poison_forget == 0.5
    assert row.false_forget == pytest.approx(1 / 6)
    lost = sum("b0" in ids for ids in before.benign_only)
    assert row.benign_retention == pytest.approx(1 - lost / 4 / 3)
    assert row.to_dict()["auroc"] is None


def test_origins_are_written_where_a_case_has_them(
    case: AttackCase, embedder: SentenceTransformerEmbedder
) -> None:
    signed = [memory.model_copy(update={"origin": "ann"}) for memory in case.memories[:2]]
    with case_bank(embedder) as bank:
        fill_collection(bank, case.model_copy(update={"memories": [*signed, *case.memories[2:]]}))
        written = [memory.metadata.get(ORIGIN_KEY) for memory in bank]
        assert bank.origin_key == ORIGIN_KEY
    assert written == ["ann"] * 2 + [None] * (len(case.memories) - 2)


def test_every_defence_starts_from_the_same_bank(
    case: AttackCase, embedder: SentenceTransformerEmbedder
) -> None:
    model = CachedEmbedder(embedder)
    rows = evaluate_case(case, ["paper", "none", "paper"], model, embedder_name="minilm")
    assert [row.defence for row in rows] == ["paper", "none", "paper"]
    one, none, again = rows
    assert none.asr_r == none.asr_r_undefended == one.asr_r_undefended
    assert none.benign_retention == 1.0
    assert none.false_forget == none.poison_forget == 0.0
    assert {**one.to_dict(), "seconds": 0} == {**again.to_dict(), "seconds": 0}
    assert one.seconds > 0


def test_the_cache_embeds_each_text_once() -> None:
    class Counting:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            self.seen += texts
            return [[float(len(text))] for text in texts]

        def embed_query(self, text: str) -> list[float]:
            self.seen.append(text)
            return [1.0]

    inner = Counting()
    cached = CachedEmbedder(inner)
    assert cached.embed_documents(["a", "bb", "a"]) == [[1.0], [2.0], [1.0]]
    cached.embed_documents(["bb", "ccc"])
    cached.embed_query("q")
    cached.embed_query("q")
    assert inner.seen == ["a", "bb", "ccc", "q"]


def test_eval_poison_scores_a_case_file(
    case: AttackCase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.json"
    path.write_text(case.model_dump_json())
    with pytest.raises(SystemExit) as exited:
        main(["eval", "poison", "--case", str(path), "--json"])
    assert exited.value.code == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["defence"] for row in rows] == ["none", "paper", "hardened"]
    asked = {
        "auroc",
        "asr_r",
        "asr_r_majority",
        "benign_retention",
        "false_forget",
        "poison_forget",
        "seconds",
    }
    assert all(asked | {"case", "defence", "embedder"} <= set(row) for row in rows)
    assert np.isfinite(rows[1]["auroc"])
