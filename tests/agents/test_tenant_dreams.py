"""A dream of a collection that several share: no repair joins two owners, and each finds its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import chromadb
import numpy as np
import pytest
from langchain_chroma import Chroma
from langgraph.graph import START, StateGraph
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from langchain_dream import DreamRetriever
from llamaindex_dream import DreamChromaRetriever
from shared_core import AssociativeRetriever, BankRetriever, MemoryBank, RetrievalConfig
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.agents.approved import make_approved, texts_of
from shared_core.agents.associating import associate
from shared_core.agents.tenant_parts import part_of
from shared_core.bank.conversation import ConversationMemory
from shared_core.bank.derived import derived_id, is_derived, sources_of
from shared_core.bank.edges import Edge
from shared_core.bank.graph import read_graph
from shared_core.bank.keys import RetrievalKey
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from shared_core.bank.tenants import inherited, owner_of
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ConfigError, InvalidMemoryError
from shared_core.evaluation import CachedEmbedder
from shared_core.types import Memory
from tests.agents.nut_story import ALLERGY, BAKING, SNACK, pages
from tests.conftest import OpenBank

SESSIONS = {"s1", "s3", "s5", "s8"}
APART = DreamConfig(tenant_keys=("tenant",), probes=24)


class Recalled(TypedDict, total=False):
    tenant: str
    question: str
    found: list[str]


@pytest.fixture(scope="module")
def embedder(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


@pytest.fixture
def bank(open_bank: OpenBank, embedder: CachedEmbedder) -> MemoryBank:
    """Two tenants who tell the same story in sessions of the same names, and two pages that are nobody's."""
    bank = open_bank(embedder=embedder)
    told = [
        replace(page, id=f"{who}/{page.id}", metadata={"tenant": who, "language": "en"})
        for who in ("a", "b")
        for page in pages()
        if page.session in SESSIONS
    ]
    ConversationMemory(bank).add_pages(told)
    bank.add(["Nobody owns the red canoe at the pier.", "The pier is closed."], ids=["n0", "n1"])
    return bank


def derived(bank: MemoryBank) -> list[Memory]:
    return [memory for memory in bank if is_derived(memory.id)]


def tenants(bank: MemoryBank, ids: list[str] | tuple[str, ...]) -> set[object]:
    return {memory.metadata.get("tenant") for memory in bank.get([i for i in ids if not is_derived(i)])}


def apply(bank: MemoryBank, repair: Repair, **options: object) -> str:
    with bank.state.lock("cycle") as lock:
        return apply_repair(bank, repair, lock=lock, **options).run_id  # type: ignore[arg-type]


def merging(*sources: str) -> Repair:
    memory = DerivedMemory(text=f"quotes {len(sources)}", sources=sources, embedding=np.ones(384))
    return Repair(operation="merge", reason="-", memories=(memory,))


def test_without_tenant_keys_a_dream_joins_two_owners(bank: MemoryBank) -> None:
    """What this is for: the same bank, untold."""
    DreamCycle(bank, config=DreamConfig(probes=24)).run()
    assert any(len(tenants(bank, sources_of(memory.metadata))) > 1 for memory in derived(bank))
    assert any(len(tenants(bank, (edge.source, edge.target))) > 1 for edge in bank.state.edges())


def test_no_repair_joins_owners_and_each_owner_sees_its_own(bank: MemoryBank) -> None:
    before = {memory.id: memory.state for memory in bank}
    report = DreamCycle(bank, config=APART).run()
    assert (report.tenants, report.dreamt) == (3, 3)
    assert {one.tenant.get("tenant") for one in report.rounds} == {"a", "b", None}
    made = derived(bank)
    owners = {memory.metadata.get("tenant") for memory in made}
    assert {"a", "b"} <= owners
    for memory in made:
        assert tenants(bank, sources_of(memory.metadata)) == {memory.metadata.get("tenant")}
        assert memory.metadata.get("language") == "en"
    for edge in bank.state.edges():
        ends = [memory.metadata.get("tenant") for memory in bank.get([edge.source, edge.target])]
        assert len(set(ends)) == 1
    for kept in report.repairs:
        assert len(tenants(bank, kept.proposal.targets)) <= 1
    # the scenes of a page quote its own owner's pages: a session of the same name is another one
    scene = {k.memory_id: k.text for k in bank.state.retrieval_keys() if k.kind == "scene4"}
    assert scene["a/s1-2"] == scene["b/s1-2"]
    assert scene["a/s1-2"].count("EpiPen") == 1
    tiers = ConversationMemory(bank).tiers()
    assert {i for i, placed in tiers.items() if placed.tier == "ltsm"} == {memory.id for memory in made}
    journalled = bank.state.run(str(report.run_id))
    assert journalled.config["tenant_keys"] == ["tenant"]
    json.dumps(report.to_dict(), allow_nan=False)
    bank.undo(str(report.run_id))
    assert not read_graph(bank).derived.any()
    assert {memory.id: memory.state for memory in bank if not is_derived(memory.id)} == before


