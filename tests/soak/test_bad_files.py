"""Files that anybody may have written: garbage, cut off, of another shape. Each is refused, and told."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import BankRetriever, MemoryBank
from shared_core.bank import matrix_cache
from shared_core.errors import BankNotFoundError, DreamError, StateError
from shared_core.evaluation.agent_tasks import load_agent_case
from shared_core.evaluation.cases import load_case
from shared_core.evaluation.classifier import read_prompts
from shared_core.evaluation.locomo.loader import load_locomo
from shared_core.evaluation.saved import read_rows
from shared_core.fleet.jobs import read_jobs
from shared_core.training.dataset import CARD, DATA_FILES, read_training_set
from shared_core.training.msc import read_msc
from shared_core.training.policy import card_path, load_policy
from shared_core.training.run_card import CARD as RUN_CARD
from shared_core.training.run_card import read_card
from tests.conftest import unit_rows
from tests.soak.effort import LetterEmbedder, effort

KEYS = [
    "name", "memories", "id", "key", "value", "origin", "poison", "triggered_queries", "benign_queries",
    "path", "url", "collection", "state", "where", "conversation", "qa", "sample_id", "speaker_a",
    "speaker_b", "session_1", "session_1_date_time", "speaker", "dia_id", "text", "question", "answer",
    "evidence", "category", "format", "features_version", "sha256", "prior", "metadata", "initial_data_id",
    "dialog", "previous_dialogs", "agent", "prompt", "reply", "case", "tasks", "memory",
]  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["D1:1", "8 May 2023", "1:00 pm on 8 May, 2023", "ehr", "'; drop table runs; --"]),
)  # fmt: skip
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)
FILES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.lists(JSON, max_size=3).map(lambda rows: "\n".join(map(json.dumps, rows)).encode()),
    st.sampled_from([b"", b"\n", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"NaN", b"1" * 5_000]),
)  # fmt: skip


def write_set(place: Path, data: bytes) -> Path:
    for name in (*DATA_FILES, CARD):
        (place / name).write_bytes(data)
    return place


def write_msc(place: Path, data: bytes) -> Path:
    for session in range(1, 5):
        for split in ("valid", "test"):
            (place / f"msc_personasummary_session_{session}_{split}.jsonl").write_bytes(data)
            (place / f"msc_dialogue_session_{session}_{split}.jsonl").write_bytes(data)
    return place


def write_policy(place: Path, data: bytes) -> Path:
    (place / "policy.safetensors").write_bytes(data)
    card_path(place / "policy.safetensors").write_bytes(data)
    return place / "policy.safetensors"


def write_card(place: Path, data: bytes) -> Path:
    (place / RUN_CARD).write_bytes(data)
    return place


def one_file(name: str) -> Callable[[Path, bytes], Path]:
    def write(place: Path, data: bytes) -> Path:
        (place / name).write_bytes(data)
        return place / name

    return write


READERS: dict[str, tuple[Callable[[Path, bytes], Path], Callable[[Path], Any]]] = {
    "attack case": (one_file("case.json"), load_case),
    "attack case, lines": (one_file("case.jsonl"), load_case),
    "agent case": (one_file("case.json"), load_agent_case),
    "fleet jobs": (one_file("jobs.jsonl"), read_jobs),
    "LoCoMo": (one_file("locomo.json"), load_locomo),
    "MSC": (write_msc, read_msc),
    "training set": (write_set, read_training_set),
    "saved rows": (one_file("rows.json"), read_rows),
    "prompts": (one_file("prompts.csv"), read_prompts),
    "policy": (write_policy, load_policy),
    "run card": (write_card, read_card),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_is_read_or_refused(tmp_path: Path, name: str) -> None:
    write, read = READERS[name]

    @effort(60)
    @given(FILES)
    def holds(data: bytes) -> None:
        with suppress(DreamError):
            read(write(tmp_path, data))

    holds()


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """Return what may become of a file: cut off, overwritten in places, or something else altogether."""
    places = st.integers(0, len(data) - 1)
    return st.one_of(
        places.map(lambda end: data[:end]),
        st.tuples(places, st.binary(min_size=1, max_size=64)).map(
            lambda hit: data[: hit[0]] + hit[1] + data[hit[0] + len(hit[1]) :]
        ),
        st.binary(max_size=100),
        st.just(b"garbage " * 2_000),
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stored")
    with MemoryBank.open(place, "bank", embedder=LetterEmbedder(), create=True) as bank:
        ids = bank.add([f"memory {i}" for i in range(20)])
        bank.undo(bank.set_weights({ids[0]: 0.5}).run_id)
        bank.set_weights({ids[1]: 0.25})
    with sqlite3.connect(place / "dream_state.sqlite3") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return place


def test_a_damaged_state_database_is_told_and_left_as_it_is(stored: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(stored, place)
    state = place / "dream_state.sqlite3"
    sound = state.read_bytes()

    @effort(40)
    @given(damaged(sound))
    def holds(data: bytes) -> None:
        for beside in place.glob("dream_state.sqlite3-*"):
            beside.unlink()
        state.write_bytes(data)
        with (
            suppress(StateError, BankNotFoundError),
            MemoryBank.open(place, "bank", embedder=LetterEmbedder()) as bank,
        ):
            ids = bank.ids()
            assert len(ids) == 20, "texts do not depend on the state"
            bank.weights(ids)
            bank.status()
            bank.runs()
            BankRetriever(bank, track_access=False).search("memory")

    holds()


def test_a_damaged_cache_of_embeddings_is_never_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(matrix_cache, "LEAST_ROWS", 4)
    vectors = unit_rows(rng, 12, 8)
    with MemoryBank.open(tmp_path / "chroma", "bank", create=True) as bank:
        ids = bank.add([f"t{i}" for i in range(12)], embeddings=vectors)
        cache = matrix_cache.MatrixCache(bank.content)
        version = cache.version()
        assert version is not None
        held = matrix_cache.CachedVectors(
            ids, vectors, np.ones(12, np.float32), matrix_cache.moments_of(vectors, np.ones(12, np.float32))
        )
        assert cache.save(held, version)
        sound = cache._file.read_bytes()
        assert cache.load(ids) is not None

        @effort(80)
        @given(
            st.one_of(
                damaged(sound),
                st.sampled_from([b"5\n", b"null\n", b'"x"\n', b"[]\n", b"{}\n", b"[" * 100_000 + b"\n"]),
            )
        )
        def holds(data: bytes) -> None:
            cache._file.write_bytes(data)
            found = cache.load(ids)
            # another kind of space in the head says the same
            same = data.translate(None, b" \t\r\n") == sound.translate(None, b" \t\r\n")
            assert found is None or (same and len(data) == len(sound) and np.array_equal(found[0], vectors))

        holds()
