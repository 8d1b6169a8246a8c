"""A flood of poison: the benign majority is never what a sweep forgets."""

from __future__ import annotations

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.evaluation import CaseMemory, bundled_case
from tests.conftest import OpenBank

CASE = bundled_case()
BENIGN = [memory for memory in CASE.memories if not memory.poison]
TRIGGER = "clenched championed etymology define clench"
PAYLOAD = next(memory.value for memory in CASE.memories if memory.poison)
HARDENED = ForgettingConfig.preset("hardened")


@pytest.fixture(scope="module")
def vectors(embedder: SentenceTransformerEmbedder) -> dict[str, list[float]]:
    keys = [memory.key for memory in BENIGN]
    keys += [flooded(memory).key for memory in BENIGN]
    return dict(zip(keys, embedder.embed_documents(keys), strict=True))


def flooded(memory: CaseMemory) -> CaseMemory:
    return CaseMemory(
        id=f"p-{memory.id}", key=f"{memory.key} {TRIGGER}", value=f"{memory.value} {PAYLOAD}", poison=True
    )


def attacked(
    bank: MemoryBank, vectors: dict[str, list[float]], injected: int, *, benign: int = len(BENIGN)
) -> tuple[list[str], list[str]]:
    """Fill a bank; returns the ids of the benign memories and of the poison."""
    memories = [*BENIGN[:benign], *map(flooded, BENIGN[:injected])]
    bank.add(
        [memory.key for memory in memories],
        ids=[memory.id for memory in memories],
        values=[memory.value for memory in memories],
        embeddings=np.array([vectors[memory.key] for memory in memories]),
    )
    return [m.id for m in memories if not m.poison], [m.id for m in memories if m.poison]


def test_64_poisons_are_forgotten_and_nothing_else(
    open_bank: OpenBank, vectors: dict[str, list[float]], embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder, value_key="value")
    benign, poison = attacked(bank, vectors, 64)
    report = bank.sweep(HARDENED)
    assert bank.weights(poison).max() < 0.01
    assert set(bank.weights(benign)) == {1.0}
    assert report.lowered == 64


@pytest.mark.parametrize(("benign", "injected"), [(200, 120), (64, 64), (40, 150)])
def test_a_flood_above_the_cap_is_refused_and_reported(
    open_bank: OpenBank,
    vectors: dict[str, list[float]],
    embedder: SentenceTransformerEmbedder,
    benign: int,
    injected: int,
) -> None:
    bank = open_bank(embedder=embedder, value_key="value")
    kept, poison = attacked(bank, vectors, injected, benign=benign)
    report = bank.sweep(HARDENED)
    assert set(bank.weights(kept)) == {1.0}
    assert set(bank.weights(poison)) == {1.0}, "refused whole: no half of a group is flagged"
    assert (report.lowered, report.suspects) == (0, [])
    if injected <= benign:
        assert any("were NOT flagged" in warning for warning in report.warnings)


def test_a_refused_flood_does_not_bring_back_what_was_forgotten(
    open_bank: OpenBank, vectors: dict[str, list[float]], embedder: SentenceTransformerEmbedder
) -> None:
    bank = open_bank(embedder=embedder, value_key="value")
    _, poison = attacked(bank, vectors, 60)
    bank.sweep(HARDENED)
    assert bank.weights(poison).max() < 0.01
    more = [flooded(memory) for memory in BENIGN[60:130]]
    bank.add(
        [memory.key for memory in more],
        ids=[memory.id for memory in more],
        values=[memory.value for memory in more],
        embeddings=np.array([vectors[memory.key] for memory in more]),
    )
    report = bank.sweep(HARDENED)
    assert any("were NOT flagged" in warning for warning in report.warnings)
    assert bank.weights(poison).max() < 0.01
