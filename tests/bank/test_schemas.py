"""State databases that earlier versions wrote are opened with all that is in them; newer ones are refused.

``schemas/N.sql`` is what version N wrote of one small bank: an addition, feedback, a sweep, a deletion, a
rewriting, an undone change, and from 2 on a dream. COLLECTION stands for the collection's id.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank
from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.schema import SCHEMA_VERSION
from shared_core.bank.tiers import Placement
from shared_core.errors import StateError
from tests.conftest import OpenBank

SCHEMAS = Path(__file__).with_name("schemas")
DERIVED = "dream-derived/00000000000000000000000000000001"
KINDS = {
    1: ["undo", "reweight", "update", "reweight", "delete", "sweep", "feedback", "add"],
    2: ["repair", "cycle", "undo", "reweight", "update", "reweight", "delete", "sweep", "feedback", "add"],
}
KINDS[3] = KINDS[2]


def written(version: int) -> str:
    return (SCHEMAS / f"{version}.sql").read_text()


def first_of_1() -> str:
    """Before its tables lost their row numbers."""
    return written(1).replace("WITHOUT ROWID", "").replace(
        "COMMIT;", "CREATE INDEX dream_changes_memory ON dream_changes (memory_id, field);\nCOMMIT;"
    )  # fmt: skip


def last_of_2() -> str:
    """What only lacked the index of version 3."""
    without = re.sub(r"CREATE INDEX dream_tiers_session .*\n", "", written(3))
    return without.replace("VALUES('schema_version','3')", "VALUES('schema_version','2')")


VARIANTS: dict[str, tuple[int, Callable[[], str]]] = {
    "the first 1": (1, first_of_1),
    "1": (1, lambda: written(1)),
    "2": (2, lambda: written(2)),
    "the last 2": (2, last_of_2),
    "3": (3, lambda: written(3)),
}


def rows(database: sqlite3.Connection) -> dict[str, list[dict[str, Any]]]:
    """Return all that a state database holds, but the number of its schema."""
    database.row_factory = sqlite3.Row
    names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: sorted((dict(row) for row in database.execute(f"SELECT * FROM {name}")), key=str)  # noqa: S608
        for name in names
        if name not in ("dream_meta", "dream_locks")
    }


@pytest.fixture
def collection(open_bank: OpenBank) -> MemoryBank:
    """The texts to which the states belong."""
    bank = open_bank()
    ids = [f"m{i}" for i in range(8)]
    texts = [f"memory {i}" if i != 3 else "rewritten" for i in range(8)]
    vectors = np.vstack([np.eye(4), np.eye(4)[::-1] * 0.5 + np.eye(4) * 0.8])
    vectors[3] = 1.0
    bank.add(texts, ids=ids, embeddings=vectors)
    provenance = {"dream_kind": "merge", "dream_sources": '["m1", "m2"]'}
    bank.content.add([DERIVED], ["derived"], [provenance], np.ones((1, 4)))
    return bank


def state_file(tmp_path: Path, sql: str, collection: MemoryBank) -> Path:
    file = tmp_path / "old.sqlite3"
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(sql.replace("COLLECTION", collection.content.key))
    database.close()
    return file


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_earlier_schema_is_taken_up_with_all_that_is_in_it(
    collection: MemoryBank, open_bank: OpenBank, tmp_path: Path, variant: str
) -> None:
    version, sql = VARIANTS[variant]
    file = state_file(tmp_path, sql(), collection)
    with sqlite3.connect(file) as database:
        before = rows(database)
        if version == 2 and variant == "2":
            # its table of tiers knew no sessions
            database.execute("INSERT INTO dream_tiers VALUES (1, 'm0', 'mtem', 5.0)")
    bank = open_bank(state_url=f"sqlite:///{file}")

    with sqlite3.connect(file) as database:
        after = rows(database)
        kept = database.execute("SELECT value FROM dream_meta").fetchall()
    assert [tuple(row) for row in kept] == [(str(SCHEMA_VERSION),)]
    for name, old in before.items():
        if name != "dream_tiers":
            wider = [dict.fromkeys(after[name][0]) | row for row in old] if old else []
            assert after[name] == sorted(wider, key=str), name
    assert [run.kind for run in bank.runs()] == KINDS[version]
    stored = {row["memory_id"]: row for row in before["dream_memories"]}
    ids = [f"m{i}" for i in range(8)]
    expected = [0.0 if stored[i]["deleted"] else stored[i]["weight"] for i in ids]
    assert bank.weights(ids).tolist() == expected
    assert (bank.weights([DERIVED])[0] > 0) == (version > 1)
    if variant == "2":
        assert ConversationMemory(bank).tiers() == {"m0": Placement("mtem", "", 5.0)}

    for kind in ("cycle", "update", "delete") if version > 1 else ("update", "delete"):
        bank.undo(next(run.run_id for run in bank.runs() if run.kind == kind))
    assert bank.get(["m3"])[0].text == "memory 3"
    assert bank.weights([DERIVED]).tolist() == [0.0]
    assert bank.sweep(ForgettingConfig(iterations=2)).memories == 8
    ConversationMemory(bank).place({"m1": "day"}, "stim")
    assert bank.state.keyed_ids() == []


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99])
def test_a_newer_schema_is_refused_and_not_touched(
    collection: MemoryBank, open_bank: OpenBank, tmp_path: Path, version: int
) -> None:
    newer = written(3).replace("VALUES('schema_version','3')", f"VALUES('schema_version','{version}')")
    # a column of ours that it no longer has, so that it is seen if one is added
    newer = newer.replace("\n\tpid INTEGER NOT NULL, ", "")
    file = state_file(tmp_path, newer, collection)
    before = file.read_bytes()
    with pytest.raises(StateError, match=f"has schema {version}, this version reads up to {SCHEMA_VERSION}"):
        open_bank(state_url=f"sqlite:///{file}")
    assert file.read_bytes() == before
