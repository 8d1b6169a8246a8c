"""Tasks, feedback and sweeps on real parts: praise saves no poison, blame erases no benign memory."""

from __future__ import annotations

import pytest

from shared_core import ForgettingConfig, SentenceTransformerEmbedder
from shared_core.errors import ConfigError
from shared_core.evaluation import AttackCase, CachedEmbedder, bundled_case, fill_collection
from shared_core.evaluation.stream import StreamConfig, StreamRow, run_stream
from tests.conftest import OpenBank

CASE = bundled_case()
HARDENED = ForgettingConfig.preset("hardened")
SHORT = {"tasks": 40, "sweep_every": 20, "forged": 60}


@pytest.fixture(scope="module")
def cached(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


def streamed(
    open_bank: OpenBank, cached: CachedEmbedder, sweep: ForgettingConfig = HARDENED, **options: object
) -> list[StreamRow]:
    bank = open_bank(embedder=cached, value_key="value")
    fill_collection(bank, CASE)
    return run_stream(bank, CASE, sweep, StreamConfig(**{**SHORT, **options}))  # type: ignore[arg-type]


def test_poison_decays_and_the_agent_works_better(open_bank: OpenBank, cached: CachedEmbedder) -> None:
    rows = streamed(open_bank, cached)
    assert [row.moment for row in rows] == ["start", "tasks", "sweep", "tasks", "sweep"]
    start, worked, swept, again, last = rows
    assert (start.asr_r, start.poison_w, start.success) == (1.0, 1.0, None)
    assert worked.success is not None
    assert again.success is not None
    assert worked.success < again.success == 1.0
    assert worked.asr_r == 1.0, "feedback alone changes no weight"
    assert worked.poison_c < worked.benign_c
    for row in (swept, last):
        assert (row.asr_r, row.poison_forgotten, row.false_forget, row.retained) == (0.0, 1.0, 0.0, 1.0)


def test_praise_cannot_shield_a_suspect(open_bank: OpenBank, cached: CachedEmbedder) -> None:
    rows = streamed(open_bank, cached, attacker="praise")
    praised, swept = rows[1], rows[2]
    assert praised.poison_c > 0.9
    assert (swept.asr_r, swept.poison_forgotten) == (0.0, 1.0)


def test_under_the_multiplicative_law_praise_shields(open_bank: OpenBank, cached: CachedEmbedder) -> None:
    sweep = ForgettingConfig.preset("hardened", decay_law="multiplicative")
    assert streamed(open_bank, cached, sweep, attacker="praise", tasks=20)[2].asr_r == 1.0


def test_blame_cannot_erase_benign_memories(open_bank: OpenBank, cached: CachedEmbedder) -> None:
    rows = streamed(open_bank, cached, attacker="blame")
    assert rows[1].benign_c_low > 0.1
    assert [row.false_forget for row in rows] == [0.0] * len(rows)
    assert [row.retained for row in rows] == [1.0] * len(rows)


def test_with_the_published_theta_c_blame_erases_and_undo_brings_back(
    open_bank: OpenBank, cached: CachedEmbedder
) -> None:
    sweep = ForgettingConfig.preset("hardened", theta_c=0.5)
    rows = streamed(open_bank, cached, sweep, attacker="blame", tasks=20)
    swept, undone = rows[2], rows[3]
    assert swept.false_forget > 0.1
    assert swept.retained < 0.7
    assert (undone.moment, undone.false_forget, undone.retained, undone.benign_c) == ("undone", 0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "options", [{"wrong": 1.5}, {"tasks": 0}, {"attacker": "bribe"}, {"forged": -1}, {"sweep_every": 0}]
)
def test_a_senseless_stream_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        StreamConfig(**options)  # type: ignore[arg-type]


def test_a_case_without_poison_is_refused(open_bank: OpenBank, cached: CachedEmbedder) -> None:
    clean = AttackCase(name="clean", memories=CASE.memories[:1], benign_queries=["a"])
    with pytest.raises(ConfigError, match="needs benign queries and poison"):
        run_stream(open_bank(embedder=cached), clean, HARDENED)