@pytest.mark.parametrize("search_type", ["similarity", "hybrid", "associative"])
def test_a_tenants_filter_finds_its_derived_memories_and_nobody_elses(
    bank: MemoryBank, search_type: str
) -> None:
    DreamCycle(bank, config=APART).run()
    made = {memory.id: memory.metadata.get("tenant") for memory in derived(bank)}
    for who in ("a", "b"):
        if search_type == "associative":
            retriever = AssociativeRetriever(bank)
        else:
            retriever = BankRetriever(bank, RetrievalConfig(search_type=search_type))  # type: ignore[arg-type]
        found = {
            hit.id: hit.metadata["tenant"] for hit in retriever.search(SNACK, k=70, where={"tenant": who})
        }
        assert {i for i in found if is_derived(i)} == {i for i, owner in made.items() if owner == who}
        assert set(found.values()) == {who}


def test_a_dream_of_one_owner_is_that_of_its_own_bank(
    bank: MemoryBank, open_bank: OpenBank, embedder: CachedEmbedder
) -> None:
    alone = open_bank(embedder=embedder, where={"tenant": "a"})
    wanted = DreamCycle(alone, config=replace(APART, tenant_keys=())).run(dry_run=True)
    shared = DreamCycle(bank, config=APART).run(dry_run=True)
    own = {one.proposal.id for one in shared.repairs if tenants(bank, one.proposal.targets) == {"a"}}
    assert {one.proposal.id for one in wanted.repairs if one.proposal.targets} == own
    assert len(own) > 3


def test_a_bank_that_is_opened_with_equalities_gives_them_to_what_it_derives(
    open_bank: OpenBank, bank: MemoryBank, embedder: CachedEmbedder
) -> None:
    alone = open_bank(embedder=embedder, where={"tenant": "b"})
    DreamCycle(alone, config=DreamConfig(probes=24)).run()
    made = derived(alone)
    assert made
    assert {memory.metadata["tenant"] for memory in made} == {"b"}
    assert {memory.id for memory in derived(bank)} == {memory.id for memory in made}
    found = AssociativeRetriever(alone).search(SNACK, k=70)
    assert {hit.id for hit in found if is_derived(hit.id)} == {memory.id for memory in made}


def test_a_bank_with_another_filter_dreams_dry_only(
    open_bank: OpenBank, bank: MemoryBank, embedder: CachedEmbedder
) -> None:
    some = open_bank(embedder=embedder, where={"tenant": {"$in": ["a", "b"]}})
    with pytest.raises(ConfigError, match="read-only for texts: use plain equalities"):
        DreamCycle(some, config=APART).run()
    assert not [run for run in bank.runs() if run.kind != "add"]
    assert DreamCycle(some, config=APART).run(dry_run=True).tenants == 2


def test_a_later_dream_that_is_not_told_takes_the_keys_from_the_journal(bank: MemoryBank) -> None:
    first = DreamCycle(bank, config=replace(APART, rounds=1, groundwork=False)).run()
    bank.undo(str(first.run_id))
    untold = DreamCycle(bank, config=DreamConfig(rounds=1, probes=24)).run()
    assert untold.config["tenant_keys"] == ["tenant"]
    assert untold.tenants == 3
    assert associate(bank).edges == 0
    told = DreamCycle(bank, config=DreamConfig(rounds=1, probes=3, tenant_keys=())).run(dry_run=True)
    assert (told.tenants, told.config["tenant_keys"]) == (1, [])


def test_associations_of_all_pages_stay_with_their_owner(bank: MemoryBank) -> None:
    report = associate(bank, tenant_keys=["tenant"])
    assert report.edges > 30
    assert all(len(tenants(bank, (edge.source, edge.target))) == 1 for edge in bank.state.edges())
    bank.undo(str(report.run_id))
    assert bank.state.edges() == []


