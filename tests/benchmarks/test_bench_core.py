"""What a sweep and a weighted search cost; measures, asserts no time. Run by ``make bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_chroma import Chroma

from langchain_dream import DreamRetriever
from shared_core import ForgettingConfig
from shared_core.dynamics import SweepState, forgetting_sweep
from tests.conftest import unit_rows

pytestmark = pytest.mark.bench

ROWS, DIMENSION = 10_000, 384


class Precomputed:
    """An embedder that costs nothing, so that retrieval alone is measured."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._queries = unit_rows(rng, 64, DIMENSION).tolist()
        self._rng = rng
        self._next = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return unit_rows(self._rng, len(texts), DIMENSION).tolist()

    def embed_query(self, text: str) -> list[float]:
        self._next = (self._next + 1) % len(self._queries)
        return self._queries[self._next]


@pytest.mark.parametrize("probe", ["scalar", "full"])
def test_sweep_in_memory(benchmark: Any, rng: np.random.Generator, probe: Any) -> None:
    embeddings = unit_rows(rng, ROWS, DIMENSION)
    state = SweepState(np.ones(ROWS), np.zeros(ROWS), np.ones(ROWS))
    config = ForgettingConfig(probe=probe)
    result = benchmark.pedantic(
        lambda: forgetting_sweep(embeddings, state, config, np.random.Generator(np.random.SFC64(0))),
        rounds=5,
        warmup_rounds=1,
    )
    assert len(result.trace) == config.iterations


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Chroma:
    embedder: Any = Precomputed(np.random.default_rng(0))
    folder = tmp_path_factory.mktemp("bench") / "chroma"
    found = Chroma("bench", embedder, str(folder), collection_metadata={"hnsw:space": "cosine"})
    for start in range(0, ROWS, 5_000):
        found.add_texts([f"memory number {i}" for i in range(start, start + 5_000)])
    return found


@pytest.mark.parametrize("suppressed", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["plain", "dream", "dream-scan"])
def test_retrieval(benchmark: Any, store: Chroma, kind: str, suppressed: float) -> None:
    dream = DreamRetriever.from_vectorstore(store, k=4, backend="scan" if kind == "dream-scan" else "auto")
    ids = dream.bank.ids()
    chosen = np.random.default_rng(1).choice(len(ids), int(suppressed * len(ids)), replace=False)
    dream.bank.restore(ids)
    if len(chosen):
        dream.bank.set_weights({ids[row]: 0.0 for row in chosen})
    retriever = store.as_retriever(search_kwargs={"k": 4}) if kind == "plain" else dream
    found = benchmark.pedantic(lambda: retriever.invoke("anything"), rounds=100, warmup_rounds=10)
    assert len(found) == 4


def test_sweep_of_a_stored_bank(benchmark: Any, store: Chroma, tmp_path: Path) -> None:
    bank = DreamRetriever.from_vectorstore(store).bank
    report = benchmark.pedantic(lambda: bank.sweep(dry_run=True), rounds=3, warmup_rounds=1)
    assert report.memories == ROWS
