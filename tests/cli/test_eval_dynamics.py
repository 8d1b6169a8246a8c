"""``dream eval law``, ``stream`` and ``figures`` on the bundled memory."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from shared_core import SentenceTransformerEmbedder
from shared_core.cli.main import main
from shared_core.evaluation import CachedEmbedder


@pytest.fixture
def dream(embedder: SentenceTransformerEmbedder, monkeypatch: pytest.MonkeyPatch) -> Any:
    # the same real model, loaded once
    monkeypatch.setattr("shared_core.cli.options.open_embedder", lambda _name: CachedEmbedder(embedder))

    def run(*arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main(["eval", *arguments])
        return int(end.value.code or 0), out.getvalue(), err.getvalue()

    return run


def test_law(dream: Any) -> None:
    code, out, err = dream("law", "--json")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert {row["case"] for row in rows} == {"office-assistant", "clean/office-assistant"}
    assert {row["preset"] for row in rows} == {"paper", "hardened"}


def test_stream(dream: Any) -> None:
    code, out, err = dream("stream", "--tasks", "4", "--sweep-every", "4", "--json")
    assert code == 0, err
    assert [row["moment"] for row in json.loads(out)["rows"]] == ["start", "tasks", "sweep"]
    code, _, err = dream("stream", "--attacker", "bribe")
    assert (code, "attacker='bribe'" in err) == (2, True)


def test_figures(dream: Any, tmp_path: Path) -> None:
    code, out, err = dream("figures", "-o", str(tmp_path / "new"), "--json")
    assert code == 0, err
    files = json.loads(out)["files"]
    assert [Path(file).name for file in files] == [
        "weights-office-assistant.svg",
        "terms-office-assistant.svg",
    ]
    assert all(Path(file).stat().st_size < 100_000 for file in files)
    (tmp_path / "file").touch()
    code, _, err = dream("figures", "-o", str(tmp_path / "file"))
    assert (code, "is a file: name a directory" in err) == (2, True)
