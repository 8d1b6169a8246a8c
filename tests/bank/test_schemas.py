"""State databases that earlier versions wrote are opened with all that is in them; newer ones are refused.

``schemas/N.sql`` is what version N wrote of one small bank in SQLite: an addition, feedback, a sweep, a
deletion, a rewriting, an undone change, from 2 on a dream, and in 4 what a person decided. COLLECTION stands
for the collection's id.
PostgreSQL gets the same rows, in the tables that version N made there.
"""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import URL, Engine, create_engine, inspect, make_url, text
from sqlalchemy.pool import NullPool

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
KINDS[4] = ["distrust", "restore", *KINDS[3]]
IN_POSTGRESQL = (
    (r"^(BEGIN TRANSACTION|COMMIT);$", ""),
    (r"^ WITHOUT ROWID$", ""),
    (r"\bFLOAT\b", "FLOAT(53)"),
    (r"\bBLOB\b", "BYTEA"),
    (r"(?<=CREATE TABLE dream_banks \(\n\tbank_id )INTEGER", "SERIAL"),
    (r"\bX'([0-9A-F]*)'", r"'\\x\1'"),
)
"""What PostgreSQL says otherwise."""


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
    "4": (4, lambda: written(4)),
}
Database = Callable[[str], URL]
"""Makes a database that holds what some SQL says."""


@contextmanager
def connected(url: URL) -> Iterator[Engine]:
    engine = create_engine(url, poolclass=NullPool)
    yield engine
    engine.dispose()


def described(url: URL) -> dict[str, Any]:
    """Return the columns and indexes of every table."""
    with connected(url) as engine:
        found = inspect(engine)
        return {
            name: [
                [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(name)],
                sorted((i["name"], i["column_names"]) for i in found.get_indexes(name)),
            ]
            for name in sorted(found.get_table_names())
        }


def rows(url: URL) -> dict[str, list[dict[str, Any]]]:
    """Return all that a state database holds, but the number of its schema."""
    kept = [name for name in described(url) if name not in ("dream_meta", "dream_locks")]
    with connected(url) as engine, engine.connect() as connection:
        return {
            name: sorted(
                (dict(row) for row in connection.execute(text(f"SELECT * FROM {name}")).mappings()),  # noqa: S608
                key=str,
            )
            for name in kept
        }


def execute(url: URL, sql: str) -> list[tuple[Any, ...]]:
    with connected(url) as engine, engine.begin() as connection:
        result = connection.exec_driver_sql(sql)
        return [tuple(row) for row in result] if result.returns_rows else []


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


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, collection: MemoryBank) -> Iterator[Database]:
    made: list[URL] = []
    file = tmp_path / "old.sqlite3"

    def in_sqlite(sql: str) -> URL:
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(sql.replace("COLLECTION", collection.content.key))
        connection.close()
        return URL.create("sqlite", database=str(file))

    def in_postgresql(sql: str) -> URL:
        for before, after in IN_POSTGRESQL:
            sql = re.sub(before, after, sql, flags=re.MULTILINE)
        made.append(server.set(database=f"dream_old_{uuid.uuid4().hex[:12]}"))
        administer(f"CREATE DATABASE {made[0].database}")
        execute(made[0], sql.replace("COLLECTION", collection.content.key))
        execute(made[0], "SELECT setval('dream_banks_bank_id_seq', (SELECT max(bank_id) FROM dream_banks))")
        return made[0]

    def administer(sql: str) -> None:
        with connected(server) as engine, engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(sql)

    if request.param == "sqlite":
        yield in_sqlite
        return
    server = make_url(request.getfixturevalue("postgres_url")).set(drivername="postgresql+psycopg")
    yield in_postgresql
    for url in made:
        administer(f"DROP DATABASE {url.database} WITH (FORCE)")


def shown(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_earlier_schema_is_taken_up_with_all_that_is_in_it(
    database: Database, open_bank: OpenBank, variant: str
) -> None:
    version, sql = VARIANTS[variant]
    url = database(sql())
    before = rows(url)
    if variant == "2":
        # its table of tiers knew no sessions
        execute(url, "INSERT INTO dream_tiers VALUES (1, 'm0', 'mtem', 5.0)")
    bank = open_bank(state_url=shown(url))

    after = rows(url)
    assert execute(url, "SELECT value FROM dream_meta") == [(str(SCHEMA_VERSION),)]
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
    # what was decided before there were decisions does not hold, what is from now on does
    trusted = ["m7"] if version >= 4 else []
    assert (bank.trusted(), bank.explain("m4", ForgettingConfig()).ceiling) == (trusted, 1.0)
    bank.restore(["m5"])
    bank.set_weights({"m1": 0.25})
    bank.sweep(ForgettingConfig(iterations=2, eta=5.0))
    assert (bank.trusted(), bank.weights(["m1", "m5"]).tolist()) == (["m5", *trusted], [0.25, 1.0])


def test_an_upgraded_database_takes_further_banks(database: Database, open_bank: OpenBank, name: str) -> None:
    url = shown(database(written(1)))
    first, other = open_bank(state_url=url), open_bank(state_url=url, name=f"{name}-2")
    assert other.state.bank_id != first.state.bank_id
    other.add(["theirs"], ids=["m0"], embeddings=np.ones((1, 4)))
    other.set_weights({"m0": 0.125})
    assert [bank.weights(["m0"])[0] == 0.125 for bank in (first, other)] == [False, True]


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99])
def test_a_newer_schema_is_refused_and_not_touched(
    database: Database, open_bank: OpenBank, version: int
) -> None:
    newer = written(3).replace("VALUES('schema_version','3')", f"VALUES('schema_version','{version}')")
    # a column of ours that it no longer has, so that it is seen if one is added
    newer = newer.replace("\n\tpid INTEGER NOT NULL, ", "")
    url = database(newer)
    file = Path(str(url.database))
    before = described(url), rows(url), execute(url, "SELECT * FROM dream_meta")
    content = file.read_bytes() if url.drivername == "sqlite" else b""
    with pytest.raises(StateError, match=f"has schema {version}, this version reads up to {SCHEMA_VERSION}"):
        open_bank(state_url=shown(url))
    if url.drivername == "sqlite":
        assert file.read_bytes() == content
    assert (described(url), rows(url), execute(url, "SELECT * FROM dream_meta")) == before
