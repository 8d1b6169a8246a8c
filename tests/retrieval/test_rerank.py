from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from shared_core.errors import ConfigError, MissingExtraError
from shared_core.retrieval import CrossEncoderReranker, apply_reranker
from shared_core.types import Reranker

WORDS = ["red", "green", "blue", "apple", "pear", "plum", "?", "a", "b"]


def save_cross_encoder(folder, num_labels=1):
    """Save a tiny random BERT cross-encoder whose logits spread far beyond [0, 1]."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir()
    (folder / "words.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    tokenizer = BertTokenizerFast(str(folder / "words.txt"), model_max_length=32)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        num_labels=num_labels,
    )
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    torch.nn.init.normal_(model.classifier.weight, std=20)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield save_cross_encoder(tmp_path_factory.mktemp("rerank") / "model")


@pytest.fixture(scope="module")
def reranker(folder):
    return CrossEncoderReranker(folder, device="cpu", batch_size=2, max_length=16)


TEXTS = ["red apple", "green pear", "blue plum", "a b", "red red red"]


def logits(folder, query, texts):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return [
            model(**tokenizer(query, text, return_tensors="pt", truncation=True, max_length=16)).logits.item()
            for text in texts
        ]


def test_scores_are_the_sigmoid_of_the_logits(folder, reranker):
    assert isinstance(reranker, Reranker)
    raw = np.array(logits(folder, "red apple", TEXTS))
    assert raw.min() < 0 or raw.max() > 1
    scores = reranker.score("red apple", TEXTS)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-raw)), rtol=1e-4)
    assert len(np.unique(scores)) > 1


def test_the_models_own_activation_is_overridden(folder, tmp_path):
    import json
    import shutil

    other = tmp_path / "identity"
    shutil.copytree(folder, other)
    config = json.loads((other / "config.json").read_text())
    config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    # the name of the lowest sentence-transformers
    config["sbert_ce_default_activation_function"] = "torch.nn.modules.linear.Identity"
    (other / "config.json").write_text(json.dumps(config))
    own = CrossEncoderReranker(other, device="cpu", max_length=16)
    unbounded = own._model.predict([("red apple", text) for text in TEXTS])
    assert unbounded.min() < 0 or unbounded.max() > 1
    scores = own.score("red apple", TEXTS)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-unbounded.astype(float))), rtol=1e-4)


def test_hostile_texts(reranker):
    texts = ["", "\x00", "half \ud800 surrogate", "red " * 50_000, "東京", "🎉"]
    scores = reranker.score("\udfff red", texts)
    assert scores.shape == (6,)
    assert np.isfinite(scores).all()
    assert reranker.score("red", []).shape == (0,)


def test_weights_multiply_the_models_scores(reranker):
    weights = np.array([1.0, 0.0, 0.5, 1.0, 0.25])
    weighted = apply_reranker(reranker, "red apple", TEXTS, weights)
    np.testing.assert_allclose(weighted, reranker.score("red apple", TEXTS) * weights, rtol=1e-6)
    assert weighted[1] == 0


def test_models_that_do_not_fit_are_refused(tmp_path, folder):
    three = save_cross_encoder(tmp_path / "three", num_labels=3)
    with pytest.raises(ConfigError, match="num_labels=1"):
        CrossEncoderReranker(three, device="cpu")
    with pytest.raises(ConfigError, match="cannot load cross-encoder"):
        CrossEncoderReranker(tmp_path / "nowhere", device="cpu")
    with pytest.raises(ConfigError, match="batch_size=0"):
        CrossEncoderReranker(folder, batch_size=0)


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"dream-memory\[rerank\]"):
        CrossEncoderReranker("any")


def test_importing_the_package_loads_no_heavy_library():
    code = "import sys, shared_core.retrieval; print({'torch', 'sentence_transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


class Fixed:
    def __init__(self, scores):
        self.scores = scores

    def score(self, query, texts):
        return self.scores


@pytest.mark.parametrize(
    ("scores", "weights", "message"),
    [
        ([0.5], [1, 1], r"scores of Fixed have shape \(1,\); 2 candidates"),
        ([[0.5], [0.5]], [1, 1], "scores of Fixed have shape"),
        ([0.5, np.nan], [1, 1], "number 1 is nan"),
        ([-3.0, 0.5], [1, 1], r"number 0 is -3\.0"),
        ([0.5, 7.2], [1, 1], r"number 1 is 7\.2"),
        ([0.5, 0.5], [1], "weights have shape"),
        ([0.5, 0.5], [1, 1.5], r"weights must lie in \[0, 1\]"),
        ([0.5, 0.5], [1, np.nan], "weights must lie"),
    ],
)
def test_scores_and_weights_outside_the_contract_are_refused(scores, weights, message):
    with pytest.raises(ConfigError, match=message):
        apply_reranker(Fixed(scores), "q", ["x", "y"], weights)


def test_plain_lists_and_no_candidates():
    assert apply_reranker(Fixed([1, 0.5]), "q", ["x", "y"], [0.5, 1]).tolist() == [0.5, 0.5]
    assert apply_reranker(Fixed([]), "q", [], []).shape == (0,)
