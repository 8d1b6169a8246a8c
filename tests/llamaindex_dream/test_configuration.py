"""A postprocessor's configuration travels as plain JSON, and its open bank does not."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.bridge.pydantic import ValidationError

from llamaindex_dream import CoreEmbedding, DreamPostprocessor
from shared_core import MemoryBank, SentenceTransformerEmbedder
from shared_core.errors import BankNotFoundError, ConfigError
from tests.llamaindex_dream.conftest import QUESTION, ids


def test_options_are_checked(weighted: MemoryBank) -> None:
    for options, message in [
        ({"top_n": 0}, "top_n"),
        ({"topn": 2}, "topn"),
        ({"scoring": "best"}, "scoring"),
        ({"forgotten": "delete"}, "forgotten"),
        ({"rrf_weights": (0.0, 0.0)}, "rrf_weights"),
        ({"rrf_k": 0.0}, "rrf_k"),
        ({"min_weight": 1.5}, "min_weight"),
    ]:
        with pytest.raises(ConfigError, match=message):
            DreamPostprocessor(weighted, **options)
    with pytest.raises(ConfigError, match="MemoryBank, not Collection"):
        DreamPostprocessor(weighted.content.collection)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs a MemoryBank"):
        DreamPostprocessor()
    with pytest.raises(ConfigError, match="embed_model is a str"):
        DreamPostprocessor(weighted, embed_model="minilm")  # type: ignore[arg-type]
    assert DreamPostprocessor.class_name() == "DreamPostprocessor"
    assert DreamPostprocessor(weighted).bank is weighted


def test_options_may_be_changed_later(embedding_bank: MemoryBank, index: Any) -> None:
    nodes = index.as_retriever(similarity_top_k=5).retrieve(QUESTION)
    embedding_bank.set_weights({"n0": 0.5})
    step = DreamPostprocessor(embedding_bank)
    assert "n0" in ids(step.postprocess_nodes(nodes, query_str=QUESTION))
    step.min_weight = 0.6
    step.top_n = 2
    found = ids(step.postprocess_nodes(nodes, query_str=QUESTION))
    assert "n0" not in found
    assert len(found) == 2
    with pytest.raises(ValidationError, match="top_n"):
        step.top_n = 0


def test_a_round_trip_by_location(
    index: Any, tmp_path: Path, name: str, embedder: SentenceTransformerEmbedder
) -> None:
    with MemoryBank.open(tmp_path / "chroma", name, embedder=embedder, value_key="answer") as bank:
        bank.set_weights({"n0": 0.0})
        step = DreamPostprocessor(bank, top_n=3, hybrid=True, rrf_weights=(2.0, 1.0), min_weight=0.2)
        written = json.loads(json.dumps(step.to_dict()))
        nodes = index.as_retriever(similarity_top_k=5).retrieve(QUESTION)
        expected = ids(step.postprocess_nodes(nodes, query_str=QUESTION))
    assert written["class_name"] == "DreamPostprocessor"
    assert written["location"]["collection"] == name
    assert not {"bank", "embed_model", "callback_manager"} & written.keys()
    again = DreamPostprocessor.from_dict(written, embed_model=CoreEmbedding(embedder))
    assert again.to_dict() == step.to_dict()
    assert ids(again.postprocess_nodes(nodes, query_str=QUESTION)) == expected
    assert again.bank.embedder is embedder, "the bank that it opens can sweep, too"
    assert again.bank.value_key == "answer"
    again.bank.close()
    written["location"]["path"] = str(tmp_path / "gone")
    with pytest.raises(BankNotFoundError):
        DreamPostprocessor.from_dict(written)


def test_a_tenant_stays_the_tenant(index: Any, tmp_path: Path, name: str) -> None:
    with MemoryBank.open(tmp_path / "chroma", name, where={"floor": 1}) as bank:
        written = DreamPostprocessor(bank).to_json()
    again = DreamPostprocessor.from_json(written)
    assert again.bank.content.where == {"floor": 1}
    again.bank.close()


def test_a_bank_without_a_place_is_given_again(
    index: Any, tmp_path: Path, name: str, weighted: MemoryBank
) -> None:
    elsewhere = f"sqlite:///{tmp_path / 'other.sqlite3'}"
    with MemoryBank.open(tmp_path / "chroma", name, state_url=elsewhere) as bank:
        written = DreamPostprocessor(bank, top_n=2).to_dict()
    assert written["location"] is None
    assert elsewhere not in json.dumps(written)
    with pytest.raises(ConfigError, match="needs a MemoryBank"):
        DreamPostprocessor.from_dict(written)
    again = DreamPostprocessor.from_dict(written, bank=weighted)
    assert (again.top_n, again.bank) == (2, weighted)


def test_handles_are_not_copied_silently(weighted: MemoryBank) -> None:
    step = DreamPostprocessor(weighted, top_n=2)
    for act in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="open bank"):
            act(step)
    shallow = copy.copy(step)
    assert shallow.bank is weighted
    assert shallow.top_n == 2
