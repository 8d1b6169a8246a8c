"""``explain``: each term's view of a memory, its neighbours and its history, on real parts."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shared_core import (
    BankView,
    ForgettingConfig,
    MemoryBank,
    SentenceTransformerEmbedder,
    TermEvidence,
    TermResult,
    activation_term,
)
from shared_core.bank.chroma import ChromaContent
from shared_core.cli.main import main
from shared_core.dynamics.terms import registry
from shared_core.errors import ConfigError, MemoryNotFoundError
from shared_core.evaluation import CachedEmbedder
from tests.bank.test_hardened_sweep import CASE, HARDENED, POISON, fill_sample
from tests.conftest import OpenBank, fill

BENIGN = next(memory.id for memory in CASE.memories if not memory.poison)


@pytest.fixture(scope="module")
def cached(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


@pytest.fixture(scope="module")
def vectors(cached: CachedEmbedder) -> dict[str, list[float]]:
    rows = cached.embed_documents([memory.key for memory in CASE.memories])
    return {memory.id: row for memory, row in zip(CASE.memories, rows, strict=True)}


@pytest.fixture(autouse=True)
def own_terms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(registry, "_TERMS", dict(registry._TERMS))
    return


def test_a_planted_memory_is_explained_by_its_span_and_its_accomplices(
    open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder
) -> None:
    bank = fill_sample(open_bank(embedder=cached, value_key="answer"), vectors)
    run_id = bank.sweep(HARDENED).run_id
    runs = len(bank.runs())
    found = bank.explain(POISON[0], HARDENED)
    assert found == asyncio.run(bank.aexplain(POISON[0], HARDENED))
    assert len(bank.runs()) == runs
    assert (found.flagged, found.takes_part, found.memories) == (True, True, len(CASE.memories))
    assert found.score is not None
    assert found.score >= 1
    assert found.rank is not None
    assert found.rank <= 4
    (term,) = found.terms
    assert (term.name, term.flagged, term.rank <= 4) == ("coupling", True, True)
    assert term.level is not None
    assert term.value >= term.level
    assert "clenched championed etymology define clench" in term.span
    assert term.payload
    assert sorted([*term.neighbours, POISON[0]]) == POISON
    assert found.state.weight < 0.01
    assert found.value == next(m.value for m in CASE.memories if m.id == POISON[0])
    assert found.runs[0].run_id == run_id
    before, after = found.runs[0].values["weight"]
    assert (before, after) == (1.0, found.state.weight)
    assert [run.kind for run in found.runs] == ["sweep", "add"]
    assert json.loads(json.dumps(found.to_dict()))["terms"][0]["span"] == term.span

    honest = bank.explain(BENIGN, HARDENED)
    assert not honest.flagged
    assert honest.score is not None
    assert 0 < honest.score < 1
    assert honest.terms[0].text is None
    assert [run.kind for run in honest.runs] == ["add"]
    assert len(honest.nearest) == 5
    similarities = [one.similarity for one in honest.nearest]
    assert similarities == sorted(similarities, reverse=True)
    assert BENIGN not in [one.id for one in honest.nearest]


def test_the_published_terms_are_explained_without_an_embedder(
    bank: MemoryBank, rng: np.random.Generator
) -> None:
    fill(bank, rng, rows=60)
    report = bank.sweep(ForgettingConfig(), dry_run=True)
    lowest = bank.explain(report.ids[int(np.argmin(report.activation))], ForgettingConfig())
    highest = bank.explain(report.ids[int(np.argmax(report.activation))], ForgettingConfig())
    assert [term.name for term in lowest.terms] == ["geometric", "retrieval", "coherence"]
    assert (lowest.flagged, lowest.rank, highest.flagged, highest.rank) == (True, 1, False, 60)
    assert -sum(term.value for term in lowest.terms) == pytest.approx(report.activation.min(), abs=1e-5)
    assert "centroid" in str(lowest.terms[1].text)


def test_what_takes_no_part_is_said(bank: MemoryBank, rng: np.random.Generator) -> None:
    fill(bank, rng, rows=20)
    first = bank.ids()[0]
    bank.delete([first])
    found = bank.explain(first, ForgettingConfig())
    assert (found.takes_part, found.terms, found.score, found.rank) == (False, [], None, None)
    assert found.memories == 19
    assert [run.kind for run in found.runs] == ["delete", "add"]
    with pytest.raises(MemoryNotFoundError, match="'nobody'"):
        bank.explain("nobody")
    with pytest.raises(ConfigError, match="not str"):
        bank.explain(first, "hardened")  # type: ignore[arg-type]


def test_history_knows_rewritten_texts_and_its_own_tenant(
    open_bank: OpenBank, rng: np.random.Generator, tmp_path: Path
) -> None:
    place = tmp_path / "shared"
    with MemoryBank.open(place, "both", create=True) as bank:
        for user in ("ada", "bob"):
            bank.add(
                [f"{user} {row}" for row in range(10)],
                ids=[f"{user}{row}" for row in range(10)],
                metadatas=[{"user": user}] * 10,
                embeddings=rng.standard_normal((10, 8)),
            )
        bank.update("ada0", "new words", embedding=rng.standard_normal(8))
        kinds = [(run.kind, run.rewrote) for run in bank.explain("ada0", ForgettingConfig()).runs]
        assert kinds == [("update", True), ("add", False)]
    with MemoryBank.open(place, "both", where={"user": "ada"}) as ada:
        ada.set_weights({"ada0": 0.5})
        found = ada.explain("ada0", ForgettingConfig())
        assert [run.kind for run in found.runs] == ["reweight"], (
            "runs of the whole bank are not this tenant's"
        )
        assert found.memories == 10
        assert {one.id[:3] for one in found.nearest} == {"ada"}
        with pytest.raises(MemoryNotFoundError):
            ada.explain("bob0")


def test_one_s_own_term_decides_in_a_sweep_and_explains_itself(
    open_bank: OpenBank, vectors: dict[str, list[float]], cached: CachedEmbedder
) -> None:
    @activation_term("one_writer", needs={"origins"}, decides=True)
    def one_writer(view: BankView) -> TermResult:
        """Memories that mallory wrote."""
        assert view.origins is not None
        hers = np.array([origin == "mallory" for origin in view.origins])
        return TermResult(
            hers.astype(float),
            hers,
            1.0,
            evidence=lambda row: TermEvidence("by mallory") if hers[row] else None,
        )

    bank = fill_sample(
        open_bank(embedder=cached, value_key="answer", origin_key="who"), vectors, poison=False
    )
    config = ForgettingConfig.preset("hardened", terms=("coupling", "one_writer"))
    (warning,) = bank.sweep(config, dry_run=True).warnings
    assert warning == "no memory has a value under 'who': without origins term one_writer is skipped"
    bank.update(BENIGN, metadata={"who": "mallory"})
    report = bank.sweep(config)
    (suspect,) = report.suspects
    assert (suspect.id, suspect.reason) == (BENIGN, "by mallory")
    assert suspect.terms == {"coupling": 0.0, "one_writer": 1.0}
    assert report.trace[0]["threshold"] is None
    assert bank.explain(BENIGN, config).terms[1].text == "by mallory"

    alone = ForgettingConfig.preset("hardened", terms=("one_writer",))
    bank.embedder = None
    assert [s.id for s in bank.sweep(alone, dry_run=True).suspects] == [BENIGN]
    ranking = ForgettingConfig.preset("hardened", terms=("geometric",))
    report = bank.sweep(ranking, dry_run=True)
    assert report.suspects == []
    told, held = report.warnings
    assert told == "none of the terms geometric decides: nothing can be flagged"
    assert held.startswith("left as before: 1 memory that an earlier sweep doubted, for this one can flag")
    with pytest.raises(ConfigError, match="no term 'nope'"):
        bank.sweep(ForgettingConfig.preset("hardened", terms=("nope",)))


def dream(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def test_the_command_explains_and_shows_hostile_text_harmlessly(
    tmp_path: Path,
    vectors: dict[str, list[float]],
    cached: CachedEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared_core.embedding.packaged_embedder", lambda: cached)
    place = str(tmp_path / "chroma")
    with MemoryBank.open(place, "sample", create=True) as bank:
        fill_sample(bank, vectors)
        hostile = "\x1b[31mobey\u202e " + "x" * 500
        bank.add([hostile], ids=["evil"], embeddings=np.ones((1, 384)))
    on = ("--collection", "sample", "--preset", "hardened", "--value-key", "answer")
    code, out, err = dream("explain", POISON[0], place, *on)
    assert code == 0, err
    assert "flagged; score" in out
    assert "clenched championed etymology define clench" in out
    assert all(other in out for other in POISON)
    assert "added" in out.splitlines()[-1]
    code, out, err = dream("explain", place, "evil", *on)
    assert code == 0, err
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert max(len(line) for line in out.splitlines()) < 400
    code, out, _ = dream(
        "explain", POISON[0], place, *on, "--term", "coupling", "--term", "geometric", "--json"
    )
    assert code == 0
    assert [term["name"] for term in json.loads(out)["terms"]] == ["coupling", "geometric"]
    with MemoryBank.open(place, "sample") as bank:
        assert [run.kind for run in bank.runs()] == ["add", "add"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--term", "nope"), "there is no term 'nope'"),
        (("--without", "coherence", "--preset", "hardened"), "not among the terms"),
        (("--term", "geometric", "--without", "geometric"), "leaves no term"),
        (("--term", "coupling", "--preset", "paper"), "alone the threshold sums"),
    ],
)
def test_terms_are_chosen_and_mistakes_are_told(
    tmp_path: Path, rng: np.random.Generator, options: tuple[str, ...], message: str
) -> None:
    place = str(tmp_path / "chroma")
    with MemoryBank.open(place, "sample", create=True) as bank:
        fill(bank, rng, rows=20)
        first = bank.ids()[0]
    for command in (("forget", place), ("explain", first, place)):
        code, _, err = dream(*command, "-c", "sample", *options)
        assert code == 2
        assert message in err
    code, out, err = dream(
        "forget", place, "-c", "sample", "--preset", "paper", "--without", "geometric", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["config"]["terms"] == ["retrieval", "coherence"]
    code, _, err = dream("explain", "nobody", place, "-c", "sample")
    assert code == 2
    assert "'nobody'" in err


def test_a_large_bank_is_read_from_its_cache(
    open_bank: OpenBank, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = open_bank()
    rows = 5_200
    bank.content.collection.add(
        ids=[f"m{n}" for n in range(rows)],
        documents=[f"text {n}" for n in range(rows)],
        embeddings=2.0 * rng.standard_normal((rows, 8)).astype(np.float32),
    )
    bank.delete(["m3"])
    asked = ForgettingConfig()
    first = bank.explain("m7", asked)

    def refuse(_content: ChromaContent) -> None:
        raise AssertionError("the whole bank was read from Chroma")

    monkeypatch.setattr(ChromaContent, "embeddings", refuse)
    again = bank.explain("m7", asked)
    assert again.to_dict() == first.to_dict()
    assert again.memories == rows - 1
    assert len(again.nearest) == 5
