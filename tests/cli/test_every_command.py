"""What holds for every command: help with an example that can be typed, --json, and errors as one line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from shared_core.cli.main import app
from tests.cli.test_cli import Done, dream

MISSING = "{missing}"
# what a command needs beside a path that is not there, or how the path is given where it is an option
GIVEN = {
    "forget": "{missing} -c x",
    "cycle": "{missing} -c x",
    "fleet": "{missing}",
    "status": "{missing} -c x",
    "log": "{missing} -c x",
    "undo": "r {missing} -c x",
    "restore": "m {missing} -c x",
    "trusted": "{missing} -c x",
    "distrust": "m {missing} -c x",
    "explain": "m {missing} -c x",
    "report": "{missing} -c x -o {out}",
    "ui": "{missing} -c x",
    "eval poison": "--data {missing}",
    "eval table": "{missing}",
    "eval figures": "--data {missing} -o {out}",
    "eval law": "--data {missing}",
    "eval stability": "--data {missing}",
    "eval agent": "--model copycat --data {missing}",
    "eval locomo": "--data {missing}",
    "eval policy": "--locomo {missing}",
    "eval signals": "{missing} --adapters {missing} --out {out}",
    "train policy": "{missing} -c x",
    "train data": "{missing} -c x --out {out}",
    "train sft": "{missing} --out {out}",
    "train grpo": "{missing} --adapters {missing} --out {out}",
    "train joint": "{missing} --adapters {missing} --out {out}",
    "train check": "{missing} --adapters {missing}",
}
# these read nothing; and the doctor's finding is that the path is missing, see test_doctor
WITHOUT_A_PATH = {"demo", "eval stream", "doctor"}


def commands(group: Any, before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        found |= commands(command, path) if hasattr(command, "commands") else {path: command}
    return found


ALL = commands(typer.main.get_command(app))


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", ALL)
def test_help_says_what_it_does_with_an_example(name: str) -> None:
    command = ALL[name]
    text = command.help or ""
    first = text.strip().splitlines()[0]
    assert first.endswith((".", ":"))
    examples = re.findall(r"Examples?: (dream .+)", text)
    assert examples, f"dream {name} has no example"
    for example in examples:
        words = shlex.split(example)[1:]
        assert words[: len(name.split())] == name.split()
        known = {*options_of(command), "--help"}
        assert not [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]
    assert all(parameter.help for parameter in command.params if hasattr(parameter, "help"))
    shown = dream(*name.split(), "--help")
    assert shown.returncode == 0
    assert f"Usage: dream {name}" in shown.stdout


@pytest.mark.parametrize("name", ALL)
def test_it_takes_json(name: str) -> None:
    assert "--json" in options_of(ALL[name])


def test_every_command_is_tried_with_a_missing_path() -> None:
    assert set(ALL) - WITHOUT_A_PATH <= set(GIVEN)


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["plain", "json"])
@pytest.mark.parametrize("name", [name for name in ALL if name in GIVEN])
def test_a_missing_path_is_one_line_and_exit_2(name: str, tmp_path: Path, as_json: list[str]) -> None:
    missing, out = tmp_path / "missing", tmp_path / "out"
    words = GIVEN[name].format(missing=missing, out=out).split()
    check_refused(dream(*name.split(), *words, *as_json), "missing")
    assert not missing.exists()


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_option_is_one_line_and_exit_2(name: str) -> None:
    refused = dream(*name.split(), "--jsson")
    check_refused(refused, "--jsson")
    assert f"see `dream {name} --help`" in refused.stderr


def check_refused(done: Done, expected: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert expected in done.stderr
    assert done.stderr.startswith("dream: ")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
