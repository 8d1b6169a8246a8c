"""What somebody tries who may name things, write memories or hold a tenant's bank.

Elsewhere: models that obey what a memory orders (tests/agents/test_llm_agents.py), floods of poison
(tests/bank/test_flood.py), hostile texts in reports and terminals (tests/reporting, tests/cli).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import inspect

import langchain_dream
import llamaindex_dream
import shared_core
from shared_core import BankRetriever, ForgettingConfig, MemoryBank
from shared_core.bank.edges import Edge
from shared_core.bank.graph import read_graph
from shared_core.bank.keys import RetrievalKey
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.errors import ConfigError, DreamError, JournalError
from shared_core.reporting.gathering import gather_report
from shared_core.retrieval.associative import AssociativeRetriever
from tests.soak.effort import LetterEmbedder
from tests.soak.hostile import STRINGS

UNSAFE = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle", "yaml"
}  # fmt: skip
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {("torch", "load"), ("np", "load"), ("numpy", "load"), ("pd", "read_pickle"), ("os", "system")}


def sources() -> Iterator[Path]:
    for package in (shared_core, langchain_dream, llamaindex_dream):
        yield from Path(str(package.__file__)).parent.rglob("*.py")


def test_nothing_is_unpickled_or_evaluated() -> None:
    found = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                found += [where for name in node.names if name.name.partition(".")[0] in UNSAFE]
            elif isinstance(node, ast.ImportFrom):
                found += [where] if (node.module or "").partition(".")[0] in UNSAFE else []
            elif isinstance(node, ast.Call):
                called = node.func
                if isinstance(called, ast.Name):
                    found += [where] if called.id in UNSAFE_CALLS else []
                elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                    found += [where] if (called.value.id, called.attr) in LOADERS else []
                found += [
                    where
                    for option in node.keywords
                    if option.arg in {"allow_pickle", "trust_remote_code"}
                    and not (isinstance(option.value, ast.Constant) and option.value.value is False)
                ]
    assert found == []


@pytest.mark.parametrize("name", [*STRINGS, "../../escaped", "a" * 600, "'; DROP TABLE runs; --x"])
def test_a_collection_by_any_name_touches_nothing_outside(tmp_path: Path, name: str) -> None:
    place = tmp_path / "inner" / "chroma"
    place.parent.mkdir()
    try:
        with MemoryBank.open(place, name, embedder=LetterEmbedder(), create=True) as bank:
            bank.set_weights({bank.add(["a red boat"])[0]: 0.5})
    except DreamError as refused:
        said = str(refused)
        assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    assert {path.name for path in place.parent.iterdir()} <= {"chroma"}


@pytest.mark.parametrize("url", [f"sqlite:///{one}" for one in STRINGS if "/" not in one] + STRINGS)
def test_a_state_at_any_url_is_opened_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with (
        suppress(DreamError),
        MemoryBank.open(tmp_path / "chroma", "bank", state_url=url, create=True) as bank,
    ):
        bank.status()
    assert {path.name for path in tmp_path.iterdir()} <= {"here", "chroma"}


def test_ids_texts_and_runs_are_never_sql(tmp_path: Path) -> None:
    hostile = [one for one in STRINGS if one.strip() and "\0" not in one and not one.startswith("dream:")]
    hostile = [one for one in hostile if one.encode(errors="replace").decode() == one]
    with MemoryBank.open(tmp_path / "chroma", "sql", embedder=LetterEmbedder(), create=True) as bank:
        tables = inspect(bank.state.engine).get_table_names()
        bank.add(hostile, ids=hostile, metadatas=[{"user": one} for one in hostile])
        bank.set_weights(dict.fromkeys(hostile, 0.5))
        bank.feedback(hostile, [1.0] * len(hostile), 1.0)
        bank.delete(hostile[:3])
        for memory_id in hostile:
            with pytest.raises(JournalError, match="no run"):
                bank.undo(memory_id)
            BankRetriever(bank).search(memory_id, search_type="hybrid")
        bank.sweep(ForgettingConfig(iterations=2))
        assert bank.ids() == hostile
        assert [memory.text for memory in bank.get(hostile)] == hostile
        assert inspect(bank.state.engine).get_table_names() == tables
    for user in hostile:
        with MemoryBank.open(tmp_path / "chroma", "sql", where={"user": user}) as one:
            assert one.ids() == [user], "a filter's value is compared, never run"


@pytest.mark.parametrize("where", [{"$or": [{"user": "ada"}, {"user": "bob"}]}, {"user": {"$ne": "ada"}}])
def test_a_filter_of_operators_cannot_write(tmp_path: Path, where: dict[str, object]) -> None:
    with MemoryBank.open(tmp_path / "chroma", "ops", embedder=LetterEmbedder(), create=True) as bank:
        bank.add(["a", "b"], metadatas=[{"user": "ada"}, {"user": "bob"}])
    with (
        MemoryBank.open(tmp_path / "chroma", "ops", where=where, embedder=LetterEmbedder()) as bank,
        pytest.raises(ConfigError, match="read-only for texts"),
    ):
        bank.add(["mine"])


# ---- tenants


SECRETS = [f"Ada hides secret number {i} under the lantern of house {i}." for i in range(6)]
OPEN = [f"Bob has a heron and {i} plums in the orchard." for i in range(6)]


@pytest.fixture
def banks(tmp_path: Path) -> Iterator[tuple[MemoryBank, MemoryBank]]:
    """Ada's bank, with everything that a bank can hold, and Bob's of the same collection."""

    def opened(user: str) -> MemoryBank:
        return MemoryBank.open(
            tmp_path / "chroma", "shared", where={"user": user}, embedder=LetterEmbedder(), create=True
        )

    with opened("ada") as ada, opened("bob") as bob:
        ada.add(SECRETS, ids=[f"ada-{i}" for i in range(6)])
        bob.add(OPEN, ids=[f"bob-{i}" for i in range(6)])
        derived = DerivedMemory(text=f"{SECRETS[0]}\n{SECRETS[1]}", sources=("ada-0", "ada-1"))
        repair = Repair(
            operation="synthesize",
            reason="secret reason",
            memories=(derived,),
            edges=(Edge("ada-2", "ada-3", "bridge"),),
            keys=(RetrievalKey("ada-4", "sentence", "secret key of Ada"),),
        )
        with ada.state.lock("cycle") as lock:
            apply_repair(ada, repair, lock=lock)
        ada.set_weights({"ada-5": 0.25})
        ada.sweep(ForgettingConfig(eta=0.3, noise_ratio=0.5, iterations=2))
        yield ada, bob


def test_a_tenant_sees_nothing_of_another(banks: tuple[MemoryBank, MemoryBank]) -> None:
    ada, bob = banks
    told = [
        json.dumps(gather_report(bob).to_dict(), default=str),
        json.dumps(bob.status().to_dict(), default=str),
        json.dumps([run.to_dict() for run in bob.runs()], default=str),
        json.dumps(bob.explain("bob-0", ForgettingConfig()).to_dict(), default=str),
        repr(list(bob)),
        repr(read_graph(bob)),
        repr(bob.sweep(ForgettingConfig(iterations=2), dry_run=True)),
    ]
    for query in ("secret key of Ada", SECRETS[0]):
        told += [
            repr(BankRetriever(bob).search(query, k=50, search_type=kind))
            for kind in ("similarity", "mmr", "hybrid", "associative")
        ]
        told.append(repr(AssociativeRetriever(bob).search(query, k=50)))
        told += [
            repr(BankRetriever(bob).search(query, k=50, where=where))
            for where in ({"user": "ada"}, {"$or": [{"user": "ada"}, {"user": "bob"}]})
        ]
    assert not [text for text in told if any(word in text for word in ("secret", "Ada", "ada-", "lantern"))]
    assert (bob.status().keys, bob.status().edges, bob.status().derived) == (0, 0, 0)
    assert (ada.status().keys, ada.status().derived) == (1, 1)
    assert bob.weights(ada.ids()).tolist() == [0.0] * len(ada)


def test_a_tenant_moves_nothing_of_another(banks: tuple[MemoryBank, MemoryBank]) -> None:
    ada, bob = banks

    def held() -> tuple[object, ...]:
        keys = [(key.memory_id, key.kind, key.text) for key in ada.state.retrieval_keys()]
        return list(ada), ada.runs(), keys, ada.state.edges()

    before = held()
    theirs = ada.ids()[0]
    calls: list[Callable[[], object]] = [
        *(lambda run=run: bob.undo(run.run_id) for run in ada.runs()),  # type: ignore[misc]
        lambda: bob.add(["mine"], ids=[theirs]),
        lambda: bob.update("bob-0", metadata={"user": "ada"}),
        lambda: bob.add(["for her"], metadatas=[{"user": "ada"}]),
        lambda: bob.explain(theirs),
    ]
    for call in calls:
        with pytest.raises(DreamError):
            call()
    stolen = Repair(operation="prune", reason="mine", weights={theirs: 0.0})
    linked = replace(stolen, weights={}, edges=(Edge("bob-0", theirs, "bridge"),))
    keyed = replace(stolen, weights={}, keys=(RetrievalKey(theirs, "sentence", "found by Bob"),))
    quoted = replace(stolen, weights={}, memories=(DerivedMemory(text=SECRETS[0], sources=(theirs,)),))
    for repair in (stolen, linked, keyed, quoted):
        with bob.state.lock("cycle") as lock, pytest.raises(DreamError):
            apply_repair(bob, repair, lock=lock)
    bob.sweep(ForgettingConfig(eta=0.3, noise_ratio=0.5, iterations=2))
    bob.delete(bob.ids())
    assert held() == before
