"""A real EHR agent's memory with the published AgentPoison records, swept by ``dream forget``.

Needs the data directory beside the checkout, which is not part of this project.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder
from shared_core.cli.main import main
from shared_core.evaluation import agentpoison_ehr_cases, auroc, fill_collection, measure_bank, retrieve
from shared_core.evaluation.poison import VALUE_KEY
from tests.conftest import SHARED_DATA

pytestmark = pytest.mark.skipif(
    not (SHARED_DATA / "mextra").is_dir(),
    reason=f"NEEDS REAL DATA: {SHARED_DATA} is absent, so nothing is known about real attacks",
)


def test_forget_on_a_poisoned_ehr_memory(
    tmp_path: Path, embedder: SentenceTransformerEmbedder, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(c for c in agentpoison_ehr_cases(SHARED_DATA) if "mitchell stadiums" in c.name)
    place, name = tmp_path / "chroma", "ehr"
    with MemoryBank.open(place, name, create=True, embedder=embedder, value_key=VALUE_KEY) as bank:
        fill_collection(bank, case)
        before = retrieve(bank, case)
        planned = bank.sweep(ForgettingConfig.preset("paper"), dry_run=True)
    assert len(case.memories) == 504
    assert len(case.poison_ids) == 4

    with pytest.raises(SystemExit) as exited:
        main(["forget", str(place), "--collection", name, "--preset", "paper", "--json"])
    assert exited.value.code == 0
    report = json.loads(capsys.readouterr().out)
    assert report["memories"] == 504
    assert report["lowered"] == planned.lowered

    with MemoryBank.open(place, name, embedder=embedder, value_key=VALUE_KEY) as bank:
        row = measure_bank(
            bank, case, before, retrieve(bank, case), report=planned, defence="paper", embedder="minilm"
        )
        undone = bank.undo(report["run_id"])
        assert np.all(bank.weights(bank.ids()) == 1.0)
        assert retrieve(bank, case) == before
        bank.undo(undone.run_id)
    # what the numbers are stands in docs/results.md; here: that they are measured, and consistent
    truth = np.array([memory_id in case.poison_ids for memory_id in planned.ids])
    assert row.auroc == pytest.approx(auroc(-planned.activation, truth))
    assert 0 < row.auroc < 1
    assert row.asr_r_undefended > 0, "the published attack no longer works undefended"
    assert 0 <= row.benign_retention <= 1
    assert row.false_forget > 0.01, "preset paper is known to weaken a clean bank: update docs/results.md"
