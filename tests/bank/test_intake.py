"""Bad input is refused whole, with a message that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank
from shared_core.errors import ConfigError, DimensionMismatchError, InvalidMemoryError, MemoryNotFoundError
from tests.conftest import OpenBank, fill, unit_rows

GOOD = np.eye(4, dtype=np.float32)[:2]


@pytest.fixture
def bank(open_bank: OpenBank) -> MemoryBank:
    return open_bank(":memory:")


def bad(message: str, **options: Any) -> Any:
    return pytest.param(options, message, id=message[:40])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        bad("NaN or infinity", embeddings=[[np.nan, 0, 0, 0], [1, 0, 0, 0]]),
        bad("NaN or infinity", embeddings=[[1e300, 0, 0, 0], [1, 0, 0, 0]]),
        bad("NaN or infinity", embeddings=[[np.inf, 0, 0, 0], [1, 0, 0, 0]]),
        bad("dimension 3 do not fit collection .* of dimension 4", embeddings=np.eye(3)[:2]),
        bad("shape .2, 0. do not fit 2 texts", embeddings=np.empty((2, 0))),
        bad("shape .1, 4. do not fit 2 texts", embeddings=GOOD[:1]),
        bad("shape .4,. do not fit 2 texts", embeddings=GOOD[0]),
        bad("not a matrix of numbers", embeddings=[[1, 2], [1]]),
        bad("not a matrix of numbers", embeddings=[["a", "b"], ["c", "d"]]),
        bad("not a matrix of numbers", embeddings=[[10**400] * 4] * 2),
        bad(
            "embedding in row 1 has norm 2e.30, expected one from 2e-15 to 5e.14",
            embeddings=[[1.0] * 4, [1e30] * 4],
        ),
        bad("embedding in row 0 has norm 2e-30", embeddings=[[1e-30] * 4, [1.0] * 4]),
        bad("id 'n0' is given twice", ids=["n0", "n0"]),
        bad("id '' is not a non-empty string", ids=["n0", ""]),
        bad("id 7 is not a non-empty string", ids=["n0", 7]),
        bad("without null bytes", ids=["n0", "a\0b"]),
        bad("id is not valid Unicode", ids=["n0", "a\ud800"]),
        bad("ids that exist already: 1, such as 'm0': use update", ids=["n0", "m0"]),
        bad("2 texts, 1 ids, 2 metadatas", ids=["n0"]),
        bad("ids='ab' must be a list, not one str", ids="ab"),
        bad("texts='hello' must be a list, not one str", texts="hello"),
        bad("texts=None must be a list, not one NoneType", texts=None),
        bad("the text of 'n1' is empty or not a string", texts=["a", ""]),
        bad("the text of 'n1' is empty or not a string", texts=["a", " \n"]),
        bad("the text of 'n1' is empty or not a string", texts=["a", None]),
        bad("the text of 'n1' is not valid Unicode: surrogates not allowed at 1", texts=["a", "b\udc00"]),
        bad("2 texts, 2 ids, 1 metadatas", metadatas=[{}]),
        bad("2 texts, 2 ids, 0 metadatas", metadatas=[]),
        bad("metadatas=.* must be a list, not one dict", metadatas={"a": 1}),
        bad("metadata 'ab' is a str: give a mapping", metadatas=[{}, "ab"]),
        bad("metadata 'k' is nan: Chroma would erase the key", metadatas=[{}, {"k": float("nan")}]),
        bad("metadata 'k' has a dict", metadatas=[{}, {"k": {}}]),
        bad("metadata 'k' has a NoneType", metadatas=[{}, {"k": None}]),
        bad("metadata 'k' has a float64", metadatas=[{}, {"k": np.float64(1)}]),
        bad("metadata 'k' has a int64", metadatas=[{}, {"k": np.int64(1)}]),
        bad("metadata 'k' is an empty or mixed list", metadatas=[{}, {"k": []}]),
        bad("metadata 'k' is an empty or mixed list", metadatas=[{}, {"k": [1, "a"]}]),
        bad("metadata 'k' is 9223372036854775808: Chroma would round", metadatas=[{}, {"k": 2**63}]),
        bad("metadata 'k' is not valid Unicode", metadatas=[{}, {"k": ["\ud800"]}]),
        bad("metadata key '' must be", metadatas=[{}, {"": 1}]),
        bad("metadata key 'chroma:document' must be", metadatas=[{}, {"chroma:document": "a"}]),
        bad("metadata key '\\$k' must be", metadatas=[{}, {"$k": "a"}]),
        bad("values need a value_key: open the bank with", values=["x", "y"]),
    ],
)
def test_refused_whole(bank: MemoryBank, options: dict[str, Any], message: str) -> None:
    bank.add(["a memory"], ids=["m0"], embeddings=GOOD[:1])
    before = bank.content.page(0, 10), bank.runs(), bank.state.version()
    given = {"texts": ["a", "b"], "ids": ["n0", "n1"], "embeddings": GOOD, **options}
    with pytest.raises((InvalidMemoryError, ConfigError, DimensionMismatchError), match=message):
        bank.add(given.pop("texts"), **given)
    assert (bank.content.page(0, 10), bank.runs(), bank.state.version()) == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bank: bank.update("m0", ""), "text of 'm0' is empty"),
        (lambda bank: bank.update("m0", "x"), "no embedder: open it with embedder="),
        (lambda bank: bank.update("m0", "x", embedding=np.eye(16)[:2]), "shape .1, 2, 16. do not fit"),
        (lambda bank: bank.update("m0", "x", embedding=np.ones(3)), "dimension 3 do not fit"),
        (lambda bank: bank.update("m0", "x", embedding=np.full(16, 1e300)), "NaN or infinity"),
        (lambda bank: bank.update("m0", "x", embedding=np.full(16, 1e30)), "row 0 has norm 4e.30"),
        (lambda bank: bank.update("m0", metadata={"k": float("inf")}), "'k' is inf"),
        (lambda bank: bank.update("m0", metadata="x"), "metadata 'x' is a str: give a mapping"),
        (lambda bank: bank.update("zz", "x"), "1 of 1 ids are not in bank"),
        (lambda bank: bank.set_weights({"m0": 0.5, "m1": 1.5}), "weight 1.5 of 'm1' is outside"),
        (lambda bank: bank.set_weights({"m0": 0.5, "m1": float("nan")}), "weight nan of 'm1'"),
        (lambda bank: bank.set_weights({"m0": 0.5, "m1": "0.5"}), "weight '0.5' of 'm1'"),
        (lambda bank: bank.set_weights({"m0": 0.5, "zz": 0.5}), "such as 'zz'; nothing was changed"),
        (lambda bank: bank.delete("m0"), "must be a list, not one str"),
        (lambda bank: bank.delete(["m0", "zz"]), "such as 'zz'; nothing was changed"),
        (lambda bank: bank.restore("m0"), "must be a list, not one str"),
        (lambda bank: bank.get("m0"), "must be a list, not one str"),
        (lambda bank: bank.feedback(["m0"], [1.0], 2.0), "success=2.0 is outside"),
        (lambda bank: bank.feedback(["m0"], [1.0], "yes"), "success='yes' is outside"),
        (lambda bank: bank.feedback(["m0"], [], 1.0), "0 scores for 1 ids"),
        (lambda bank: bank.feedback(["m0"], ["x"], 1.0), "scores are not numbers"),
        (lambda bank: bank.feedback(["m0"], [10**400], 1.0), "scores are not numbers"),
        (lambda bank: bank.feedback(["m0"], None, 1.0), "scores=None must be a list"),
        (lambda bank: bank.feedback(["m0", "m0"], [1, 1], 1.0), "each id once"),
        (lambda bank: bank.feedback(["m0"], [float("nan")], 1.0), "finite"),
        (lambda bank: bank.page(-1), "offset=-1 must be a whole number from 0"),
        (lambda bank: bank.page(0, 0), "limit=0 must be a whole number from 1"),
        (lambda bank: bank.page("0"), "offset='0' must be a whole number"),
        (lambda bank: bank.page(2**32), "offset=4294967296 must be a whole number"),
        (lambda bank: bank.runs(float("inf")), "limit=inf must be a whole number"),
        (lambda bank: bank.get([bytearray()]), "is a bytearray: ids are strings"),
        (lambda bank: bank.weights([5]), "id 5 is a int: ids are strings"),
        (lambda bank: bank.explain({}), "id {} is a dict: ids are strings"),
        (lambda bank: bank.get(np.array(1.0)), "must be a list, not one ndarray"),
        (lambda bank: bank.sweep(np.array([])), "a sweep takes a ForgettingConfig, not ndarray"),
        (lambda bank: bank.explain("m0", []), "explain takes a ForgettingConfig, not list"),
        (lambda bank: bank.feedback(["m0"], [1.0], 1.0, config=5), "takes a ConsolidationConfig, not int"),
        (lambda bank: bank.set_weights("m0"), "weights='m0' is no mapping"),
    ],
)
def test_other_calls_refuse_whole(
    bank: MemoryBank, rng: np.random.Generator, call: Callable[[MemoryBank], Any], message: str
) -> None:
    fill(bank, rng, rows=3)
    before = bank.content.page(0, 10), bank.runs(), bank.weights(bank.ids()).tolist()
    with pytest.raises(
        (InvalidMemoryError, ConfigError, MemoryNotFoundError, DimensionMismatchError), match=message
    ):
        call(bank)
    assert (bank.content.page(0, 10), bank.runs(), bank.weights(bank.ids()).tolist()) == before


@pytest.mark.parametrize("where", ["user", 7, [("user", "ada")]])
def test_a_filter_that_is_no_mapping_is_refused(bank: MemoryBank, open_bank: OpenBank, where: Any) -> None:
    with pytest.raises(ConfigError, match="give a filter such as"):
        open_bank(":memory:", where=where)
    with pytest.raises(ConfigError, match="give a filter such as"):
        MemoryBank.from_collection(bank.content.collection, where=where)


@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_what_is_taken_a_sweep_can_use(open_bank: OpenBank, space: str) -> None:
    bank = open_bank(":memory:", space=space)
    lengths = (1e-14, 1.0, 1e14, 0.0)
    bank.add([f"t{i}" for i in range(4)], embeddings=[[length] * 8 for length in lengths])
    assert np.all(np.isfinite(bank.content.embeddings()[1]))
    assert (bank.sweep(ForgettingConfig()).memories, bank.sweep(ForgettingConfig()).skipped) == (3, 1)


def test_no_state_for_ids_with_null_bytes(
    open_bank: OpenBank, state_url: str, rng: np.random.Generator
) -> None:
    bank = open_bank(":memory:", state_url=state_url)
    fill(bank, rng, rows=20)
    odd = "m0\0"
    bank.content.collection.add(ids=[odd], embeddings=unit_rows(rng, 1, 16), documents=["theirs"])
    bank.set_weights({"m0": 0.5})
    calls: list[Callable[[], Any]] = [
        lambda: bank.set_weights({"m1": 0.5, odd: 0.5}),
        lambda: bank.feedback([odd], [1.0], 1.0),
        lambda: bank.delete(["m1", odd]),
        lambda: bank.restore([odd]),
    ]
    for call in calls:
        with pytest.raises(InvalidMemoryError, match=r"'m0\\x00' holds a null byte"):
            call()
    assert (bank.get([odd])[0].state.weight, bank.weights([odd, "m0", "m1"]).tolist()) == (1.0, [1, 0.5, 1])
    report = bank.sweep(ForgettingConfig())
    assert (report.memories, report.skipped) == (20, 1)
    bank.state.record_access([odd, "m0"])
    bank.state.flush()
    assert [m.state.retrievals for m in bank.get([odd, "m0"])] == [0, 1]


def test_unusual_texts_come_back_as_they_were(bank: MemoryBank, rng: np.random.Generator) -> None:
    texts = ["x" * 1_000_000, "👩‍👩‍👧 🤖", "שלום עולם", "a\0b", "line\nline\t", "e\u0301"]
    ids = bank.add((t for t in texts), ids=(f"id {i} é" for i in range(6)), embeddings=unit_rows(rng, 6, 4))
    assert [memory.text for memory in bank.get(i for i in ids)] == texts


def test_more_than_one_batch(
    open_bank: OpenBank, rng: np.random.Generator, location: str, tmp_path: Path
) -> None:
    bank = open_bank(location, state_url=f"sqlite:///{tmp_path / 's.sqlite3'}")
    done: list[tuple[str, int, int]] = []
    vectors = unit_rows(rng, 6_000, 8)
    ids = bank.add(
        [f"t{i}" for i in range(6_000)], embeddings=vectors, progress=lambda *seen: done.append(seen)
    )
    assert bank.ids() == ids
    assert done[-1] == ("store", 6_000, 6_000)
    assert bank.sweep(ForgettingConfig()).memories == 6_000
    assert len(bank.page(0, 40_000)) == 6_000


@pytest.mark.slow
def test_wide_embeddings_fit_a_server_request(
    open_bank: OpenBank, chroma_server: str, tmp_path: Path
) -> None:
    bank = open_bank(chroma_server, state_url=f"sqlite:///{tmp_path}/s.sqlite3")
    bank.add(["text"] * 5_400, embeddings=np.random.default_rng(0).random((5_400, 1_536), np.float32))
    assert len(bank) == 5_400


@pytest.mark.slow
def test_long_texts_fit_a_server_request(open_bank: OpenBank, chroma_server: str, tmp_path: Path) -> None:
    bank = open_bank(chroma_server, state_url=f"sqlite:///{tmp_path}/s.sqlite3")
    bank.add(["t" * 1_000_000] * 45, embeddings=np.ones((45, 2)))
    assert len(bank) == 45


def test_the_embedder_is_checked_too(open_bank: OpenBank) -> None:
    class Short:
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[1.0, 0.0]] * (len(texts) - 1)

        def embed_query(self, text: str) -> list[float]:
            return [1.0, 0.0]

    with pytest.raises(InvalidMemoryError, match="do not fit 2 texts"):
        open_bank(embedder=Short()).add(["a", "b"])


def test_each_distinct_text_is_embedded_once(open_bank: OpenBank) -> None:
    class Lengths:
        def __init__(self, rows: int | None = None) -> None:
            self.asked: list[str] = []
            self.rows = rows

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            self.asked += texts
            return [[float(len(text)), 1.0] for text in texts][: self.rows]

        def embed_query(self, text: str) -> list[float]:
            return [float(len(text)), 1.0]

    embedder = Lengths()
    bank = open_bank(embedder=embedder)
    bank.add(["bb", "a", "bb", "ccc", "a"], ids=list("12345"))
    assert embedder.asked == ["bb", "a", "ccc"]
    found = bank.content.get_embeddings(list("12345"))
    slope = [float(found[key][0] / found[key][1]) for key in "12345"]
    assert slope == pytest.approx([2, 1, 2, 3, 1])
    with pytest.raises(InvalidMemoryError, match="do not fit 2 texts"):
        open_bank(embedder=Lengths(rows=1)).add(["x", "x", "yy"])
