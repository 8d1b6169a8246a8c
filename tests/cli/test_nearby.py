"""A wrong name is answered with what was meant, a wrong filter with the place of the mistake."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.cli import nearby
from tests.cli.test_cli import DREAM, dream, dream_json
from tests.conftest import fill

NAME = "memories"


@pytest.fixture
def place(tmp_path: Path, rng: np.random.Generator) -> Path:
    with MemoryBank.open(tmp_path / "chroma", NAME, create=True) as bank:
        fill(bank, rng, rows=12)
    return tmp_path / "chroma"


def test_names_that_are_alike() -> None:
    known = ["m1", "m10", "m11", "other"]
    assert nearby.like("m1x", known)[0] == "m1"
    assert nearby.like("oth", known) == ["other"]
    assert nearby.like("zzz", known) == []
    assert nearby.like("", known) == []
    many = [f"memory-{number}" for number in range(20_000)]
    assert "memory-19999" in nearby.like("memory-19999x", [*many[:-1][:4_000], "memory-19999"])
    assert len(nearby.like("memory-1", many)) == nearby.OFFERED


def test_collections_paths_runs_and_memories(place: Path, tmp_path: Path) -> None:
    on = (place, "-c", NAME)
    assert "did you mean 'memories'?" in dream("status", place, "-c", "memory").stderr
    assert f"there is one in {place}" in dream("status", tmp_path, "-c", NAME).stderr
    assert f"there is one in {place}" in dream("status", tmp_path / "croma", "-c", NAME).stderr
    assert f"give its directory, {place}" in dream("status", place / "chroma.sqlite3", "-c", NAME).stderr
    run = dream_json("restore", "m3", *on)["run_id"]
    assert f"did you mean '{run}'" in dream("undo", run[:-2], *on).stderr
    assert "did you mean" not in dream("undo", "~~~", *on).stderr
    for verb in ("restore", "explain"):
        refused = dream(verb, "M11", *on)
        assert refused.returncode == 2
        assert "did you mean 'm11'" in refused.stderr


def test_names_of_other_tenants_are_not_offered(tmp_path: Path, rng: np.random.Generator) -> None:
    place = tmp_path / "chroma"
    for user in ("ada", "bob"):
        with MemoryBank.open(place, NAME, create=True, where={"user": user}) as bank:
            bank.add(["text"], ids=[f"{user}-memory"], embeddings=rng.standard_normal((1, 8)))
    ada = ("-c", NAME, "--where", '{"user": "ada"}')
    refused = dream("restore", "bob-memori", place, *ada).stderr
    assert "'bob-memory'" not in refused
    assert "'ada-memory'" in dream("restore", "ada-memori", place, *ada).stderr


@pytest.mark.parametrize(
    ("where", "expected"),
    [('{user: "ada"}', "from character 2 on, at 'user: \"ada\"}'"), ('{"user":', "it breaks off")],
)
def test_the_place_of_a_mistake_in_a_filter(place: Path, where: str, expected: str) -> None:
    refused = dream("status", place, "-c", NAME, "--where", where)
    assert refused.returncode == 2
    assert expected in refused.stderr


def completed(words: str, **environment: str) -> list[str]:
    variables = {"_DREAM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [DREAM], env={**os.environ, **variables, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_completion(place: Path) -> None:
    assert completed("dream st") == ["status"]
    assert completed("dream eval po") == ["poison", "policy"]
    assert completed("dream forget --preset ") == ["hardened", "paper"]
    assert completed("dream cycle --embedder m") == ["minilm"]
    assert completed(f"dream status {place} --collection m") == [NAME]
    assert completed("dream status -c ", DREAM_PATH=str(place)) == [NAME]
    assert completed(f"dream status {place.parent} -c m") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="completion is shown for the shell that asks")
def test_completion_is_shown_for_the_shell_that_asks() -> None:
    asked = ["bash", "-c", f"{shlex.quote(str(DREAM))} --show-completion; exit $?"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert "_DREAM_COMPLETE=complete_bash" in shown


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal is POSIX")
def test_colour_on_a_terminal_only_and_not_with_no_color() -> None:
    command = [str(DREAM), "doctor", "--all"]
    on_terminal = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {
        "TERM": "xterm-256color"
    }
    assert "\x1b[32m" in typed(command, on_terminal)
    assert "\x1b[3" not in typed(command, {**on_terminal, "NO_COLOR": "1"})
    piped = subprocess.run(command, env=on_terminal, capture_output=True, text=True, check=False)
    assert "\x1b" not in piped.stdout
    assert piped.stdout.startswith("ok    python")


def typed(command: list[str], environment: dict[str, str]) -> str:
    import pty

    own, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment):
        os.close(theirs)
        said = b""
        try:
            while chunk := os.read(own, 65_536):
                said += chunk
        except OSError:
            pass  # Linux says so at the end
    os.close(own)
    return said.decode(errors="replace")
