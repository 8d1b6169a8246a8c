"""``dream doctor``: what is installed and where the bank is wrong, with an exit code a script can use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.cli import setup_checks
from shared_core.cli.setup_checks import Requirement
from tests.bank.test_checkup import digests
from tests.cli.test_cli import dream
from tests.conftest import fill

NAME = "memories"


@pytest.fixture
def place(tmp_path: Path, rng: np.random.Generator) -> Path:
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True) as bank:
        fill(bank, rng, rows=12)
    return tmp_path / "chroma"


def test_in_order_is_exit_0_and_changes_nothing(place: Path) -> None:
    before = digests(place)
    done = dream("doctor", place, "-c", NAME)
    assert done.returncode == 0, done.stdout
    assert " 0 failed" in done.stdout.splitlines()[-1]
    assert "ok    chroma" not in done.stdout
    assert "ok    chroma: " in dream("doctor", place, "-c", NAME, "--all").stdout
    assert digests(place) == before


def test_one_json_object(place: Path) -> None:
    done = dream("doctor", place, "-c", NAME, "--embedder", "minilm", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert told["ok"] is False
    assert sum(told["counts"].values()) == len(told["checks"])
    (failed,) = (check for check in told["checks"] if check["status"] == "fail")
    assert failed["name"] == "dimension"
    assert all(check["todo"] for check in told["checks"] if check["status"] in {"warn", "fail"})


def test_a_failed_check_is_exit_1_and_bad_input_exit_2(place: Path, tmp_path: Path) -> None:
    missing = dream("doctor", tmp_path / "nowhere", "-c", NAME)
    assert missing.returncode == 1
    assert "chroma.sqlite3" in missing.stdout
    assert not (tmp_path / "nowhere").exists()
    assert dream("doctor", place, "-c", "other").returncode == 1
    alone = dream("doctor", "-c", NAME)
    assert alone.returncode == 2
    assert "belong to a PATH" in alone.stderr
    assert dream("doctor").returncode == 0


@pytest.mark.parametrize("embedder", ["wordllama", "nonsense"])
def test_deep_loads_the_embedder(place: Path, embedder: str) -> None:
    pytest.importorskip("wordllama")
    told = json.loads(dream("doctor", place, "-c", NAME, "--embedder", embedder, "--deep", "--json").stdout)
    by_name = {check["name"]: check for check in told["checks"]}
    expected = {"wordllama": "ok", "nonsense": "fail"}[embedder]
    assert by_name["embedder"]["status"] == expected
    assert ("256" in by_name["embedder"]["found"]) == (embedder == "wordllama")
    assert by_name["state integrity"]["status"] == "ok"


def test_the_dimension_of_a_model_that_is_a_directory(tmp_path: Path, place: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"hidden_size": 16}')
    done = dream("doctor", place, "-c", NAME, "--embedder", tmp_path / "model", "--all")
    assert "collection and embedder have 16" in done.stdout


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom shared_core.cli.setup_checks import setup_checks\nsetup_checks()\n"
        "print([m for m in ('torch', 'chromadb', 'transformers', 'langchain_core') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("numpy>=1.26", Requirement(name="numpy", extras=(), least="1.26", extra=None)),
        (
            'psycopg[binary]>=3.1; extra == "postgres"',
            Requirement(name="psycopg", extras=("binary",), least="3.1", extra="postgres"),
        ),
        (
            "dream-memory[langchain,embed] ; extra == 'all'",
            Requirement(name="dream-memory", extras=("langchain", "embed"), least=None, extra="all"),
        ),
        (
            "x>=1,<2; python_version < '4' and extra == 'y'",
            Requirement(name="x", extras=(), least="1", extra="y"),
        ),
        ("not a requirement at all", None),
    ],
)
def test_requirements_are_read(line: str, expected: Requirement | None) -> None:
    assert setup_checks.parsed(line) == expected


@pytest.mark.parametrize(
    ("name", "least", "expected"),
    [
        ("numpy", "1.26", None),
        ("numpy", "999.0", "is older than 999.0"),
        ("no-such-package-of-ours", "1", "is not installed"),
        ("numpy", None, None),
    ],
)
def test_a_fault_of_a_package(name: str, least: str | None, expected: str | None) -> None:
    found = setup_checks.fault(Requirement(name=name, extras=(), least=least, extra=None))
    assert (found is None) == (expected is None)
    assert expected is None or expected in str(found)
