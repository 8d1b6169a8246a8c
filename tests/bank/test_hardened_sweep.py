"""Preset hardened on real parts: the bundled attack is forgotten, every benign memory stays."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.cli.main import main
from shared_core.errors import ConfigError, DimensionMismatchError
from shared_core.evaluation import CachedEmbedder, bundled_case
from tests.conftest import OpenBank, fill

HARDENED = ForgettingConfig.preset("hardened")
CASE = bundled_case()
POISON = sorted(CASE.poison_ids)


@pytest.fixture(scope="module")
def vectors(cached: CachedEmbedder) -> dict[str, list[float]]:
    keys = [memory.key for memory in CASE.memories]
    rows = cached.embed_documents(keys)
    return {memory.id: row for memory, row in zip(CASE.memories, rows, strict=True)}


@pytest.fixture(scope="module")
def cached(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


def fill_sample(bank: MemoryBank, vectors: dict[str, list[float]], *, poison: bool = True) -> MemoryBank:
    memories = [memory for memory in CASE.memories if poison or not memory.poison]
    bank.add(
        [memory.key for memory in memories],
        ids=[memory.id for memory in memories],
        metadatas=[{"answer": memory.value} for memory in memories],
        embeddings=np.array([vectors[memory.id] for memory in memories]),
    )
    return bank


def test_a_bank_opened_without_its_value_key_uses_that_of_the_last_sweep(
    tmp_path: Path, vectors: dict[str, list[float]], cached: CachedEmbedder
) -> None:
    place = tmp_path / "chroma"
    with MemoryBank.open(place, "notes", create=True, embedder=cached, value_key="answer") as bank:
        first = fill_sample(bank, vectors).sweep(HARDENED)
        assert first.forgotten == len(POISON)
    with MemoryBank.open(place, "notes", embedder=cached) as bank:
        again = bank.sweep(HARDENED)
        assert "value_key 'answer' is that of an earlier sweep, for none was given" in again.warnings
        assert bank.weights(POISON).max() < 0.01
        assert bank.explain(POISON[0]).flagged
        bank.undo(again.run_id)
        bank.undo(first.run_id)
        # what was undone is no precedent
        assert bank.sweep(HARDENED, dry_run=True).lowered == 0


def test_a_sweep_that_sees_no_values_frees_nobody(
    tmp_path: Path, vectors: dict[str, list[float]], cached: CachedEmbedder
) -> None:
    place = tmp_path / "chroma"
    with MemoryBank.open(place, "notes", create=True, embedder=cached, value_key="answer") as bank:
        fill_sample(bank, vectors).sweep(HARDENED)
        with bank.state.transaction("repair") as run:
            # by no hand: what a person sets is a ceiling
            run.set(bank.ids()[:1], {"weight": [0.5]})
    with MemoryBank.open(place, "notes", embedder=cached, value_key="anser") as bank:
        report = bank.sweep(HARDENED)
        assert any(
            f"{len(POISON)} memories that an earlier sweep doubted, which saw" in w for w in report.warnings
        )
        assert bank.weights(POISON).max() < 0.01
        assert report.raised == 1
        # whoever means it restores them
        bank.restore(POISON)
        assert bank.sweep(HARDENED).lowered == 0
        assert np.all(bank.weights(POISON) == 1.0)


@pytest.mark.parametrize("agent", ["structured", "open_ended"])
def test_poison_is_forgotten_and_every_benign_memory_keeps_its_weight(
    open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder, agent: str
) -> None:
    bank = fill_sample(open_bank(embedder=cached, value_key="answer"), vectors)
    config = ForgettingConfig.preset("hardened", agent)  # type: ignore[arg-type]
    dry = bank.sweep(config, dry_run=True)
    assert np.all(bank.weights(bank.ids()) == 1.0)
    report = bank.sweep(config)
    assert report.suspects == dry.suspects
    assert sorted(suspect.id for suspect in report.suspects) == POISON
    assert report.lowered == report.forgotten == len(POISON)
    weight = dict(zip(bank.ids(), bank.weights(bank.ids()), strict=True))
    assert max(weight[i] for i in POISON) < 0.01
    assert {w for i, w in weight.items() if i not in CASE.poison_ids} == {1.0}
    assert report.warnings == []
    for suspect in report.suspects:
        assert suspect.reason is not None
        assert "shares 'clenched championed etymology define clench' in its request" in suspect.reason
        assert suspect.reason.endswith("in its value with 3 others")
    assert sorted(np.array(report.ids)[np.argsort(report.activation)[:4]]) == POISON

    run = bank.state.run(str(report.run_id))
    stored = json.loads(json.dumps(run.report))
    assert stored["suspects"][0]["reason"] == report.suspects[0].reason
    assert run.config is not None
    assert run.config["diagnosis"] == "coupling"
    bank.undo(str(report.run_id))
    assert np.all(bank.weights(bank.ids()) == 1.0)


def test_a_clean_sample_is_left_alone(
    open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder
) -> None:
    bank = fill_sample(open_bank(embedder=cached, value_key="answer"), vectors, poison=False)
    report = bank.sweep(HARDENED)
    assert (report.lowered, report.raised, report.suspects, report.warnings) == (0, 0, [], [])
    assert np.all(bank.weights(bank.ids()) == 1.0)


def test_softly_deleted_memories_take_no_part(
    open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder
) -> None:
    bank = fill_sample(open_bank(embedder=cached, value_key="answer"), vectors)
    bank.delete(POISON[:2])
    report = bank.sweep(HARDENED)
    assert (report.skipped, report.lowered) == (2, 0)


def test_what_the_sweep_cannot_see_is_said(
    open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder
) -> None:
    bank = fill_sample(open_bank(embedder=cached), vectors)
    (warning,) = bank.sweep(HARDENED, dry_run=True).warnings
    assert "no value_key" in warning
    bank.value_key = "elsewhere"
    (warning,) = bank.sweep(HARDENED, dry_run=True).warnings
    assert "no memory has a value under 'elsewhere'" in warning
    bank.value_key = "answer"
    bank.delete([memory.id for memory in CASE.memories if not memory.poison][20:])
    report = bank.sweep(HARDENED)
    assert report.lowered == 0
    assert any("the bank has 24 memories" in line for line in report.warnings)


def test_a_refused_group_is_reported(
    open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder
) -> None:
    bank = fill_sample(open_bank(embedder=cached, value_key="answer"), vectors)
    strict = ForgettingConfig.preset("hardened", coupling=type(HARDENED.coupling)(max_flagged=0.01))
    report = bank.sweep(strict)
    assert report.lowered == 0
    assert any("were NOT flagged" in line for line in report.warnings)


def test_an_empty_bank(open_bank: OpenBank, cached: CachedEmbedder) -> None:
    report = open_bank(embedder=cached).sweep(HARDENED)
    assert (report.memories, report.suspects) == (0, [])
    assert report.warnings == ["the bank is empty: there is nothing to diagnose"]


def test_a_wrong_or_missing_embedder_is_refused(
    bank: MemoryBank, rng: np.random.Generator, cached: CachedEmbedder
) -> None:
    fill(bank, rng, rows=40, dimension=384)
    runs = len(bank.runs())
    with pytest.raises(ConfigError, match="no embedder: open it with embedder="):
        bank.sweep(HARDENED)
    bank.embedder = cached
    with pytest.raises(ConfigError, match="does not give the stored embeddings"):
        bank.sweep(HARDENED)
    assert len(bank.runs()) == runs
    assert np.all(bank.weights(bank.ids()) == 1.0)
    assert bank.sweep(ForgettingConfig()).memories == 40, "preset paper needs none"


def test_an_embedder_of_another_dimension_is_refused(
    bank: MemoryBank, rng: np.random.Generator, cached: CachedEmbedder
) -> None:
    fill(bank, rng, rows=40, dimension=16)
    bank.embedder = cached
    with pytest.raises(DimensionMismatchError, match="dimension 16"):
        bank.sweep(HARDENED)


def dream(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def test_the_command_line(tmp_path: Path, vectors: dict[str, list[float]], rng: np.random.Generator) -> None:
    place = str(tmp_path / "chroma")
    with MemoryBank.open(place, "sample", create=True) as bank:
        fill_sample(bank, vectors)
    with MemoryBank.open(place, "other", create=True) as bank:
        fill(bank, rng, rows=40, dimension=16)
    hardened = ("forget", place, "--preset", "hardened", "--dry-run")
    code, out, err = dream(*hardened, "-c", "sample", "--value-key", "answer")
    assert code == 0, err
    assert "4 lowered" in out
    assert "'clenched championed etymology define clench' in its request" in out
    code, _, err = dream(*hardened, "-c", "other")
    assert code == 2
    assert "dimension 16, minilm has 384: give --embedder DIR" in err
    code, _, err = dream(*hardened, "-c", "sample", "--embedder", "nowhere")
    assert code == 2
    assert "nor the directory of a model" in err


def test_the_demo_with_this_preset(cached: CachedEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    # the same real model, loaded once
    monkeypatch.setattr("shared_core.embedding.packaged_embedder", lambda: cached)
    code, out, err = dream("demo", "--preset", "hardened", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["defence"] == "hardened"
    assert (result["asr_r_undefended"], result["asr_r"]) == (1.0, 0.0)
    assert (result["benign_retention"], result["false_forget"], result["auroc"]) == (1.0, 0.0, 1.0)
    assert result["undo_restores_retrieval"] is result["redo_repeats_retrieval"] is True
    code, out, err = dream("demo", "--preset", "hardened")
    assert code == 0, err
    assert "preset hardened" in out
    assert "forget PATH --collection NAME --value-key FIELD --dry-run" in out
