"""The command line, given whatever: 0, or 2 with one line on stderr; never a traceback, never a change."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import MemoryBank
from tests.cli.test_cli import Done, dream
from tests.cli.test_every_command import ALL, GIVEN
from tests.soak.effort import LetterEmbedder, effort
from tests.soak.hostile import STRINGS, snapshot

VALUES = [*STRINGS, "nan", "inf", "-inf", "1e999", "1_000", "0x10", "1" * 400, "{}", "[]", "{", "--", "-k"]
# what only reads, and ends by itself, is tried on a real bank too
READING = {
    "status": "{place} -c bank",
    "log": "{place} -c bank",
    "explain": "m0 {place} -c bank --preset paper",
    "undo": "{place} -c bank",
    "restore": "{place} -c bank",
    "doctor": "{place}",
    "forget": "{place} -c bank --preset paper --dry-run",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    with MemoryBank.open(folder, "bank", embedder=LetterEmbedder(), create=True) as bank:
        bank.add(["a red boat", "a blue heron", "plums"], ids=["m0", "m1", "m2"])
    return folder


def valued(name: str) -> list[str]:
    """Return a command's options that take a value, as they are written."""
    return [
        parameter.opts[0]
        for parameter in ALL[name].params
        if not getattr(parameter, "is_flag", False) and parameter.opts[0].startswith("-")
    ]


def check(done: Done, name: str) -> None:
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode in ({0, 1, 2} if name == "doctor" else {0, 2}), done
    if done.returncode == 2:
        assert done.stderr.startswith("dream: ")
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert not any(letter in done.stderr for letter in "\x1b\u202e\0")


@effort(60)
@given(data=st.data())
def test_a_bad_value_of_an_option(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    name = data.draw(st.sampled_from([name for name in sorted(GIVEN) if valued(name)]))
    option = data.draw(st.sampled_from(valued(name)))
    value = data.draw(st.sampled_from(VALUES))
    folder = tmp_path_factory.getbasetemp() / "absent"
    words = shlex.split(GIVEN[name].format(missing=folder / "missing", out=folder / "out"))
    check(dream(*name.split(), *words, option, value), name)
    assert not folder.exists()


@effort(40)
@given(data=st.data())
def test_a_bad_argument_to_a_real_bank(place: Path, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(READING)))
    words = shlex.split(READING[name].format(place=place))
    value = data.draw(st.sampled_from(VALUES))
    if name in {"undo", "restore"}:
        words = [value, *words]
    else:
        words = [*words, data.draw(st.sampled_from(valued(name))), value]
    with MemoryBank.open(place, "bank") as bank:
        before = snapshot(bank)
    done = dream(*name.split(), *words)
    check(done, name)
    with MemoryBank.open(place, "bank") as bank:
        if done.returncode == 2:
            assert snapshot(bank) == before
