"""The registry: what a defence changes, and that nothing of it stays."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.errors import ConfigError, MissingExtraError
from shared_core.evaluation import DEFENCES, AttackCase, CaseMemory, DefenceOptions, evaluate_case
from shared_core.evaluation.defences import DEFAULT_DEFENCES, Drops, _language_model, defend, dropping

VECTORS = np.array([[1, 0, 0], [1, 0.1, 0], [1, 0, 0.1], [0, 1, 0], [0, 0, 1]], float)


@pytest.fixture
def filled(open_bank: Callable[..., MemoryBank]) -> MemoryBank:
    bank = open_bank()
    bank.add([f"text {i}" for i in range(5)], ids=list("abcde"), embeddings=VECTORS)
    return bank


def test_the_names_of_the_command_line() -> None:
    assert {"none", "paper", "hardened", "amemguard", "ppl"} <= set(DEFENCES)
    assert set(DEFAULT_DEFENCES) <= set(DEFENCES)


def test_amemguard_drops_what_lies_outside(filled: MemoryBank) -> None:
    outcome = defend("amemguard", filled)
    assert dict(zip(outcome.ids, outcome.score, strict=True)) == {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1}
    assert filled.weights(list("abcde")).tolist() == [1, 1, 1, 0, 0]
    assert outcome.run_id is not None
    filled.undo(outcome.run_id)
    assert filled.weights(list("abcde")).tolist() == [1] * 5


def test_a_baseline_that_drops_nothing_leaves_no_run(filled: MemoryBank) -> None:
    keep = dropping(lambda bank, _: Drops(ids=bank.ids(), drops=np.zeros(5, bool), score=np.arange(5.0)))
    runs = filled.runs()
    outcome = keep(filled, DefenceOptions())
    assert outcome.run_id is None
    assert outcome.score.tolist() == [0, 1, 2, 3, 4]
    assert filled.runs() == runs


def test_an_unknown_defence_is_refused(filled: MemoryBank) -> None:
    with pytest.raises(
        ConfigError, match="'magic' is not one of none, paper, hardened, hardened-flag, amemguard, ppl"
    ):
        defend("magic", filled)


def test_ppl_without_its_packages_names_the_extra(
    filled: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    _language_model.cache_clear()
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(MissingExtraError, match=r"\[lm\]"):
        defend("ppl", filled)


class Fixed:
    """Embeds by table; queries lie beside the two outliers."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [VECTORS[int(text[-1])].tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def test_rows_of_every_defence_start_from_the_same_bank() -> None:
    case = AttackCase(
        name="fixed",
        memories=[CaseMemory(id=f"m{i}", key=f"text {i}", poison=i in {3, 4}) for i in range(5)],
        triggered_queries=["query 3", "query 4"],
        benign_queries=["query 0"],
    )
    rows = evaluate_case(case, ["amemguard", "none", "amemguard"], Fixed(), embedder_name="fixed")
    for row in (rows[0], rows[2]):
        assert (row.asr_r_undefended, row.asr_r, row.auroc) == (1, 0, 1)
        assert (row.poison_forget, row.false_forget, row.benign_retention) == (1, 0, 1)
    assert (rows[1].asr_r, rows[1].poison_forget) == (1, 0)