def test_a_repair_of_two_owners_is_refused_whole(bank: MemoryBank) -> None:
    both = ("a/" + ALLERGY, "b/" + BAKING)
    ids = bank.ids()
    for repair in (
        merging(*both),
        Repair(operation="link", reason="-", edges=(Edge(*both, "bridge"),)),
        Repair(operation="prune", reason="-", weights=dict.fromkeys(both, 0.2)),
        Repair(operation="extract", reason="-", keys=tuple(RetrievalKey(i, "sentence", "x y") for i in both)),
    ):
        with pytest.raises(InvalidMemoryError, match=r"of 2 owners, such as 'a/.*tenant must be the same"):
            apply(bank, repair, tenant_keys=("tenant",))
    assert bank.ids() == ids
    assert set(bank.weights(ids).tolist()) == {1.0}


def test_who_changes_owner_while_a_dream_is_reviewed_is_left_alone(bank: MemoryBank) -> None:
    report = DreamCycle(bank, config=replace(APART, groundwork=False)).run(dry_run=True)
    kept = next(
        one for one in report.repairs if one.proposal.text and len(one.repair.memories[0].sources) > 1
    )
    source = kept.repair.memories[0].sources[0]
    texts = texts_of(bank, kept.repair)
    bank.update(source, metadata={**bank.get([source])[0].metadata, "tenant": "c"})
    made = make_approved(bank, [(kept, texts)], tenant_keys=("tenant",))
    assert "owners" in made["left"][kept.proposal.id]
    assert derived(bank) == []
    # and who was not told takes the keys from the journal
    assert "owners" in make_approved(bank, [(kept, texts)])["left"][kept.proposal.id]


def test_time_is_shared_and_who_had_none_is_told(bank: MemoryBank) -> None:
    report = DreamCycle(bank, config=replace(APART, seconds=1e-6)).run()
    assert (report.stopped_by, report.tenants, report.dreamt) == ("seconds", 3, 1)
    firsts = [DreamCycle(bank, config=replace(APART, seconds=1e-6)).run().rounds[0] for _ in range(8)]
    assert len({one.tenant.get("tenant") for one in firsts}) > 1


def test_a_derived_memory_takes_what_all_its_sources_have_alike(open_bank: OpenBank) -> None:
    bank = open_bank(value_key="solution", embedder=None)
    alike = {"tenant": "a", "lang": "en", "solution": "x", "_node_content": "{}", "dream_session": "s"}
    rows = [{**alike, "n": 1, "file": "1"}, {**alike, "n": True, "file": "2"}]
    bank.add(["p q", "r s"], ids=["m0", "m1"], metadatas=rows, embeddings=np.eye(2, 384))
    apply(bank, merging("m0", "m1"))
    (made,) = derived(bank)
    assert {key: value for key, value in made.metadata.items() if not key.startswith("dream_")} == {
        "tenant": "a",
        "lang": "en",
    }
    assert "dream_session" not in made.metadata
    raw: chromadb.Collection = bank.content.collection
    assert made.id in raw.get(where={"$and": [{"tenant": "a"}, {"lang": "en"}]})["ids"]


def test_a_derived_memory_belongs_to_no_session_whatever_it_takes_over(open_bank: OpenBank) -> None:
    from shared_core.bank.graph import GraphKeys

    bank = open_bank(embedder=None)
    rows = [{"thread": "t", "who": "Ada"}] * 2
    bank.add(["p q", "r s"], ids=["m0", "m1"], metadatas=rows, embeddings=np.eye(2, 384))
    apply(bank, merging("m0", "m1"))
    graph = read_graph(bank, GraphKeys(session="thread", speaker="who"))
    assert derived(bank)[0].metadata["thread"] == "t"
    assert graph.session.tolist() == [0, 0, -1]
    assert graph.speakers == ["Ada", "Ada", None]


def test_inheritance_tells_types_apart() -> None:
    rows = [{"a": 1, "b": [1, 2], "c": "x", "_d": 1}, {"a": 1.0, "b": [1, 2], "_d": 1}]
    assert inherited(rows) == {"b": [1, 2]}
    assert inherited(rows, ["_d"]) == {"b": [1, 2], "_d": 1}
    assert inherited(rows[:1], value_key="c") == {"a": 1, "b": [1, 2]}
    assert owner_of({"t": True}, ["t", "u"]) != owner_of({"t": 1}, ["t", "u"])


