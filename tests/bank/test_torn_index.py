"""Chroma was killed while it wrote its index over the old one: that is said, not searched in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.bank.checkup import examine
from shared_core.bank.checkup.index import index_check
from shared_core.errors import DreamError
from shared_core.types import Check
from tests.conftest import fill

NAME = "memories"


@pytest.fixture
def place(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A collection whose index Chroma has written once, and of which it holds more in its log."""
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True) as bank:
        fill(bank, rng, rows=1_100)
        vectors = rng.standard_normal((300, 16))
        bank.add([f"later {i}" for i in range(300)], ids=[f"n{i}" for i in range(300)], embeddings=vectors)
    return tmp_path / "chroma"


def checked(place: Path) -> Check:
    (found,) = (check for check in examine(str(place), NAME).checks if check.name == "index")
    return found


@pytest.mark.parametrize(
    "name", ["length.bin", "data_level0.bin", "link_lists.bin", "header.bin", "index_metadata.pickle"]
)
def test_an_index_that_was_cut_off_is_told(place: Path, name: str) -> None:
    assert checked(place).status == "ok"
    (file,) = place.glob(f"*/{name}")
    # some Chroma versions make files twice as large as they need to be
    file.write_bytes(file.read_bytes()[:40])
    check = checked(place)
    assert check.status == "fail"
    assert "cut off" in check.found


def test_what_chroma_says_then_is_explained(place: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    shutil.copytree(place, torn)
    (file,) = torn.glob("*/index_metadata.pickle")
    file.write_bytes(file.read_bytes()[:99])
    with (
        MemoryBank.open(torn, NAME) as bank,
        pytest.raises(DreamError, match=r"index of collection 'memories' was cut off .*dream doctor"),
    ):
        len(bank)


def test_an_index_that_was_not_written_yet(tmp_path: Path, rng: np.random.Generator) -> None:
    with MemoryBank.open(tmp_path, NAME, create=True) as bank:
        fill(bank, rng, rows=5)
    assert checked(tmp_path).status == "ok"
    assert index_check(tmp_path, "none").status == "ok"
