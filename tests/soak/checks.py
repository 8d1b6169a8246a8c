"""What must hold of a bank after any crash, read from its collection and its state database themselves.

Each check returns what is wrong, as text; an empty list is a bank in order.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import numpy as np
from sqlalchemy import select

from shared_core import BankRetriever, MemoryBank, RetrievalConfig
from shared_core.bank import matrix_cache
from shared_core.bank.columns import DEFAULTS, FIELDS
from shared_core.bank.derived import is_derived, sources_of
from shared_core.bank.matrix_cache import MatrixCache
from shared_core.bank.repairing import remove_unborn
from shared_core.bank.schema import changes, memories, reading, runs, tiers
from shared_core.bank.stored_vectors import read_vectors
from shared_core.errors import BankLockedError

QUERIES = ("Nora and the boat", "the heron, number 5", "added as")
K = 5


def snapshot(bank: MemoryBank) -> dict[str, Any]:
    """Return texts, metadata and embeddings, and every column of the state; nothing that only counts up."""
    vectors = bank.content.get_embeddings(bank.ids())
    with reading(bank.state.engine) as connection:
        rows = connection.execute(select(memories).where(memories.c.bank_id == bank.state.bank_id)).all()
    state = {row.memory_id: [getattr(row, name) for name in (*FIELDS, "retrievals")] for row in rows}
    plain = [DEFAULTS[name] for name in FIELDS] + [0]
    return {
        "contents": {m.id: [m.text, dict(m.metadata), vectors[m.id].tobytes().hex()] for m in bank},
        # a row of defaults says what no row says, but of a derived memory
        "state": {i: row for i, row in state.items() if row != plain or is_derived(i)},
        "edges": sorted([e.source, e.target, e.kind] for e in bank.state.edges()),
        "keys": sorted([k.memory_id, k.kind, k.text] for k in bank.state.retrieval_keys()),
        "tiers": tiers_of(bank),
        "runs": Counter(run.kind for run in bank.runs()),
    }


def tiers_of(bank: MemoryBank) -> dict[str, list[str]]:
    """Return tier and session of each memory that has them."""
    with reading(bank.state.engine) as connection:
        rows = connection.execute(select(tiers).where(tiers.c.bank_id == bank.state.bank_id)).all()
    return {row.memory_id: [row.tier, row.session] for row in rows}


def lock_is_free(bank: MemoryBank) -> list[str]:
    """The lock of the dead is taken over at once."""
    try:
        with bank.state.lock("check", wait=0.0):
            return []
    except BankLockedError as error:
        return [f"the lock is not recovered: {error}"]


def all_of(bank: MemoryBank, *, cleaned: bool) -> list[str]:
    """Check the journal, the derived memories and, ``cleaned``, that no unborn ones are left."""
    wrong = journal(bank) + derived(bank)
    if cleaned:
        with bank.state.lock("check", wait=0.0) as lock:
            remove_unborn(bank, lock)
        known = bank.state.known_ids()
        left = [i for i in bank.ids() if is_derived(i) and i not in known]
        wrong += [f"{len(left)} derived records without a state are left"] if left else []
    return wrong


def journal(bank: MemoryBank) -> list[str]:
    """Replay it: every run found what the one before left, and the last one left what is stored."""
    with reading(bank.state.engine) as connection:
        mine = runs.c.bank_id == bank.state.bank_id
        done = connection.execute(select(runs).where(mine)).all()
        query = select(changes, runs.c.version).join(runs, runs.c.run_id == changes.c.run_id).where(mine)
        changed = connection.execute(query.order_by(runs.c.version)).all()
        rows = connection.execute(select(memories).where(memories.c.bank_id == bank.state.bank_id)).all()
    wrong = [f"run {run.run_id} is {run.status}" for run in done if run.status == "pending"]
    wrong += [f"{n} runs of version {v}" for v, n in Counter(run.version for run in done).items() if n > 1]
    counted = Counter(change.run_id for change in changed)
    for run in done:
        json.loads(run.report), json.loads(run.config)
        if run.kind != "update" and run.changes not in (counted[run.run_id], 1):
            wrong.append(f"{run.kind} {run.run_id} has {counted[run.run_id]} of {run.changes} changes")
    now: dict[tuple[str, str], float] = {}
    for change in changed:
        key = (change.memory_id, change.field)
        if now.get(key, change.before) != change.before:
            wrong.append(f"{key} was {now[key]}, and {change.run_id} found {change.before}")
        now[key] = change.after
    stored = {row.memory_id: row for row in rows}
    for (memory_id, name), value in now.items():
        row = stored.get(memory_id)
        held = DEFAULTS[name] if row is None else getattr(row, name)
        if held != value:
            wrong.append(f"{name} of {memory_id} is {held}, by the journal {value}")
    return wrong


def derived(bank: MemoryBank) -> list[str]:
    """A derived memory is seen if, and only if, its repair is applied, and then all of it is there."""
    listed = {
        memory_id: run for run in bank.runs() if run.kind == "repair" for memory_id in run.report["derived"]
    }
    held = {m.id: m for m in bank if is_derived(m.id)}
    edges = {(e.source, e.target) for e in bank.state.edges() if e.kind == "provenance"}
    users = {memory_id for memory_id in bank.ids() if not is_derived(memory_id)}
    wrong = []
    for memory_id, run in listed.items():
        if run.status == "applied" and memory_id not in held:
            wrong.append(f"{memory_id} of repair {run.run_id} is not in the collection")
    seen = dict(zip(held, bank.weights(list(held)).tolist(), strict=True))
    for memory_id, memory in held.items():
        run = listed.get(memory_id)
        if (seen[memory_id] > 0.0) != (run is not None and run.status == "applied"):
            wrong.append(f"{memory_id} weighs {seen[memory_id]}, its repair is {run and run.status}")
        sources = sources_of(memory.metadata)
        if not sources or not set(sources) <= users:
            wrong.append(f"{memory_id} quotes {sources}")
        if run and run.status == "applied" and run.parent and memory_id not in tiers_of(bank):
            wrong.append(f"{memory_id} of a dream stands in no tier")
        if run and run.status == "applied" and not {(s, memory_id) for s in sources} <= edges:
            wrong.append(f"{memory_id} has no edges to what it quotes")
    return wrong


def searches(bank: MemoryBank) -> list[str]:
    """Dense answers are those of arithmetic; hybrid ones those of a bank made anew of the same records."""
    ids = bank.ids()
    vectors = bank.content.get_embeddings(ids)
    unit = np.array([vectors[i] / np.linalg.norm(vectors[i]) for i in ids])
    weights = bank.weights(ids)
    wrong = []
    for backend in ("index", "scan"):
        retriever = BankRetriever(bank, RetrievalConfig(k=K, backend=backend), track_access=False)  # type: ignore[arg-type]
        for query in QUERIES:
            vector = retriever.embed(query)
            scores = np.where(weights >= 0.01, weights * (unit @ (vector / np.linalg.norm(vector))), -9.0)
            best = np.sort(scores)[::-1][:K]
            found = [(hit.id, hit.score) for hit in retriever.search(query)]
            if not np.allclose([score for _, score in found], best[best > -9.0], atol=1e-5):
                wrong.append(f"{backend} finds {found} for {query!r}, by arithmetic {best}")
    return wrong + _hybrid(bank, ids, vectors)


def _hybrid(bank: MemoryBank, ids: list[str], vectors: dict[str, Any]) -> list[str]:
    held = {memory.id: memory for memory in bank}
    mine = [i for i in ids if not is_derived(i)]
    if len(mine) != len(ids):
        # only a repair gives a derived memory its state
        return []
    config = RetrievalConfig(k=K, search_type="hybrid")
    with MemoryBank.open(
        ":memory:", f"{bank.content.name}-anew", create=True, embedder=bank.embedder
    ) as anew:
        old = anew.ids()
        assert not old, "one process compares once"
        anew.add([held[i].text for i in ids], ids=ids, embeddings=np.array([vectors[i] for i in ids]))
        anew.set_weights(dict(zip(ids, bank.weights(ids).tolist(), strict=True)))
        wrong = []
        for query in QUERIES:
            found, wanted = (
                [
                    (hit.id, round(hit.score, 6))
                    for hit in BankRetriever(b, config, track_access=False).search(query)
                ]
                for b in (bank, anew)
            )
            if [score for _, score in found] != [score for _, score in wanted]:
                wrong.append(f"hybrid finds {found} for {query!r}, of a bank made anew {wanted}")
    return wrong


def _left_files(bank: MemoryBank) -> list[str]:
    file = bank.content.database_file()
    folder = None if file is None else file.with_name(matrix_cache.FOLDER)
    left = [] if folder is None else list(folder.glob(".*"))
    if folder is None or not left:
        return []
    for stray in left:
        os.utime(stray, (0, 0))
    for whole in folder.glob("*.f32"):
        whole.unlink()
    read_vectors(bank.content)
    if left := [stray for stray in left if stray.exists()]:
        return [f"{len(left)} unfinished files of embeddings are never removed"]
    return []


def cache(bank: MemoryBank) -> list[str]:
    """The cached embeddings, where they are used at all, are those of the collection."""
    ids = bank.ids()
    found = MatrixCache(bank.content).current(ids)
    wrong = _left_files(bank)
    if found is not None:
        vectors = bank.content.get_embeddings(ids)
        real = np.array([vectors[i] / np.linalg.norm(vectors[i]) for i in ids])
        if not np.allclose(found.unit, real, atol=1e-5):
            wrong.append("cached embeddings differ from the collection's")
    return wrong