def test_a_part_of_a_graph_has_what_connects_its_rows_only(bank: MemoryBank) -> None:
    apply(bank, merging("a/s1-2", "b/s1-2"))
    apply(bank, Repair(operation="link", reason="-", edges=(Edge("a/s1-2", "a/s5-1", "bridge"),)))
    whole = read_graph(bank, tenant_keys=("tenant",))
    rows = np.array([row for row, owner in enumerate(whole.owners) if owner == ('"a"',)])
    part = part_of(whole, rows)
    assert part.ids == [i for i in whole.ids if i.startswith("a/")]
    assert part.sources == {}
    assert part.explicit == {
        part.row_of["a/s1-2"]: {part.row_of["a/s5-1"]},
        part.row_of["a/s5-1"]: {part.row_of["a/s1-2"]},
    }
    np.testing.assert_array_equal(part.unit, whole.unit[rows])
    assert sorted(len(rows) for rows in part.in_session.values()) == [5, 6, 6, 6]


@pytest.mark.parametrize("keys", ["tenant", [""], ["a", "a"], [1], 5, {}])
def test_what_names_no_fields_is_refused(keys: object) -> None:
    with pytest.raises(ConfigError, match="tenant_keys="):
        DreamConfig(tenant_keys=keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_field_that_no_memory_has_is_refused_before_anything_is_written(
    bank: MemoryBank, dry_run: bool
) -> None:
    runs = bank.runs()
    with pytest.raises(ConfigError, match="no memory has a metadata field 'tenants'"):
        DreamCycle(bank, config=DreamConfig(tenant_keys=("tenant", "tenants"))).run(dry_run=dry_run)
    with pytest.raises(ConfigError, match="no memory has a metadata field 'tenants'"):
        associate(bank, tenant_keys=["tenants"])
    assert bank.runs() == runs


def test_names_are_taken_as_a_list_too() -> None:
    config = DreamConfig(tenant_keys=["tenant", "org"])  # type: ignore[arg-type]
    assert config.tenant_keys == ("tenant", "org")
    assert config.to_dict()["tenant_keys"] == ["tenant", "org"]
    assert derived_id()


def test_a_filter_of_langchain_finds_what_its_tenant_derived(
    bank: MemoryBank, name: str, tmp_path: Path
) -> None:
    DreamCycle(bank, config=APART).run()
    made = derived(bank)
    store = Chroma(name, persist_directory=str(tmp_path / "chroma"), embedding_function=bank.embedder)  # type: ignore[arg-type]
    for options in ({"where": {"tenant": "a"}}, {"search_kwargs": {"filter": {"tenant": "a"}}}):
        retriever = DreamRetriever.from_vectorstore(store, k=60, **options)
        found = {str(document.id) for document in retriever.invoke(SNACK)}
        assert {i for i in found if is_derived(i)} == {m.id for m in made if m.metadata.get("tenant") == "a"}
        assert {i for i in found if not is_derived(i)} <= {i for i in bank.ids() if i.startswith("a/")}


def test_filters_of_llamaindex_find_what_their_tenant_derived(bank: MemoryBank) -> None:
    DreamCycle(bank, config=APART).run()
    made = derived(bank)
    for tenant in ("a", "b"):
        filters = MetadataFilters(filters=[MetadataFilter(key="tenant", value=tenant)])
        retriever = DreamChromaRetriever(bank, similarity_top_k=60, filters=filters)
        found = {node.node.node_id for node in retriever.retrieve(SNACK)}
        wanted = {m.id for m in made if m.metadata.get("tenant") == tenant}
        assert {i for i in found if is_derived(i)} == wanted != set()


def test_a_graph_of_langgraph_answers_a_tenant_with_its_own(
    bank: MemoryBank, name: str, tmp_path: Path
) -> None:
    DreamCycle(bank, config=APART).run()
    store = Chroma(name, persist_directory=str(tmp_path / "chroma"), embedding_function=bank.embedder)  # type: ignore[arg-type]

    def recall(state: dict[str, Any]) -> dict[str, Any]:
        retriever = DreamRetriever.from_vectorstore(store, k=60, where={"tenant": state["tenant"]})
        return {"found": [str(document.id) for document in retriever.invoke(state["question"])]}

    graph = StateGraph(Recalled)
    graph.add_node("recall", recall)
    graph.add_edge(START, "recall")
    answered = graph.compile().invoke({"tenant": "b", "question": SNACK})
    wanted = {m.id for m in derived(bank) if m.metadata.get("tenant") == "b"}
    assert {i for i in answered["found"] if is_derived(i)} == wanted != set()
