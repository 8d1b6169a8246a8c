"""Figures are drawn from real measurements, and the same numbers give the same file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shared_core import SentenceTransformerEmbedder
from shared_core.evaluation import CachedEmbedder, bundled_case
from shared_core.reporting import (
    CaseWeights,
    TermScores,
    case_weights,
    draw_terms,
    draw_weights,
    save_svg,
    term_scores,
)

CASE = bundled_case()


@pytest.fixture(scope="module")
def cached(embedder: SentenceTransformerEmbedder) -> CachedEmbedder:
    return CachedEmbedder(embedder)


def test_the_same_numbers_give_the_same_file(tmp_path: Path) -> None:
    poison = np.arange(20) < 4
    weights = CaseWeights("paper", np.linspace(1, 0, 11)[:, None] * np.ones(20), poison)
    terms = TermScores({"sim": np.linspace(0, 1, 20), "R": np.linspace(1, 2, 20)}, poison)
    for name in ("first", "second"):
        save_svg(draw_weights([weights], "<title> & more"), tmp_path / name / "weights.svg")
        save_svg(draw_terms(terms, "terms"), tmp_path / name / "terms.svg")
    for file in ("weights.svg", "terms.svg"):
        text = (tmp_path / "first" / file).read_text(encoding="utf-8")
        assert text == (tmp_path / "second" / file).read_text(encoding="utf-8")
        assert "<dc:date>" not in text
    assert "&lt;title&gt; &amp; more" in (tmp_path / "first" / "weights.svg").read_text(encoding="utf-8")


def test_what_is_drawn_was_measured(cached: CachedEmbedder) -> None:
    paper, hardened = case_weights(CASE, cached)
    assert paper.weights.shape == hardened.weights.shape == (11, 204)
    assert hardened.weights[-1][hardened.poison].max() < 0.1
    assert set(hardened.weights[:, ~hardened.poison].ravel()) == {1.0}
    assert (paper.weights[-1][~paper.poison] < 0.5).any()
    terms = term_scores(CASE, cached)
    assert list(terms.terms) == ["sim", "p_ret", "E_coh", "R"]
    total = terms.terms["sim"] + terms.terms["p_ret"] + terms.terms["E_coh"]
    assert np.allclose(terms.terms["R"], total)
    assert terms.poison.sum() == 4


def test_without_matplotlib_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import numpy as np\n"
        "from shared_core.errors import MissingExtraError\n"
        "from shared_core.reporting import TermScores, draw_terms\n"
        "try:\n    draw_terms(TermScores({'a': np.ones(2)}, np.zeros(2, bool)), 't')\n"
        "except MissingExtraError as error:\n    print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'dream-memory[report]'" in found.stdout
